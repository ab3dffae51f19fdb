"""A job that runs on the shared cluster: its event log, its containers, the command line. For tests to build on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from appmaster.adapters.credentials.keyring import Keyring, keyring_in
from appmaster.adapters.zookeeper.session import ZooKeeper
from demo.command import CLI, ROOT
from demo.events import Event, EventLog
from demo.standing import Replica, Status
from embedded.cluster import LocalCluster
from embedded.web import open_url
from standby.adapters.zookeeper.access import owner_access
from standby.ensemble import tls_of
from tests.patience import PATIENCE_SECONDS, looks

#: Actives stay where a test has moved them.
_AS_THEY_ARE = {"job.locality.rebalance": "manual"}

#: Detection times of a job that a test deploys for anything but detection: a process that dies shows by its broken
#: stream and its refused port, and no container is taken for lost because the machine stood still.
STEADY = {
    **_AS_THEY_ARE,
    "job.hotstandby.heartbeat.timeout.ms": "180000",
    "job.hotstandby.host.timeout.ms": "180000",
    "task.progress.timeout.ms": "300000",
    "zookeeper.session.timeout.ms": "30000",
    "cluster.leader.timeout.ms": "30000",
}

#: Detection times of a job of which something falls silent: a process that stands still is noticed late, since on a
#: busy machine any may; a host soon, since the kernel of one that is only busy answers for it.
NOTICES_SILENCE = {
    **_AS_THEY_ARE,
    "job.hotstandby.heartbeat.timeout.ms": "8000",
    "job.hotstandby.host.timeout.ms": "2000",
    "zookeeper.session.timeout.ms": "20000",
    "cluster.leader.timeout.ms": "2000",
}


def session(cluster: LocalCluster, name: str) -> ZooKeeper:
    """Return a session for a cluster's tree, unopened, as the commands have it."""
    access = owner_access(keyring(cluster, name).secret, tls=tls_of(cluster.environment()))
    return ZooKeeper(cluster.zookeeper_connect, name, access=access)


def keyring(cluster: LocalCluster, name: str) -> Keyring:
    """Return the credentials that a cluster's first submit has made."""
    return keyring_in(Path(cluster.environment()["STANDFAST_CREDENTIALS"]) / name, name)


