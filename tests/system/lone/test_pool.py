"""Jobs on a pool, without YARN: masters, nodes and commands as an operator starts them, and what ends on the way."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from demo.command import CLI, ROOT
from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.lone.pool_lab import PoolOnLoopback, host, pool_on_loopback
from tests.system.yarn.counting import CountingJob, some
from tests.system.yarn.running import session

MASTERS, NODES = (11, 12), (1, 2, 3)

#: Keys of the cluster: its processes are there before a job is.
CLUSTER = {"zookeeper.session.timeout.ms": "6000", "cluster.leader.timeout.ms": "6000"}


class JobOnPool(CountingJob):
    """A counting job whose commands know nothing of YARN."""

    def __init__(self, pool: PoolOnLoopback, name: str, **settings: Any) -> None:
        more = {"cluster.name": pool.name, **CLUSTER, **settings}
        super().__init__(pool.cluster, pool.directory / name, name, name, 4, **more)
        self.pool = pool

    def submit(self, *more: str) -> subprocess.Popen[str]:
        self._watch()
        return subprocess.Popen(
            [*CLI, "submit", str(self.file), *more],
            cwd=ROOT,
            env=self.pool.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def close(self) -> None:
        """Delete the job."""
        try:
            self.run("delete", self.name, "--cluster", self.pool.name)
        finally:
            self._open.close()

    def deploy(self) -> None:
        """Submit it, and wait until it is deployed."""
        command = self.submit()
        said, _ = command.communicate(timeout=3 * PATIENCE_SECONDS)
        assert command.returncode == 0, said

    def run(self, *arguments: str) -> str:
        """Return what a command prints; it must succeed."""
        done = subprocess.run(
            [*CLI, *arguments],
            cwd=ROOT,
            env=self.pool.environment,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def wait_whole(self, containers: int) -> None:
        """Wait until every copy is in sync, in so many containers."""
        self.wait(
            lambda status: (
                status.settled
                and len(status.containers) == containers
                and all(len(each.in_sync) == 2 for each in status.tasks)
            ),
            f"every copy in sync in {containers} containers",
            3 * PATIENCE_SECONDS,
        )

    def hosts_of_actives(self) -> set[str | None]:
        """Return where actives are."""
        return {each.host for task in self.status.tasks for each in task.replicas if each.copy == task.active}


@pytest.fixture
def pool(cluster: LocalCluster, tmp_path: Path) -> Iterator[PoolOnLoopback]:
    with pool_on_loopback(cluster, f"pool-{os.getpid()}", tmp_path / "pool") as pool:
        pool.init(**CLUSTER)
        for each in MASTERS:
            pool.master(each)
        for each in NODES:
            pool.node(each)
        yield pool


def waiting(pool: PoolOnLoopback) -> dict[str, str]:
    """Return every process of the pool that is registered, and its claim."""
    with session(pool.cluster, pool.name) as zookeeper:
        found = zookeeper.pool.read(sorted(zookeeper.pool.names()))
    return {name: each.record.claim for name, each in found.items()}


def test_a_job_runs_fails_over_and_is_handed_over_and_its_pool_stays(pool: PoolOnLoopback) -> None:
    soon(lambda: len(waiting(pool)) == len(NODES), "every node has a process that waits")
    first_ids = set(waiting(pool))
    with closing(JobOnPool(pool, "first")) as job:
        job.deploy()
        job.wait_whole(len(NODES))
        job.produce(0, some(50, 5))
        job.assert_exact()
        stopped_node_hands_its_actives_over(pool, job)
        killed_node_costs_a_failover(pool, job)
        next_leader_knows_who_was_claimed(pool, job)
    soon(
        lambda: len(found := waiting(pool)) == len(NODES) and not any(found.values()),
        lambda: f"every process waits anew: {waiting(pool)}",
        3 * PATIENCE_SECONDS,
    )
    assert first_ids.isdisjoint(waiting(pool)), "none of them is used again"
    with closing(JobOnPool(pool, "second", **{"job.container.count": "1"})) as job:
        job.deploy()
        job.produce(1, some(20, 5))
        job.assert_exact()
        assert sum(map(bool, waiting(pool).values())) == 2, "one is left to wait"


def stopped_node_hands_its_actives_over(pool: PoolOnLoopback, job: JobOnPool) -> None:
    begun = now_ms()
    number = next(each for each in NODES if host(each) in job.hosts_of_actives())
    assert pool.end(f"node-{number}") == 0, pool.text(f"node-{number}")
    job.produce(0, some(50, 5, 50))
    job.assert_exact()
    assert job.kinds(begun) & {"failover_started", "container_lost"} == set(), job.story(begun)
    pool.node(number)
    job.wait_whole(len(NODES))


def killed_node_costs_a_failover(pool: PoolOnLoopback, job: JobOnPool) -> None:
    begun = now_ms()
    number = next(each for each in NODES if host(each) in job.hosts_of_actives())
    pool.end(f"node-{number}", signal.SIGKILL)
    job.wait_for_event("failover_finished", begun)
    job.produce(0, some(50, 5, 100))
    job.assert_exact()
    pool.node(number)
    job.wait_whole(len(NODES))


def next_leader_knows_who_was_claimed(pool: PoolOnLoopback, job: JobOnPool) -> None:
    begun, before = now_ms(), {each.container for each in job.status.containers}
    leader = job.client.status()["leader"]["host"]
    pool.end(next(f"master-{each}" for each in MASTERS if host(each) == leader), signal.SIGKILL)
    job.wait_for_event("leader_elected", begun)
    job.wait_whole(len(NODES))
    assert {each.container for each in job.status.containers} == before
    assert "container_lost" not in job.kinds(begun), job.story(begun)


def test_a_second_node_with_a_state_directory_in_use_is_refused(pool: PoolOnLoopback) -> None:
    soon(lambda: len(waiting(pool)) == len(NODES), "every node has a process that waits")
    first = pool.running.pop("node-1")
    pool.node(1)
    assert pool.running.pop("node-1").wait(PATIENCE_SECONDS) == 2
    assert "another node of cluster" in pool.text("node-1")
    pool.running["node-1"] = first
