"""Why Spark does not start, what it is started with, and how long it is waited for.

A JVM that the machine cannot run now differs from settings that are wrong. The JVM is a script that behaves as one does
then; it is started as the real one is.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pyarrow as pa
import pytest

from standby.adapters.spark import jvm as spark_process
from standby.adapters.spark import session as pyspark
from standby.adapters.spark import sockets
from standby.adapters.spark.exchange import RowExchange
from standby.adapters.spark.jvm import SparkProcess
from standby.adapters.spark.session import Spark, is_fatal
from standby.errors import BadConfiguration, Transient
from standby.feed.rules.settings import session_settings
from standby.feed.spark import check_spark_transform
from tests.cases import case
from tests.fakes.jobs import job_config
from tests.meanwhile import background
from tests.patience import A_MOMENT_SECONDS, NEVER_SECONDS, PATIENCE_SECONDS

#: Opens a gateway as Spark does, and never answers a question.
_SILENT = f"""#!{sys.executable}
import os, socket, struct, time
server = socket.create_server(("127.0.0.1", 0))
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(path + ".making", "wb") as file:
    file.write(struct.pack(">ii", server.getsockname()[1], 6) + b"secret")
os.rename(path + ".making", path)
time.sleep(600)
"""

#: Never opens one.
_HANGING = "#!/bin/sh\nexec sleep 600\n"

#: As `_SILENT`, but it dies with the first question.
_DYING = _SILENT.replace("time.sleep(600)", "server.accept(); os.kill(os.getpid(), 9)")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the JVM of the test is to be written."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path / "bin" / "java"


def start(java: Path, text: str, within_seconds: float = math.inf) -> Spark:
    write(java, text)
    return Spark({"spark.driver.memory": "1g"}, within_seconds=within_seconds)


def test_a_jvm_that_the_machine_cannot_run_is_no_fault_of_the_settings(java: Path) -> None:
    """The host kills it, or no JVM would start without settings either; or else it dies with the first question."""
    for text, kind, said in (
        ("#!/bin/sh\nkill -9 $$\n", Transient, r"ended by SIGKILL .* memory"),
        ("#!/bin/sh\nexit 1\n", Transient, r"no JVM starts .* status 1"),
        (_DYING, Transient, r"ended by SIGKILL while its session was started"),
        ('#!/bin/sh\ncase "$*" in *-Xmx1g*) exit 1;; esac\n', BadConfiguration, r"spark\.driver\.memory"),
    ):
        with case(said), pytest.raises(kind, match=said):
            start(java, text)


@pytest.mark.parametrize(
    "asked", ["subprocess.Popen", "tempfile.mkdtemp", "pathlib.Path.iterdir", "pathlib.Path.read_bytes"]
)
def test_host_that_cannot_start_a_process_is_reported_as_that(
    java: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    def refused(*arguments: object, **more: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(asked, refused)
    with pytest.raises(Transient, match="cannot be started: Resource temporarily unavailable"):
        start(java, _SILENT)


def test_jvm_that_is_too_slow_is_reported_with_the_time(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(spark_process, "START_SECONDS", 0.3)
        with pytest.raises(Transient, match=r"did not answer within 0\.3 s"):
            start(java, _HANGING)
    monkeypatch.setattr(pyspark, "CALL_SECONDS", 0.5)
    said = r"did not answer within 0\.5 s while its session was started.* again"
    with pytest.raises(Transient, match=said):
        start(java, _SILENT)


def test_whole_start_takes_no_longer_than_its_caller_has(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Transient, match=rf"did not answer within {A_MOMENT_SECONDS} s while it was started"):
        start(java, _HANGING, within_seconds=A_MOMENT_SECONDS)
    # The JVM has all the time that it needs to open its gateway, and takes all but a second of it.
    times = SimpleNamespace(monotonic=iter((0.0, NEVER_SECONDS - 1)).__next__)
    monkeypatch.setattr(pyspark, "time", times)
    with pytest.raises(Transient, match=r"did not answer within 1 s while its session was started"):
        start(java, _SILENT, within_seconds=NEVER_SECONDS)


def test_session_that_the_job_s_code_has_made_is_not_taken_for_the_container_s(
    java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its JVM would have none of the settings, and nothing would end it."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", object())
    with pytest.raises(BadConfiguration, match=r"has started Spark itself.*rows\.sparkSession"):
        start(java, _HANGING, within_seconds=A_MOMENT_SECONDS)


#: Keeps what it was started with, and what anybody on the host could read of it.
_TELLING = _SILENT.replace(
    "server = socket",
    """import sys, pathlib
