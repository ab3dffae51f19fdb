"""The JVM that runs Spark: started directly, so that its class path, flags and pid are known exactly.

`spark-submit` would first start a second JVM and a shell, and would read `spark-defaults.conf`; a container's Spark
depends on its job's settings only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from standby.adapters.spark.sockets import SocketDirectory
from standby.errors import BadConfiguration, Transient, Unavailable

#: The packages that Spark accesses by reflection; as passed by spark-submit of this release.
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

_FLAGS: Final = (
    # One collector thread: the heap is small and the cores are shared with other containers.
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    # The second compiler would add two thirds to the processor time of a start, which every standby pays for, 50 MB,
    # and milliseconds to each small batch of the first minutes. Only a transform that computes much, at saturation,
    # needs less with it: its job can switch it on.
    "-XX:TieredStopAtLevel=1",
    # Spark walks plans recursively, and a transform of many columns has a deep one.
    "-Xss4m",
    # Otherwise each thread keeps a buffer as large as the largest result that it has written to a file.
    "-Djdk.nio.maxCachedBufferSize=1048576",
    *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
)

#: Time-out from the start of a JVM to its first answer, on a busy machine.
START_SECONDS: Final = 120.0

#: Time-out for a JVM without settings to print its version.
_CONTROL_SECONDS: Final = 60.0

#: The setting that says where sockets are made.
SOCKETS: Final = "spark.python.unix.domain.socket.dir"

#: Advice for a machine that cannot run a JVM now.
_RELIEF: Final = "try again when the machine is less busy, or has more memory"


def spark_home() -> Path:
    """Return the directory of the installed pyspark; raises `Unavailable` when there is none."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable("pyspark is not installed in this Python environment: install standfast again")
    return Path(found.origin).parent


def class_archive() -> Path:
    """Return the path of the archive of Spark's loaded classes, which need not exist.

    It belongs to one installation of pyspark; see `standby.feed.archive`. The JVM compares it with its own version
    and with each jar, and starts without it when something differs.
    """
    return spark_home() / "standfast.jsa"


def is_archive_usable() -> bool:
    """Return whether the archive of classes exists and matches this host's pyspark and Java.

    Takes half a second. Raises `Unavailable` when there is no Java.
    """
    if not class_archive().is_file():
        return False
    command = [str(_java()), "-cp", os.pathsep.join(_sparks_jars()), "-Xshare:on"]
    command += [f"-XX:SharedArchiveFile={class_archive()}", "-version"]
    done = subprocess.run(command, capture_output=True, timeout=_CONTROL_SECONDS, check=False)
    return done.returncode == 0


class SparkProcess:
    """A running JVM with Spark's gateway for Python; it ends by itself when this process ends."""

    def __init__(
        self,
        settings: Mapping[str, str],
        additional_flags: Sequence[str] = (),
        log: Path | None = None,
        within_seconds: float = math.inf,
    ) -> None:
        """Start it and wait for its gateway, at most `START_SECONDS` and ``within_seconds``.

        Its output goes to ``log``, by default to the output of this process.

        ``settings`` are Spark's; of them `spark.driver.memory`, `spark.driver.extraJavaOptions`,
        `spark.driver.extraClassPath` and `spark.jars` shape the JVM. Raises `Unavailable` without a Java,
        `BadConfiguration` when the JVM refuses its flags, `Transient` when the machine cannot run it now.
        """
        self._sockets: SocketDirectory | None = None
        try:
            if SOCKETS not in settings:
                self._sockets = SocketDirectory()
                settings = {**settings, SOCKETS: str(self._sockets.path)}
            self.settings: Final = settings
            """Those that were given, and where sockets are made."""
            try:
                self._start(additional_flags, log, within_seconds)
            except BaseException:
                self._remove_sockets()
                raise
        except OSError as error:
            raise Transient(f"Spark's JVM cannot be started: {error.strerror or error}; {_RELIEF}") from error

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the JVM has not ended yet."""
        return self._process.poll() is None

    def obituary(self, doing: str = "") -> str:
        """Return a message on how the ended JVM has ended, while ``doing`` what, with advice."""
        status = self._process.returncode
        if status is not None and status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
            why = "the host may be out of memory"
        else:
            how, why = f"ended with status {status}", "its own message says why"
        return f"Spark's JVM {how}{f' while {doing}' if doing else ''} ({why}); {_RELIEF}"

    def ends_within(self, timeout_seconds: float) -> bool:
        """Return whether the JVM has ended, within the time-out: its connections close a little earlier."""
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Let the JVM end orderly; kill it after the time-out."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._remove_sockets()

    def kill(self) -> None:
        """Kill the JVM: every call that is waiting for its answer fails."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._remove_sockets()

    def _remove_sockets(self) -> None:
        if self._sockets is not None:
            self._sockets.remove()

    def _start(self, additional_flags: Sequence[str], log: Path | None, within_seconds: float) -> None:
        # A file that cannot be deleted is no reason to leave the JVM to itself.
        with tempfile.TemporaryDirectory(prefix="standfast-spark-", ignore_cleanup_errors=True) as directory:
            information = Path(directory) / "gateway"
            private = Path(directory) / "arguments"
            # Ctrl-C is sent to the whole process group, but this process ends the JVM itself.
            command = ["/bin/sh", "-c", 'trap "" INT; exec "$0" "$@"', str(_java())]
            command += _arguments(self.settings, additional_flags, private)
            _write_private(private, _private_arguments(self.settings))
            with contextlib.ExitStack() as stack:
                printed = stack.enter_context(log.open("ab")) if log is not None else None
                self._process = subprocess.Popen(
                    command,
                    # The gateway ends when its input is closed, however this process ends.
                    stdin=subprocess.PIPE,
                    stdout=printed,
                    stderr=printed,
                    env=_environment(information),
                )
            try:
                self.port, self.secret = self._gateway(information, min(START_SECONDS, within_seconds))
            except BaseException:
                self.kill()
                raise

    def _gateway(self, information: Path, seconds: float) -> tuple[int, str]:
        deadline = time.monotonic() + seconds
        # The file is renamed into place when it is complete; there is no other notification.
        while not information.exists():
            try:
                status = self._process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    raise Transient(silence(seconds, "it was started")) from None
                continue
            if status < 0:
                raise Transient(self.obituary())
            # A JVM ends with the same status for invalid flags and for lack of memory.
            _check_bare()
            raise BadConfiguration(
                f"Spark's JVM ended at once with status {status}; its own message says why. The usual cause is "
                "spark.driver.memory or spark.driver.extraJavaOptions"
            )
        content = information.read_bytes()
        port, length = struct.unpack_from(">ii", content)
        return port, content[8 : 8 + length].decode()


