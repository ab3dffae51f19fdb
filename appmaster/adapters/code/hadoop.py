"""Code through the cluster's own file system: a `CodeDistributor` on top of Hadoop's shell (`hadoop fs`).

The shell exists wherever Skein can submit, supports every file system that the cluster is configured for (HDFS,
viewfs, object stores), and handles Kerberos and delegation tokens. It starts a JVM for each call, which is acceptable
for a bundle a day. See docs/decisions/0013-code-of-jobs.md.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from standby.errors import BadConfiguration, Transient, Unavailable
from standby.shared.clock import REAL, Clock
from standby.shared.naming import escape
from standby.shared.peers import BundleSource

#: A call that takes longer than this uses a file system that does not answer, seconds.
_CALL_SECONDS: Final = 120.0

_log: Final = logging.getLogger(__name__)

#: A draft is in use for a few calls of the shell. That much longer it is kept because clocks of two hosts may differ.
_DRAFT_MS: Final = 24 * 3_600_000

#: With the time at which it was begun, Unix time in milliseconds. The shell writes to a name with a suffix of its own.
_DRAFT: Final = re.compile(r"\.[0-9a-f]{64}\.(\d{13})\.[0-9a-f]{32}(\._COPYING_)?\Z")

#: Number of drafts that one call removes.
_AT_ONCE: Final = 100

#: What the shell says of a file that does not exist.
_ABSENT: Final = "No such file or directory"

_MAIN: Final = "org.apache.hadoop.fs.FsShell"


def find_shell(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the command of Hadoop's shell: an installed ``hadoop``, else its class with the cluster's class path.

    The class path is that of ``yarn classpath``, as for a submit, or the one that YARN gave to this process. Raises
    `BadConfiguration` if there is neither.
    """
    path = environment.get("PATH", os.defpath)
    for home in ("HADOOP_COMMON_HOME", "HADOOP_HOME"):
        installed = Path(environment.get(home, "")) / "bin" / "hadoop"
        if environment.get(home) and os.access(installed, os.X_OK):
            return str(installed), "fs"
    hadoop = shutil.which("hadoop", path=path)
    if hadoop is not None:
        return hadoop, "fs"
    java_home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=f"{java_home}/bin" if java_home else path)
    yarn = shutil.which("yarn", path=path)
    classpath = environment.get("CLASSPATH", "")
    if yarn is not None:
        asked = subprocess.run(
            [yarn, "classpath", "--glob"], env=dict(environment), capture_output=True, text=True, check=False
        )
        classpath = asked.stdout.strip() or classpath
    if java is None or not classpath:
        raise BadConfiguration(
            "code.distributor=hdfs: there is no `hadoop` on PATH or in $HADOOP_COMMON_HOME, and no java with a "
            "$CLASSPATH of Hadoop; use code.distributor=local"
        )
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
    return java, *options, "-cp", classpath, _MAIN