class RunningJob(ABC):
    """A deployed job of a cluster of its own, which has the job's name."""

    def __init__(self, cluster: LocalCluster, name: str, cells: int) -> None:
        self.cluster = cluster
        self.name = name
        self.cells = cells

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its commands."""
        return self.cluster.environment()

    @property
    @abstractmethod
    def log(self) -> EventLog:
        """The cluster's event log."""

    @abstractmethod
    def first(self, condition: Callable[[Status], bool], seconds: float) -> Status | None:
        """Return the first status, seen from now on, that meets the condition; None when none comes in time."""

    def wait(
        self,
        condition: Callable[[Status], bool],
        what: str = "an answer of the leader",
        seconds: float = PATIENCE_SECONDS,
    ) -> Status:
        """Return the first status, seen from now on, that meets the condition."""
        status = self.first(condition, seconds)
        assert status is not None, f"{what} did not come within {seconds:.0f} s\n{self.story()}"
        return status

    def wait_until_settled(self) -> Status:
        """Return the first status with every cell up and nothing on its way to a better place.

        A master that came to the other's host is asked for again, and its cell late: the copies, in one cell until
        then, are spread over both. That takes some moves, one after the other, each with a process's start.
        """
        return self.wait(
            lambda status: status.settled and sum(each.is_up for each in status.cells) == self.cells,
            "all cells, and copies where they are to stay",
            3 * PATIENCE_SECONDS,
        )

    @property
    def status(self) -> Status:
        """The leader's present status."""
        return self.wait(lambda _: True)

    @property
    def run_id(self) -> str:
        """The job's run id."""
        return next(job.run for job in self.status.jobs if job.name == self.name)

    @property
    def epochs(self) -> dict[int, int]:
        """The epoch of each of the job's tasks, by its partition."""
        return {each.partition: each.epoch for each in self.status.tasks if each.task.job == self.name}

    # ---- what has happened ----

    def events(self, since_ms: int = 0) -> list[Event]:
        """Return the event log from ``since_ms`` (Unix) on."""
        return [each for each in self.log.events if each.at_ms >= since_ms]

    def kinds(self, since_ms: int = 0) -> set[str]:
        """Return the kinds of events since a time."""
        return {each.kind for each in self.events(since_ms)}

    def wait_for_event(self, kind: str | set[str], since_ms: int, **fields: object) -> Event:
        """Return the first event of a kind, or of one of some, since a time, with fields, its own or of its data."""
        kinds = {kind} if isinstance(kind, str) else kind

        def found(events: Iterable[Event]) -> Event | None:
            for each in events:
                if each.at_ms >= since_ms and each.kind in kinds:
                    said = {**(each.data or {}), **msgspec.structs.asdict(each)}
                    if all(said.get(name) == value for name, value in fields.items()):
                        return each
            return None

        self.log.wait_for(lambda events: found(events) is not None, PATIENCE_SECONDS)
        event = found(self.log.events)
        assert event is not None, (
            f"no {kind} {fields or ''} within {PATIENCE_SECONDS:.0f} s\n{self.story(since_ms)}"
        )
        return event

    def story(self, since_ms: int = 0) -> str:
        """Return the event log from ``since_ms`` (Unix) on, a line an event, for the message of a failure."""
        events = [each for each in self.events(since_ms) if each.kind != "job_status"]
        begun = since_ms or (events[0].at_ms if events else 0)
        return "\n".join(f"{each.at_ms - begun:>8} {each.text} {dict(each.data or {})}" for each in events)

    def scrape(self) -> str:
        """Return the leader's metrics, as Prometheus gets them."""
        leader = self.ask("status", self.name)["leader"]
        with open_url(
            f"http://{leader['host']}:{leader['http_port']}/metrics", timeout=PATIENCE_SECONDS
        ) as answer:
            text: str = answer.read().decode()
        return text

    def sources_of_state(self, container: str) -> list[tuple[str, str]]:
        """Return each task that a container opened, and where its state came from, as its log tells."""
        logs = [
            path.read_text(encoding="utf-8")
            for host in self.cluster.hosts
            for path in (self.cluster.host_directory(host) / "logs").glob(f"*/{container}/*.log")
        ]
        assert logs, f"{container} has written no log"
        return self.sources_in("".join(logs))

    def sources_in(self, log: str) -> list[tuple[str, str]]:
        """Return each task that was opened, and where its state came from, as a log tells."""
        return re.findall(rf"{self.name}/main\.(\d+): state from (\w+) at offset", log)

    # ---- containers and hosts ----

    def replica(self, partition: int, *, active: bool) -> Replica:
        """Return the active, or the first standby, of a task."""
        task = next(each for each in self.status.tasks if each.partition == partition)
        return next(each for each in task.replicas if (each.copy == task.active) == active)

    def send(self, replica: Replica, number: signal.Signals) -> None:
        """Send a signal to every process of a replica's container, first to its own."""
        assert replica.container is not None, f"copy {replica.copy} is nowhere"
        found = [
            each for each in self.cluster.container_processes() if each.container_id == replica.container
        ]
        assert found, f"{replica.container}: no process"
        for each in sorted(found, key=lambda each: each.pid != replica.pid):
            each.send(number)

    def send_alone(self, replica: Replica, number: signal.Signals) -> None:
        """Send a signal to the process of a replica's container, and to none of those around it."""
        assert replica.pid is not None, f"copy {replica.copy} is nowhere"
        os.kill(replica.pid, number)

    @contextmanager
    def lost_host(self, host: str, *, silent: bool = False) -> Iterator[None]:
        """Let a host die for the time of the block; after it, it runs again."""
        self.cluster.kill_host(host, silent=silent)
        try:
            yield
        finally:
            self.cluster.start_host(host)

    def assert_no_container_too_many(self) -> None:
        """Fail unless all containers on YARN's hosts are known to the leader; its own is the application's first."""
        others, missing = set[str](), set[str]()
        for _ in looks():
            known = {each.container for each in self.status.containers}
            attempts = {each.rsplit("_", 1)[0] for each in known}
            running = {
                each.container_id
                for each in self.cluster.container_processes()
                if each.container_id.rsplit("_", 1)[0] in attempts
            }
            others = {each for each in running - known if not each.endswith("_000001")}
            missing = known - running
            if not others and not missing:
                return
        raise AssertionError(f"{sorted(others)} are too many, {sorted(missing)} missing")

    # ---- the command line ----

    def standfast(self, *arguments: str, status: int | None = 0) -> str:
        """Run the command line; return what it prints, after checking its exit status."""
        done = self._run(*arguments)
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def told(self, *arguments: str) -> str:
        """Run the command line; return what it tells of its progress."""
        done = self._run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE_SECONDS,
            check=False,
        )

    def ask(self, *arguments: str) -> Any:
        """Return what a command prints as JSON."""
        return json.loads(self.standfast(*arguments, "--json"))
