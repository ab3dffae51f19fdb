"""What was under way when the leader died is finished by its successor, and records change as Kafka's do.

On a real YARN. The simulation kills the leader at each single step (tests/simulation/test_every_step.py).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from appmaster.adapters.zookeeper.session import ZooKeeper
from demo.command import ROOT
from demo.scenario import now_ms
from demo.standing import Replica
from embedded.cluster import LocalCluster
from standby.model import TaskId, TaskRecord
from standby.naming import task_path
from standby.records import decode_task
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.yarn.counting import CountingJob, submitted
from tests.system.yarn.running import session
from tests.system.yarn.two_cells import (
    CANDIDATE,
    epochs,
    is_whole,
    leader,
    master,
    pairs,
    whole_in_both_cells,
)

NAME, TASKS = "inflight", 4


def counting_job(
    cluster: LocalCluster, directory: Path, name: str, tasks: int, **settings: str
) -> CountingJob:
    """Return a job a process of which may be held without being taken for lost."""
    return CountingJob(cluster, directory, name, f"{name}-in", tasks, **settings)


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingJob]:
    """Return the counting job: two processors of two tasks, a standby each, in two cells."""
    job = counting_job(
        cluster, tmp_path_factory.mktemp(NAME) / "job", NAME, TASKS, **{"job.container.count": "2"}
    )
    with submitted(job):
        yield job


@pytest.fixture(scope="module")
def zookeeper(cluster: LocalCluster) -> Iterator[ZooKeeper]:
    """Return a session that sees the records, the cells, and who leads."""
    with session(cluster, NAME) as opened:
        yield opened


@dataclass(frozen=True)
class Written:
    """A task's record as it is in ZooKeeper."""

    record: TaskRecord
    version: int
    transaction: int


def written(zookeeper: ZooKeeper, partition: int) -> Written:
    """Return what ZooKeeper has of a task."""
    path = task_path(NAME, TaskId(NAME, "main", partition))
    data, stat = zookeeper.client.get(path)
    return Written(decode_task(data, path), stat.version, stat.mzxid)


def with_it(job: CountingJob, replica: Replica) -> list[int]:
    """Return the tasks that have a copy in the container of ``replica``."""
    return [
        task.partition
        for task in job.status.tasks
        if any(each.container == replica.container for each in task.replicas)
    ]


@contextmanager
def held(job: CountingJob, replica: Replica) -> Iterator[None]:
    """Hold every process of a replica's container for the time of the block."""
    job.send(replica, signal.SIGSTOP)
    try:
        yield
    finally:
        job.send(replica, signal.SIGCONT)


def kill_leader(job: CountingJob, zookeeper: ZooKeeper) -> None:
    """Kill the candidate that leads, and wait until another one does."""
    was, begun = leader(zookeeper), now_ms()
    master(job, was.container, CANDIDATE).send(signal.SIGKILL)
    elected = job.wait_for_event("leader_elected", begun)
    assert (elected.data or {})["candidate"] != was.candidate


def some_more(job: CountingJob, begin: int) -> None:
    """Give every task something to do."""
    for partition in range(TASKS):
        job.produce(partition, pairs(partition, begin))


def test_a_failover_is_one_write_of_all_its_tasks(job: CountingJob, zookeeper: ZooKeeper) -> None:
    """The promoted replica is active under the next epoch, and all that is in sync."""
    whole_in_both_cells(job)
    some_more(job, 0)
    job.assert_exact()
    active, standby = job.replica(0, active=True), job.replica(0, active=False)
    tasks = with_it(job, active)
    assert len(tasks) == 2
    before = {task: written(zookeeper, task) for task in tasks}
    assert all(each.record.in_sync == (0, 1) for each in before.values())
    job.send(active, signal.SIGKILL)
    # Without a pause between two looks: another write may follow soon.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while written(zookeeper, tasks[0]).version == before[tasks[0]].version:
        assert time.monotonic() < deadline, "no write"
    after = {task: written(zookeeper, task) for task in tasks}
    assert len({each.transaction for each in after.values()}) == 1
    for task, now in after.items():
        assert now.version == before[task].version + 1
        assert (now.record.active, now.record.epoch) == (standby.copy, before[task].record.epoch + 1)
        assert now.record.in_sync == (standby.copy,)
    whole_in_both_cells(job)
    job.assert_exact()