def silence(seconds: float, doing: str) -> str:
    """Return the message about a JVM that did not answer within ``seconds`` while ``doing`` something."""
    return f"Spark's JVM did not answer within {seconds:.3g} s while {doing}; {_RELIEF}"


def _check_bare() -> None:
    """Raise `Transient` unless a JVM without settings starts."""
    try:
        done = subprocess.run(
            [_java(), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CONTROL_SECONDS,
            check=False,
        )
    except OSError as error:
        raise Transient(f"no JVM can be started: {error.strerror}; {_RELIEF}") from error
    except subprocess.TimeoutExpired:
        raise Transient(silence(_CONTROL_SECONDS, "it printed its version")) from None
    if done.returncode != 0:
        raise Transient(
            f"no JVM starts on this host: `{_java()} -version` ends with status {done.returncode}; {_RELIEF}"
        )


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    if found is None:
        raise Unavailable("no Java: install a JDK of release 17 or newer on every host, or set JAVA_HOME")
    return Path(found)


def _arguments(settings: Mapping[str, str], additional_flags: Sequence[str], private: Path) -> list[str]:
    """Return the JVM's command line, which is visible to all users of the host; ``private`` has the rest."""
    # Spark's own jars come first, in a fixed order: an archive of classes is valid only for a class path that begins
    # with the one it was created with.
    jars = _sparks_jars()
    jars += [each for each in settings.get("spark.jars", "").split(",") if each]
    jars += [each for each in settings.get("spark.driver.extraClassPath", "").split(os.pathsep) if each]
    if os.environ.get("HADOOP_CONF_DIR"):
        jars.append(os.environ["HADOOP_CONF_DIR"])
    archive = class_archive()
    return [
        "-cp",
        os.pathsep.join(jars),
        f"-Xmx{settings.get('spark.driver.memory', '512m')}",
        *_FLAGS,
        *((f"-XX:SharedArchiveFile={archive}",) if archive.is_file() and not additional_flags else ()),
        *additional_flags,
        f"@{private}",
        "org.apache.spark.api.python.PythonGatewayServer",
    ]


def _environment(information: Path) -> dict[str, str]:
    """Return the variables of the JVM, which writes the port of its gateway to the file ``information``."""
    return {
        # With it Python workers would import pyspark from its zip file, which has no compiled modules: half a second
        # of processor time for each JVM's first worker.
        **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(information),
    }


def _sparks_jars() -> list[str]:
    # A search by pattern may find nothing for want of a file descriptor.
    return sorted(str(each) for each in (spark_home() / "jars").iterdir() if each.suffix == ".jar")


def _private_arguments(settings: Mapping[str, str]) -> list[str]:
    """Return the flags derived from a job's settings, including passwords."""
    options = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    return [*options, *(f"-D{name}={value}" for name, value in settings.items())]


#: Escapes in quoted arguments of the Java launcher's argument files.
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f"})


def _write_private(path: Path, arguments: Sequence[str]) -> None:
    """Write an argument file for the Java launcher (``java @path``), readable by this user only."""
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(f'"{each.translate(_ESCAPED)}"\n' for each in arguments)