told = pathlib.Path(__file__).parent
(told / "cmdline").write_bytes(pathlib.Path("/proc/self/cmdline").read_bytes())
(told / "environ").write_bytes(pathlib.Path("/proc/self/environ").read_bytes())
[listed] = [each[1:] for each in sys.argv if each.startswith("@")]
(told / "listed").write_text(pathlib.Path(listed).read_text())
modes = [os.stat(each).st_mode & 0o777 for each in (listed, os.path.dirname(listed))]
(told / "modes").write_text(str(modes))
server = socket""",
)


def test_no_setting_is_on_the_command_line_of_the_jvm(java: Path) -> None:
    """Everybody on a host can read every process's command line."""
    write(java, _TELLING)
    settings = {
        "spark.hadoop.fs.s3a.secret.key": "s3cret",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.keyStorePassword=s3cret -Xlog:gc",
    }
    process = SparkProcess(settings)
    process.kill()
    told = java.parent
    for each in ("cmdline", "environ"):
        assert b"s3cret" not in (told / each).read_bytes()
    assert (told / "listed").read_text().count("s3cret") == 3
    assert (told / "modes").read_text() == str([0o600, 0o700])


#: Dies with a directory of its own.
_KILLED = """
import os, signal, sys
from pathlib import Path
from standby.adapters.spark import sockets
sockets._PLACE = Path(sys.argv[1])
sockets.SocketDirectory()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_sockets_of_a_process_that_was_killed_are_deleted_by_the_next_start_on_the_host(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    (place / "standfast").mkdir(parents=True)
    monkeypatch.setattr(sockets, "_PLACE", place)
    root = Path(__file__).parents[5]
    subprocess.run([sys.executable, "-c", _KILLED, str(place)], cwd=root, check=False)
    (left,) = place.glob("standfast-*")
    (left / "socket").touch()
    write(java, _TELLING)
    process = SparkProcess({})
    (own,) = place.glob("standfast-*")
    assert own != left
    assert own.stat().st_mode & 0o777 == 0o700
    assert f"-Dspark.python.unix.domain.socket.dir={own}" in (java.parent / "listed").read_text()
    other = sockets.SocketDirectory()
    assert own.exists(), "its process is alive"
    process.kill()
    other.remove()
    with pytest.raises(Transient):
        start(java, "#!/bin/sh\nexit 1\n")
    assert [each.name for each in place.iterdir()] == ["standfast"]


@pytest.mark.spark
@pytest.mark.acceptance
def test_a_host_that_cannot_have_a_session_is_named_and_nothing_of_a_start_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    for directory, kind, said in (
        ("/proc/absent", Transient, "its session was started.*No such file or directory: '/proc/absent'"),
        (f"/{'long' * 40}", BadConfiguration, r"socket\.dir: /long.*too long"),
    ):
        settings = session_settings(job_config({"spark.python.unix.domain.socket.dir": directory}))
        with case(said), pytest.raises(kind, match=said):
            Spark(settings, log=tmp_path / "log")
    # Whatever it is.
    monkeypatch.setattr(pyspark, "_slots", Mock(side_effect=ValueError("no number")))
    with pytest.raises(ValueError, match="no number"):
        Spark(session_settings(job_config()), log=tmp_path / "log")
    monkeypatch.undo()
    spark = Spark(session_settings(job_config(), scratch=str(tmp_path)), log=tmp_path / "log")
    place = Path(spark.process.settings["spark.python.unix.domain.socket.dir"])
    assert list(place.glob(".*.sock")) != []
    spark.close()
    assert not place.exists()
    assert sys.path == before


@pytest.mark.spark
@pytest.mark.acceptance
def test_settings_reach_the_jvm_as_they_are() -> None:
    """The real launcher reads the file; what is special to it is not changed on the way."""
    values = {
        "spark.test.plain": "a b",
        "spark.test.quoted": 'a "b" c\'d',
        "spark.test.escaped": "C:\\n #x\ttab\nline",
        "spark.test.unicode": "s3crét@x",
    }
    own = {"spark.app.name": "test", "spark.master": "local[1]", "spark.ui.enabled": "false"}
    spark = Spark({**own, **values})
    try:
        jvm: Any = spark.session._jvm
        assert {name: jvm.java.lang.System.getProperty(name) for name in values} == values
        command = Path(f"/proc/{spark.process.pid}/cmdline").read_bytes()
        assert b"spark.test" not in command
    finally:
        spark.release()


def test_an_archive_of_classes_is_of_use_until_spark_is_installed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (launcher,) = (spark_process.spark_home() / "jars").glob("spark-launcher_*.jar")
    jar = Path(shutil.copy(launcher, jars))
    monkeypatch.setattr(spark_process, "spark_home", lambda: tmp_path)
    assert not spark_process.is_archive_usable()
    making = f"-XX:ArchiveClassesAtExit={spark_process.class_archive()}"
    # It wants arguments, and has been loaded when it says so.
    subprocess.run(
        ["java", "-cp", str(jar), making, "org.apache.spark.launcher.Main"], check=False, capture_output=True
    )
    assert spark_process.is_archive_usable()
    # As an installation leaves it: the JVM knows a jar by its size and time.
    os.utime(jar, (0, 0))
    assert not spark_process.is_archive_usable()


#: What a JVM prints before anything else.
NOISE = "WARN NativeCodeLoader: Unable to load native-hadoop library"
_NOISY = f"#!/bin/sh\necho '{NOISE}' >&2\necho started\n"


def write(java: Path, text: str) -> None:
    java.write_text(text, encoding="utf-8")
    java.chmod(0o755)


def test_jvm_prints_to_its_log(java: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # The gateway's address, in a file that Spark renames when it is complete; the process ends with its input.
    made = 'printf "\\0\\0\\0\\001\\0\\0\\0\\001x" > "$path.making"\nmv "$path.making" "$path"\n'
    write(java, f'{_NOISY}path="$_PYSPARK_DRIVER_CONN_INFO_PATH"\n{made}exec cat\n')
    log = tmp_path / "spark.log"
    process = SparkProcess({}, log=log)
    assert (process.port, process.secret) == (1, "x")
    process.close()
    assert capfd.readouterr() == ("", "")
    assert log.read_text(encoding="utf-8").splitlines() == [NOISE, "started"]


def test_what_a_jvm_prints_that_does_not_start_is_in_the_error_and_nowhere_else(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where a job is only checked."""
    (tmp_path / "quiet_job.py").write_text("def clean(df): return df\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    # It refuses its flags: without any it starts.
    refuses = "echo 'Error: Could not create the Java Virtual Machine.' >&2\nexit 1\n"
    write(java, f'{_NOISY}[ "$*" = -version ] && exit 0\n{refuses}')
    with pytest.raises(BadConfiguration, match=r"Could not create the Java Virtual Machine") as refused:
        check_spark_transform(job_config(task__transform="quiet_job:clean"), Path(os.devnull))
    assert NOISE in str(refused.value)
    printed, complained = capfd.readouterr()
    # Kafka clients of other tests in this process may have something to say on threads of their own.
    assert (printed, [each for each in complained.splitlines() if not each.startswith("%")]) == ("", [])


# ---- a time-out that a job gives to its own sockets, as a default of the process, ends no call ----


#: Longer than a connection on this machine is waited for, and shorter than what is asked here.
DEFAULT_SECONDS = 4 * A_MOMENT_SECONDS
MILLIS = int(2 * DEFAULT_SECONDS * 1_000)


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Spark]:
    made = Spark(session_settings(job_config(), scratch=str(tmp_path)), log=tmp_path / "log")
    socket.setdefaulttimeout(DEFAULT_SECONDS)
    try:
        yield made
    finally:
        socket.setdefaulttimeout(None)
        made.close()


