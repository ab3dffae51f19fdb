"""Jobs that share a pool: they come, go and come again, and each is placed, counts and fails over for itself."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from embedded.cluster import LocalCluster
from tests.system.lone.pool_job import JobOnPool, pool_of, wait_until_all_wait
from tests.system.lone.pool_lab import PoolOnLoopback, host

#: Two jobs of a processor with a standby each need a process for every copy, half of them in each zone. With one more,
#: whatever processes the copies of a processor come to, those of another one find two hosts.
NODES = {0: 0, 1: 1, 2: 2, 3: 1, 4: 0}

#: Keys and values of several scripts, of no letters at all, and of none.
TEXTS = ("Zürich", "東京", "Ω≈ç√", "👩🏽‍🚀", "naïve résumé", "line\nbreak", "", "\u200b", "a\x00b", "ﷺ")
PAIRS = [(key.encode(), value.encode()) for value in TEXTS for key in TEXTS]

ZONES = {host(0): "Süd", host(1): "北", host(2): "Süd"}

IN_ZONES: dict[str, Any] = {
    "job.container.count": "1",
    "yarn.host.attributes": [f"{each}=zone:{zone}" for each, zone in ZONES.items()],
    "job.locality.spread": "zone",
}


@pytest.fixture(scope="module")
def started(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolOnLoopback]:
    with pool_of(cluster, tmp_path_factory.mktemp("jobs"), NODES) as pool:
        yield pool


@pytest.fixture
def pool(started: PoolOnLoopback) -> PoolOnLoopback:
    """The pool, when none of its processes is claimed."""
    wait_until_all_wait(started)
    return started


def test_each_job_lives_for_itself_and_its_name_may_differ_in_dots_only(pool: PoolOnLoopback) -> None:
    with ExitStack() as ends, ExitStack() as end_of_two:
        # Of one task, and of two.
        one = JobOnPool(pool, "name_a.b-c", 1, "in_put.a-b", **IN_ZONES)
        two = JobOnPool(pool, "name.a_b-c", 2, "in-put.a_b", **IN_ZONES)
        ends.callback(one.close)
        end_of_two.callback(two.close)
        one.deploy()
        two.deploy()
        each_is_placed_counts_and_fails_over_for_itself(one, two)
        before = one.epochs
        update_at_submit_stops_what_runs_and_starts_it_anew_with_its_run(two)
        killed_job_goes_on_where_it_was(one, two)
        assert one.epochs == before, "the other job has not noticed"
        run, directories = two.run_id, state_directories(two)
        assert all(any(each.rglob(run)) for each in directories)
        end_of_two.close()
        assert statuses(one) == {one.name: "deployed"}
        # What a former copy left elsewhere goes with the next process there that serves tasks.
        assert not any(any(each.rglob(run)) for each in directories), "its state is gone"
        assert one.epochs == before, "nor of the end"
        one.produce(0, PAIRS)
        one.assert_exact()


def fail_over(job: JobOnPool, task: int) -> None:
    """Kill a task's active, and wait until the standby has followed it."""
    standby = job.replica(task, active=False)
    job.send(job.replica(task, active=True), signal.SIGKILL)
    job.wait(lambda status: status.tasks[task].active == standby.copy, "the standby as active")


def each_is_placed_counts_and_fails_over_for_itself(one: JobOnPool, two: JobOnPool) -> None:
    for job in (one, two):
        for task in job.wait_whole().tasks:
            assert len({ZONES[each.host or ""] for each in task.replicas}) == 2, f"{task}\n{job.story()}"
    before = two.epochs
    one.produce(0, PAIRS)
    one.assert_exact()
    fail_over(one, 0)
    one.produce(0, reversed(PAIRS))
    one.assert_exact()
    two.assert_exact()
    assert two.epochs == before
    # Of a partition that has never had a record.
    fail_over(two, 1)
    two.produce(0, PAIRS)
    two.produce(1, [(b"zum ersten Mal", b"1")])
    two.assert_exact()


def update_at_submit_stops_what_runs_and_starts_it_anew_with_its_run(two: JobOnPool) -> None:
    run, before = two.run_id, {each.container for task in two.status.tasks for each in task.replicas}
    assert "runs already in" in two.refused()
    said = two.deploy("--update", "--set", "job.hotstandby.enabled=false", "--json")
    assert '"copies": 1' in said
    assert two.run_id == run
    assert before.isdisjoint(each.container for task in two.status.tasks for each in task.replicas)
    two.produce(1, [(b"zum zweiten Mal", b"1")])
    two.assert_exact()


def killed_job_goes_on_where_it_was(one: JobOnPool, two: JobOnPool) -> None:
    two.standfast("kill", two.name)
    one.produce(0, PAIRS)
    two.produce(0, PAIRS)
    one.assert_exact()
    assert statuses(one) == {one.name: "deployed", two.name: "undeployed"}
    assert "undeployed" in two.standfast("status", two.name, status=1)
    two.deploy()
    two.assert_exact()


def state_directories(job: JobOnPool) -> set[Path]:
    """Return those of the nodes that have a copy of a job: their processes run below them."""
    pids = {each.pid for task in job.status.tasks for each in task.replicas}
    return {Path(psutil.Process(each).cwd()).parents[2] for each in pids if each is not None}


def statuses(each: JobOnPool) -> dict[str, str]:
    """Return the cluster's jobs, and how they are."""
    return {found["job"]: found["status"] for found in json.loads(each.standfast("jobs", "--json"))}