def test_a_standby_that_is_silent_leaves_the_set_without_traffic_and_comes_back(
    job: CountingJob, zookeeper: ZooKeeper
) -> None:
    """Nothing is written meanwhile, so only time can tell that it lags; no epoch changes."""
    whole_in_both_cells(job)
    soon(lambda: all(len(each.in_sync) == 2 for each in job.status.tasks), "both in sync")
    before, standby = epochs(job), job.replica(0, active=False)
    with held(job, standby):
        soon(lambda: standby.copy not in written(zookeeper, 0).record.in_sync, "the standby out of the set")
    soon(lambda: len(written(zookeeper, 0).record.in_sync) == 2, "a standby in the set again")
    job.wait(is_whole(job))
    assert epochs(job) == before
    job.assert_exact()


def test_a_failover_recorded_and_not_carried_out_is_finished_by_the_next_leader(
    job: CountingJob, zookeeper: ZooKeeper
) -> None:
    """The receiver of the assignment stands still until its sender is dead."""
    whole_in_both_cells(job)
    active, standby = job.replica(0, active=True), job.replica(0, active=False)
    tasks, before = with_it(job, active), epochs(job)
    some_more(job, 1_000)
    begun = now_ms()
    with held(job, standby):
        job.send(active, signal.SIGKILL)
        job.wait_for_event("decided_failover", begun)
        promoted = {(standby.copy, before[task] + 1) for task in tasks}

        def is_recorded() -> bool:
            records = [written(zookeeper, task).record for task in tasks]
            return {(each.active, each.epoch) for each in records} == promoted

        soon(is_recorded, "a record of the failover of each task")
        kill_leader(job, zookeeper)
    some_more(job, 2_000)
    job.assert_exact()
    whole_in_both_cells(job)
    assert {task: epochs(job)[task] for task in tasks} == {task: before[task] + 1 for task in tasks}
    assert [each.kind for each in job.events(begun)].count("decided_failover") == 1


def test_a_drain_goes_on_under_the_next_leader_and_its_command_hears_of_it(
    job: CountingJob, zookeeper: ZooKeeper
) -> None:
    """Copies move, and an active is handed over, while who ordered it dies."""
    whole_in_both_cells(job)
    host = str(job.replica(0, active=True).host)
    begun = now_ms()
    command = subprocess.Popen(
        [sys.executable, "-m", "appmaster.cli.main", "drain", host, "--cluster", NAME, "--json"],
        cwd=ROOT,
        env=job.cluster.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        job.wait_for_events(
            lambda each: each.kind in {"handover_started", "decided_move"}, begun, "a beginning"
        )
        kill_leader(job, zookeeper)
        some_more(job, 3_000)
        said, _ = command.communicate(timeout=PATIENCE_SECONDS)
        assert command.returncode == 0
        assert json.loads(said) == {"hosts": [host], "stays": []}
        job.wait_until_nothing_runs_on(host)
    finally:
        command.kill()
        command.communicate()
        job.ask("admit", host, "--cluster", NAME)
    assert not job.kinds(begun) & {"container_lost", "failover_started"}
    whole_in_both_cells(job)
    job.assert_exact()


def test_a_deployment_goes_on_under_the_next_leader(
    job: CountingJob, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """The deployment is another job's, in the same cluster; its submit waits until it is there."""
    whole_in_both_cells(job)
    other = counting_job(job.cluster, tmp_path / "job", "arrival", 1, **{"cluster.name": NAME})
    begun = now_ms()
    command = other.submit()
    try:
        job.wait_for_event("container_requested", begun, job=other.name)
        kill_leader(job, zookeeper)
        other.produce(0, pairs(0))
        said, _ = command.communicate(timeout=3 * PATIENCE_SECONDS)
        assert command.returncode == 0, said
        other.assert_exact()
        job.wait(lambda status: status.settled)
        job.assert_no_container_too_many()
        assert not job.kinds(begun) & {"container_lost", "failover_started"}
    finally:
        command.kill()
        command.communicate()
        other.close()
    some_more(job, 4_000)
    job.assert_exact()


def test_a_leader_that_stands_still_for_less_than_its_session_takes_nobody_for_lost(
    job: CountingJob, zookeeper: ZooKeeper
) -> None:
    """C8."""
    whole_in_both_cells(job)
    before, was, begun = epochs(job), leader(zookeeper), now_ms()
    process = master(job, was.container, CANDIDATE)
    process.send(signal.SIGSTOP)
    try:
        # Nothing can happen that would be waited for: this is how long it stands still.
        time.sleep(2)
    finally:
        process.send(signal.SIGCONT)
    some_more(job, 5_000)
    job.assert_exact()
    # Its next rounds are over when it has answered and told of what it heard in them.
    job.wait(is_whole(job))
    assert leader(zookeeper).candidate == was.candidate
    assert epochs(job) == before
    assert not job.kinds(begun) & {"container_lost", "failover_started", "leader_elected", "cell_lost"}
