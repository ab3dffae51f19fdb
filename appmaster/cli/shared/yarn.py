"""YARN from an edge node: one Skein driver, and errors that name what is missing."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.credentials.authority import PemKeyPair, skein_pair
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.hadoop_conf import YARN_SITE, HadoopConfiguration, read
from appmaster.cli.shared.waiting import PollResult, until
from appmaster.records import CellRecord
from standby.config import JobConfig
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared.naming import POOL

#: How long a submit waits for the host of a master; a full cluster may take longer, and then it stays unknown.
_MASTER_SECONDS: Final = 20.0

#: How long an application may take to end after YARN was asked to end it, seconds.
_END_SECONDS: Final = 30.0

#: YARN's states of an application that has ended.
ENDS: Final = ("FINISHED", "FAILED", "KILLED")

#: The state of an application that YARN does not know (any more).
_UNKNOWN: Final = "UNKNOWN"

#: The states of applications that do not run, nor wait to.
NOT_RUNNING: Final = (_UNKNOWN, *ENDS)

#: Least time for a call to YARN even if the command's time is nearly over, or is: it may be needed to undo a submit.
_LEAST_SECONDS: Final = 10.0

#: How long Skein's driver may take to end with the command, seconds.
_DRIVER_END_SECONDS: Final = 5.0


def hadoop_conf(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the directories of ``HADOOP_CONF_DIR``; raises `BadConfiguration` with the remedy if they are unusable."""
    value = environment.get("HADOOP_CONF_DIR")
    if not value:
        raise BadConfiguration(
            "HADOOP_CONF_DIR is not set: point it to the directory with yarn-site.xml, "
            'or for the embedded cluster run: eval "$(standfast local env)"'
        )
    directories = _directories(value)
    if not _has_yarn_site(directories):
        raise BadConfiguration(f"HADOOP_CONF_DIR={value}: there is no {YARN_SITE}")
    return directories


def hadoop_configuration(environment: Mapping[str, str] = os.environ) -> HadoopConfiguration:
    """Return the client's Hadoop configuration as Skein's driver reads it: from the class path that `yarn` prints.

    Raises `BadConfiguration` if it does not exist or cannot be read.
    """
    directories = hadoop_conf(environment)
    command = shutil.which("yarn", path=environment.get("PATH", os.defpath))
    if command is None:
        return read(directories, environment)
    if classpath := _classpath(command, tuple(sorted(environment.items()))):
        directories = _directories(classpath)
        if not _has_yarn_site(directories):
            raise BadConfiguration(
                f"HADOOP_CONF_DIR={environment['HADOOP_CONF_DIR']}: the class path that `yarn classpath --glob` prints "
                f"has no {YARN_SITE}; Hadoop's scripts of release 3 take a single directory"
            )
    return read(directories, environment)