class HadoopCode:
    """Keeps bundles as ``<directory>/<digest>.zip``; a file is either complete or absent.

    A draft stays if its process is killed, or if the file system does not answer. `publish` and `forget` remove those
    that are more than a day old, whoever began them.
    """

    def __init__(
        self,
        shell: Sequence[str],
        directory: str,
        environment: Mapping[str, str] = os.environ,
        clock: Clock = REAL,
    ) -> None:
        self._clock = clock
        self._shell = tuple(shell)
        self._directory = directory.rstrip("/")
        self._environment = dict(environment)
        self._lock = threading.Lock()
        # One bundle may be forgotten while another is fetched.
        self._running: set[subprocess.Popen[str]] = set()
        self._is_interrupted = False

    def publish(self, bundle: str, path: Path) -> None:
        """Write the file under another name first, then rename it: a reader never sees a part of it.

        Its presence is checked each time, because another candidate may have removed it since (`forget`).
        """
        target, draft = self._path(bundle), self._draft(bundle)
        if self._run("-test", "-e", target)[0] == 0:
            return
        self._must("-mkdir", "-p", self._directory)
        self._must("-put", str(path), draft)
        status, said = self._run("-mv", draft, target)
        if status != 0:
            self._run("-rm", "-f", "-skipTrash", draft)
            # Another candidate was quicker: a file of this name has this content.
            if self._run("-test", "-e", target)[0] != 0:
                raise Transient(f"{target}: {said}")
        self._remove_abandoned_drafts()

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Fetch the whole file; ``sources`` are not used.

        If it is absent, a draft of it is as good. Whoever was killed in `forget` has left one, and the file is not
        written again if a `publish` had found it just before.
        """
        # The shell writes beside its target and renames, so an old part is removed only when the new file is complete.
        try:
            self._must("-get", "-f", self._path(bundle), str(part))
        except Transient as error:
            drafts = self._drafts(f".{bundle}.*") if _ABSENT in str(error) else []
            complete = [name for name, match in drafts if not match[2]]
            if not complete:
                raise
            self._must("-get", "-f", f"{self._directory}/{complete[0]}", str(part))

    def forget(self, bundle: str, bury: Callable[[], bool]) -> None:
        """Rename the file, and remove it once the bundle is buried; otherwise it gets its name back.

        A `publish` that finds the file writes none, however soon the file is removed then. It has revived the bundle
        before, so ``bury``, which fails from then on, has to come when the file is not found any more.
        """
        target, aside = self._path(bundle), self._draft(bundle)
        status, said = self._run("-mv", target, aside)
        if status != 0 and _ABSENT not in said:
            raise Transient(f"hadoop fs -mv {target}: {said or f'exit status {status}'}")
        try:
            is_buried = bury()
        except BaseException:
            if status == 0:
                self._give_back(aside, bundle)
            raise
        if status == 0 and is_buried:
            self._must("-rm", "-f", "-skipTrash", aside)
        elif status == 0:
            self._give_back(aside, bundle)
        self._remove_abandoned_drafts()

    def interrupt(self) -> None:
        """End the calls that are under way, and refuse all later ones, but for a name that is given back."""
        with self._lock:
            self._is_interrupted = True
            for each in self._running:
                each.kill()

    def _give_back(self, aside: str, bundle: str) -> None:
        target = self._path(bundle)
        status, said = self._run("-mv", aside, target, is_interruptible=False)
        if status == 0:
            return
        if self._run("-test", "-e", target, is_interruptible=False)[0] != 0:
            raise Transient(f"{target}: {said}; its content is in {aside}")
        # It was published again meanwhile.
        self._run("-rm", "-f", "-skipTrash", aside)

    def _draft(self, bundle: str) -> str:
        return f"{self._directory}/.{bundle}.{self._clock.now_ms()}.{uuid.uuid4().hex}"

    def _drafts(self, pattern: str) -> list[tuple[str, re.Match[str]]]:
        """Return the names of the drafts that match a pattern, each with what `_DRAFT` finds in it."""
        # There may be none, which is an error to the shell.
        _, listed, _ = self._call("-ls", "-C", f"{self._directory}/{pattern}")
        names = (each.rpartition("/")[2] for each in listed.splitlines())
        return [(name, match) for name in names if (match := _DRAFT.match(name)) is not None]

    def _remove_abandoned_drafts(self) -> None:
        try:
            old_ms = self._clock.now_ms() - _DRAFT_MS
            old = [
                f"{self._directory}/{name}" for name, match in self._drafts(".*") if int(match[1]) < old_ms
            ]
            if old:
                self._must("-rm", "-f", "-skipTrash", *old[:_AT_ONCE])
        except (Transient, Unavailable) as error:
            # A later call tries it again.
            _log.info("drafts of bundles: %s", error)

    def _path(self, bundle: str) -> str:
        return f"{self._directory}/{bundle}.zip"

    def _must(self, *arguments: str) -> None:
        status, said = self._run(*arguments)
        if status != 0:
            raise Transient(f"hadoop fs {' '.join(arguments)}: {said or f'exit status {status}'}")

    def _run(self, *arguments: str, is_interruptible: bool = True) -> tuple[int, str]:
        """Return the exit status of a call, and the last line of what it says about it."""
        status, _, said = self._call(*arguments, is_interruptible=is_interruptible)
        return status, said

    def _call(self, *arguments: str, is_interruptible: bool = True) -> tuple[int, str, str]:
        """Return the exit status of a call, its output, and the last line of its errors."""
        with self._lock:
            if self._is_interrupted and is_interruptible:
                raise Transient("called off")
            try:
                process = subprocess.Popen(
                    (*self._shell, *arguments),
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                )
            except OSError as error:
                raise Unavailable(f"{self._shell[0]}: {error.strerror}") from error
            if is_interruptible:
                self._running.add(process)
        try:
            output, said = process.communicate(timeout=_CALL_SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.communicate()
            raise Transient(f"hadoop fs {arguments[0]}: no answer within {_CALL_SECONDS:g} s") from error
        finally:
            with self._lock:
                self._running.discard(process)
        lines = [each for each in said.splitlines() if each.strip() and " WARN " not in each]
        return process.returncode, output, lines[-1] if lines else ""


def hadoop_code(directory: str, cluster: str) -> HadoopCode:
    """Return a cluster's bundles below ``code.hdfs.directory``; raises as `find_shell`."""
    return HadoopCode(find_shell(), f"{directory.rstrip('/')}/{escape(cluster)}/code")
