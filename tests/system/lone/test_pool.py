"""Jobs on a pool, without YARN: masters, nodes and commands as an operator starts them, and what ends on the way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.lone.pool_job import CLUSTER, MASTERS, JobOnPool, pool_of, waiting
from tests.system.lone.pool_lab import PoolOnLoopback, host
from tests.system.yarn.counting import some

#: One on each of three hosts.
NODES = {number: number for number in (1, 2, 3)}


@pytest.fixture
def pool(cluster: LocalCluster, tmp_path: Path) -> Iterator[PoolOnLoopback]:
    with pool_of(cluster, tmp_path, NODES, **CLUSTER) as pool:
        yield pool


def test_a_job_runs_fails_over_and_is_handed_over_and_its_pool_stays(pool: PoolOnLoopback) -> None:
    second_node_with_a_state_directory_in_use_is_refused(pool)
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


def second_node_with_a_state_directory_in_use_is_refused(pool: PoolOnLoopback) -> None:
    first = pool.running.pop("node-1")
    pool.node(1)
    assert pool.running.pop("node-1").wait(PATIENCE_SECONDS) == 2
    assert "another node of cluster" in pool.text("node-1")
    pool.running["node-1"] = first


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
    assert job.standfast("get", job.name, "default", "key 3") == "30\n", "by the active of now"
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