@pytest.mark.spark
@pytest.mark.acceptance
def test_calls_and_batches_are_waited_for_as_long_as_they_take(spark: Spark) -> None:
    jvm: Any = spark.session._jvm
    # Over the connection that is there, and over one of a new thread.
    jvm.java.lang.Thread.sleep(MILLIS)
    background(lambda: jvm.java.lang.Thread.sleep(MILLIS)).result(PATIENCE_SECONDS)
    # The rows of a batch come over a connection of their own.
    exchange = RowExchange()
    seconds = 2 * DEFAULT_SECONDS

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for batch in batches:
            time.sleep(seconds)
            yield batch

    try:
        frame = exchange.frame(spark.session, "n bigint", 1).mapInArrow(slow, "n bigint")
        exchange.put(pa.table({"n": [1, 2, 3]}), 1)
        assert frame.toArrow()["n"].to_pylist() == [1, 2, 3]
    finally:
        exchange.clear()


def test_an_error_is_fatal_that_leaves_the_jvm_without_memory_or_a_class() -> None:
    def error(*origins: tuple[str, str]) -> Exception:
        cause: Any = None
        for name, message in reversed(origins):
            thrown = MagicMock()
            thrown.getClass().getName.return_value = name
            thrown.getMessage.return_value, thrown.getCause.return_value = message, cause
            cause = thrown
        found = Exception()
        found._origin = cause  # type: ignore[attr-defined]
        return found

    wrapped = ("org.apache.spark.SparkException", "Job aborted")
    for is_expected, *origins in (
        (True, ("java.lang.OutOfMemoryError", "Java heap space")),
        (True, wrapped, ("org.apache.arrow.memory.OutOfMemoryException", "")),
        (True, wrapped, wrapped, ("io.netty.util.internal.OutOfDirectMemoryError", "")),
        (True, ("java.lang.NoClassDefFoundError", "Could not initialize class x.Y")),
        (False, ("java.lang.NoClassDefFoundError", "x/Y")),
        (False, wrapped, ("java.lang.NumberFormatException", "OutOfMemoryError")),
        (False,),
    ):
        with case(*origins):
            assert is_fatal(error(*origins)) is is_expected