@cache
def _classpath(command: str, environment: tuple[tuple[str, str], ...]) -> str:
    """Return the class path that ``command`` prints, empty if it prints none; raises `Unavailable`.

    Cached: with an installed Hadoop it starts a JVM, and a submit needs the result for each cell.
    """
    try:
        asked = subprocess.run(
            [command, "classpath", "--glob"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise Unavailable(f"{command} does not run: {error.strerror}") from error
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _directories(classpath: str) -> tuple[Path, ...]:
    parts = (Path(each) for each in classpath.split(os.pathsep) if each)
    return tuple(each for each in parts if each.is_dir())


def _has_yarn_site(directories: Iterable[Path]) -> bool:
    return any((each / YARN_SITE).is_file() for each in directories)


def answering(base: Any, deadline: Deadline) -> Any:
    """Return Skein's class of clients with a time-out for each call: YARN's own client keeps trying for 15 minutes.

    It raises Skein's `TimeoutError` for a call that was not answered in time.
    """

    class Answering(base):  # type: ignore[misc]
        __slots__ = ()

        def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
            # Not for submit: files may be large, and a submit that is given up half-way may succeed nevertheless.
            if method != "submit":
                timeout = max(_LEAST_SECONDS, deadline.left_seconds)
            return super()._call(method, request, timeout)

        def close(self) -> None:
            process = self._proc
            if process is not None:
                process.stdin.close()
                try:
                    process.wait(_DRIVER_END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
            super().close()

    return Answering


@contextmanager
def skein_client(deadline: Deadline | None = None) -> Iterator[Any]:
    """Yield a Skein client with its own driver, whose calls take no longer than ``deadline``.

    Raises `Unavailable` naming what is missing, or if YARN refuses or does not answer.
    """
    hadoop_conf()
    for tool, why in (
        ("java", "Skein's driver is a Java program"),
        ("yarn", "Skein asks it for the class path"),
    ):
        if shutil.which(tool) is None:
            raise Unavailable(f"no `{tool}` on PATH; {why}")
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise Unavailable(
            f"uid {os.geteuid()} has no entry in the user database (/etc/passwd), from which YARN's clients take the "
            "user's name: add one, or run as another user"
        ) from None
    from skein.exceptions import SkeinError
    from skein.exceptions import TimeoutError as Unanswered

    from appmaster.adapters.skein_library import load_skein

    skein = load_skein()
    make = skein.Client if deadline is None else answering(skein.Client, deadline)
    # The driver first logs a page of Hadoop's output; it is shown only if there is an error.
    with tempfile.NamedTemporaryFile(prefix="standfast-skein-", suffix=".log") as log:
        try:
            client = make(
                # For the connection between this command and its own driver.
                security=as_security(skein_pair(days=1)),
                java_options="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
                log=log.name,
            )
        except SkeinError as error:
            raise Unavailable(f"Skein's driver does not start: {error}\n{_tail(log.name)}") from error
        try:
            yield client
        except Unanswered as error:
            within = "in time" if deadline is None else f"within {deadline.seconds:g} s"
            raise Unavailable(
                f"YARN has not answered {within}: does its ResourceManager run, and is it the one "
                f"that HADOOP_CONF_DIR={os.environ.get('HADOOP_CONF_DIR', '')} names?\n{_tail(log.name)}"
            ) from error
        except SkeinError as error:
            raise Unavailable(f"YARN refused: {error}\n{_tail(log.name)}") from error
        finally:
            client.close()


@contextmanager
def driver_of(*, is_pool: bool) -> Iterator[Any]:
    """Yield a Skein client like `skein_client`; None for a cluster on a pool, about which YARN is not asked."""
    if is_pool:
        yield None
        return
    with skein_client() as driver:
        yield driver


def is_pool(zookeeper: ZooKeeper) -> bool:
    """Return whether a cluster's containers are processes of a pool, which runs until its operator ends it."""
    # One record that cannot be read must not keep every command from the other cells.
    found = zookeeper.cells.read_each().values()
    return any(isinstance(each, CellRecord) and each.is_pool for each in found)


def is_on_pool(client: ClusterClient) -> bool:
    """Return the same as any candidate says, or as ZooKeeper has it if none answers."""
    return inspect_cells(client)[0]


def inspect_cells(client: ClusterClient) -> tuple[bool, int | None]:
    """Return the same as `is_on_pool`, and the number of the cluster's cells; None: it is a pool, or nobody answers."""
    try:
        cells = client.info()["cells"]
    except Unavailable:
        return is_pool(client.zookeeper), None
    is_of_pool = any(each["is_pool"] for each in cells)
    return is_of_pool, None if is_of_pool else len(cells) or None


def as_security(pair: PemKeyPair) -> Any:
    """Return a pair in Skein's form."""
    import skein

    # Not as paths, because Skein treats some characters in them as parts of a URL.
    return skein.Security(cert_bytes=pair.certificate.encode(), key_bytes=pair.key.encode())


def _tail(path: str) -> str:
    lines = Path(path).read_text(errors="replace").splitlines()
    return "\n".join(f"  {each}" for each in lines[-8:])


def running(zookeeper: ZooKeeper, client: Any) -> tuple[str, ...]:
    """Return the applications of a cluster's cells that have not ended; a pool stands for one that never does."""
    cells = zookeeper.cells.read_all().values()
    return tuple(
        each.application or POOL for each in cells if each.is_pool or is_running(client, each.application)
    )


def is_running(client: Any, application: str) -> bool:
    """Return whether YARN knows the application and it has not ended."""
    return state(client, application) not in NOT_RUNNING


def report(client: Any, application: str) -> Any | None:
    """Return YARN's report of an application; None if it has none of that id (any more).

    Raises Skein's error if YARN cannot be asked, which says nothing about the application.
    """
    if not application:
        return None
    try:
        return client.application_report(application)
    except ValueError:
        # The driver reports an unknown id and an unavailable YARN in the same way: this call distinguishes them.
        client.get_nodes(states=["RUNNING"])
        return None


def in_words(report: Any) -> str:
    """Return an application's state and why it is in it: usually the limit of the queue that keeps it waiting."""
    words = " ".join((report.diagnostics or "").split())
    return f"{report.state}{f': {words}' if words else ''}"


def state(client: Any, application: str) -> str:
    """Return YARN's state of an application; UNKNOWN if it has none of that id."""
    return state_of(report(client, application))


def state_of(found: Any | None) -> str:
    """Return the same of the application that a `report` is about."""
    return str(found.state) if found is not None else _UNKNOWN


def master_host(client: Any, application: str, deadline: Deadline) -> str:
    """Return the host of an application's master, once it runs; empty if it does not in time."""

    def look() -> PollResult[str]:
        found = report(client, application)
        if found is None or str(found.state) in ENDS:
            return PollResult(True, "")
        is_there = str(found.state) == "RUNNING" and found.host not in (None, "", "N/A")
        return PollResult(is_there, str(found.host) if is_there else "")

    return until(deadline.within(_MASTER_SECONDS), look).what


def kill(client: Any, application: str) -> None:
    """Ask YARN to end an application; does nothing if it has ended."""
    from skein.exceptions import SkeinError

    try:
        client.kill_application(application)
    except (SkeinError, ValueError) as error:
        if is_running(client, application):
            raise Unavailable(f"{application} cannot be ended: {error}") from error


def await_end(client: Any, applications: Iterable[str], deadline: Deadline) -> None:
    """Return once applications that YARN was asked to end have ended; raises `StandfastError` for one that has not."""
    left = still_running(client, applications, deadline.beyond(_END_SECONDS))
    if left:
        raise StandfastError(f"{left[0]} still runs, although YARN was asked to end it")


def still_running(
    client: Any,
    applications: Iterable[str],
    deadline: Deadline,
    say: Callable[[tuple[str, ...]], object] = lambda _: None,
) -> tuple[str, ...]:
    """Return the applications that have not ended when the time is over; empty as soon as all have.

    ``say`` takes those that still run.
    """
    left = tuple(applications)

    def look() -> PollResult[tuple[str, ...]]:
        nonlocal left
        left = tuple(each for each in left if is_running(client, each))
        if left:
            say(left)
        return PollResult(not left, left)

    return until(deadline, look).what


def topology(config: JobConfig, client: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the hosts that get their own service, and the rack of every host."""
    nodes = client.get_nodes(states=["RUNNING"])
    hosts = config.hosts or tuple(sorted(each.host for each in nodes))
    return hosts, {each.host: str(each.rack_name or "") for each in nodes}
