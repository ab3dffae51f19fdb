"""Counting jobs on a pool of two masters and some hosts, each with a process for every copy that may come to it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import psutil

from appmaster.cli.main import main
from demo.standing import Replica, Status
from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.lone.pool_lab import PoolOnLoopback, pool_on_loopback
from tests.system.yarn.counting import CountingJob
from tests.system.yarn.running import STEADY, session

MASTERS = (11, 12)

#: Keys of the cluster: its processes are there before a job is.
CLUSTER = {"zookeeper.session.timeout.ms": "6000", "cluster.leader.timeout.ms": "6000"}

#: The same, for a test in which no process falls silent.
STEADY_CLUSTER = {name: STEADY[name] for name in CLUSTER}

#: Keys of a job that runs on Spark, in JVMs as small as they may be.
SPARK: dict[str, Any] = {
    "task.feed": "spark",
    "task.transform": "counting_job:unchanged",
    "spark.driver.memory": "512m",
    "cluster-manager.container.memory.mb": 1024,
}


class JobOnPool(CountingJob):
    """A counting job whose commands know nothing of YARN."""

    SUBMIT = ()

    def __init__(
        self,
        pool: PoolOnLoopback,
        name: str,
        partitions: int = 4,
        topic: str | None = None,
        also: Sequence[str] = (),
        kafka: str | None = None,
        /,
        **settings: Any,
    ) -> None:
        more = {"cluster.name": pool.name, **pool.settings, **settings}
        directory = pool.directory / name
        super().__init__(pool.cluster, directory, name, topic or name, partitions, also, kafka, **more)
        self.pool = pool

    @property
    def environment(self) -> dict[str, str]:
        return self.pool.environment

    def close(self) -> None:
        """Delete the job."""
        try:
            self.standfast("delete", self.name)
        finally:
            self._open.close()

    def deploy(self, *more: str) -> str:
        """Submit it, and wait until it is deployed; return what the command says."""
        command = self.submit(*more)
        said, _ = command.communicate(timeout=3 * PATIENCE_SECONDS)
        assert command.returncode == 0, said
        return said

    def refused(self, *more: str) -> str:
        """Return why a submit is refused."""
        command = self.submit(*more)
        said, _ = command.communicate(timeout=3 * PATIENCE_SECONDS)
        assert command.returncode == 2, said
        return said

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command in this process: one of its own would take a second to import everything anew.

        That of an update has imported the job's modules, which change while a test runs.
        """
        given = (*arguments, "--cluster", self.pool.name)
        if arguments[0] == "update":
            return super()._run(*given)
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            status = main(given)
        return subprocess.CompletedProcess(given, status, out.getvalue(), err.getvalue())

    def first(self, condition: Callable[[Status], bool], seconds: float) -> Status | None:
        """As of any job, of the job's own part of the status; before it has one, no status meets a condition."""

        def own(status: Status) -> Status:
            return msgspec.structs.replace(
                status,
                jobs=tuple(each for each in status.jobs if each.name == self.name),
                tasks=tuple(each for each in status.tasks if each.task.job == self.name),
            )

        found = super().first(lambda each: bool((part := own(each)).jobs) and condition(part), seconds)
        return None if found is None else own(found)

    def wait_whole(self, containers: int | None = None, copies: int = 2) -> Status:
        """Return the first status with every copy in sync and nothing on its way, in so many containers."""
        return self.wait(
            lambda status: (
                status.settled
                and containers in (None, len(status.containers))
                and len(status.tasks) == self.partitions
                and all(len(each.in_sync) == len(each.replicas) == copies for each in status.tasks)
            ),
            f"every copy in sync in {containers or 'its'} containers",
            3 * PATIENCE_SECONDS,
        )

    def hosts_of_actives(self) -> set[str | None]:
        """Return where actives are."""
        return {each.host for task in self.status.tasks for each in task.replicas if each.copy == task.active}

    # ---- its processes ----

    def send(self, replica: Replica, number: signal.Signals) -> None:
        """Send a signal to the process of a replica's container and to its witness."""
        assert replica.pid is not None, f"copy {replica.copy} is nowhere"
        found = [psutil.Process(replica.pid)]
        nodes = {each.pid for each in self.pool.running.values()}
        if (parent := found[0].parent()) is not None and parent.pid not in nodes:
            found.append(parent)
        for each in found:
            each.send_signal(number)


@contextmanager
def pool_of(
    cluster: LocalCluster,
    directory: Path,
    nodes: dict[int, int],
    python: Path = Path(sys.executable),
    /,
    **settings: str,
) -> Iterator[PoolOnLoopback]:
    """Yield a pool with two masters and with nodes (number → that of its host), all of which wait.

    ``settings``: keys of the cluster beside those of `STEADY_CLUSTER`.
    """
    name = f"{directory.name}-{os.getpid()}"
    with pool_on_loopback(cluster, name, directory / "pool", python) as pool:
        pool.init(**{**STEADY_CLUSTER, **settings})
        for each in MASTERS:
            pool.master(each)
        for number, on in nodes.items():
            pool.node(number, on)
        wait_until_all_wait(pool)
        yield pool


def wait_until_all_wait(pool: PoolOnLoopback) -> None:
    """Wait until every node has a process that waits: a job that is mixed claims all that do when it is submitted."""
    nodes = sum(each.startswith("node-") for each in pool.running)
    soon(
        lambda: sum(not claim for claim in waiting(pool).values()) == nodes,
        lambda: f"a process of each of {nodes} nodes waits: {waiting(pool)}",
    )


def waiting(pool: PoolOnLoopback) -> dict[str, str]:
    """Return every process of the pool that is registered, and its claim."""
    with session(pool.cluster, pool.name) as zookeeper:
        found = zookeeper.pool.read(sorted(zookeeper.pool.names()))
    return {name: each.record.claim for name, each in found.items()}
