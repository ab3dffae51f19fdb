"""What was under way when the leader died is finished by its successor, on a real YARN.

The simulation kills the leader at each single step (tests/simulation/test_every_step.py).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.effects import ASSIGNING, REQUESTED, WRITTEN
from demo.command import ROOT
from demo.scenario import now_ms
from demo.standing import Replica
from embedded.cluster import LocalCluster
from tests.held import HeldPoint, HoldPoints
from tests.patience import PATIENCE_SECONDS
from tests.system.yarn.counting import CountingJob, submitted
from tests.system.yarn.running import session
from tests.system.yarn.two_cells import (
    CANDIDATE,
    leader,
    master,
    pairs,
    whole_in_both_cells,
)

NAME, TASKS = "inflight", 4


@pytest.fixture(scope="module")
def job(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory, points: HoldPoints
) -> Iterator[CountingJob]:
    """Return the counting job: two processors of two tasks, a standby each, in two cells."""
    settings = {"appmaster.cells": "2", "job.container.count": "2", "job.python": str(points.python)}
    directory = tmp_path_factory.mktemp(NAME) / "job"
    job = CountingJob(cluster, directory, NAME, f"{NAME}-in", TASKS, **settings)
    with submitted(job):
        yield job


@pytest.fixture(scope="module")
def zookeeper(cluster: LocalCluster) -> Iterator[ZooKeeper]:
    """Return a session that sees the records, the cells, and who leads."""
    with session(cluster, NAME) as opened:
        yield opened


def with_it(job: CountingJob, replica: Replica) -> list[int]:
    """Return the tasks that have a copy in the container of ``replica``."""
    return [
        task.partition
        for task in job.status.tasks
        if any(each.container == replica.container for each in task.replicas)
    ]


def kill_leader(job: CountingJob, zookeeper: ZooKeeper, point: HeldPoint) -> None:
    """Kill the candidate that leads where it is held, let go of the point, and wait until another one leads."""
    was, begun = leader(zookeeper), now_ms()
    assert point.wait() == {was.pid}
    master(job, was.container, CANDIDATE).send(signal.SIGKILL)
    point.let_go()
    elected = job.wait_for_event("leader_elected", begun)
    assert (elected.data or {})["candidate"] != was.candidate


def some_more(job: CountingJob, begin: int) -> None:
    """Give every task something to do."""
    for partition in range(TASKS):
        job.produce(partition, pairs(partition, begin))


def test_a_failover_recorded_and_not_carried_out_is_finished_by_the_next_leader(
    job: CountingJob, zookeeper: ZooKeeper, points: HoldPoints
) -> None:
    whole_in_both_cells(job)
    active, before = job.replica(0, active=True), job.epochs
    tasks = with_it(job, active)
    with points.held(WRITTEN) as point:
        job.send(active, signal.SIGKILL)
        some_more(job, 1_000)
        kill_leader(job, zookeeper, point)
    some_more(job, 2_000)
    job.assert_exact()
    whole_in_both_cells(job)
    assert {task: job.epochs[task] for task in tasks} == {task: before[task] + 1 for task in tasks}


def test_a_drain_goes_on_under_the_next_leader_and_its_command_hears_of_it(
    job: CountingJob, zookeeper: ZooKeeper, points: HoldPoints
) -> None:
    """The leader dies when a step is recorded and nobody is told of it."""
    whole_in_both_cells(job)
    host = str(job.replica(0, active=True).host)
    begun = now_ms()
    with points.held(ASSIGNING) as point:
        command = subprocess.Popen(
            [sys.executable, "-m", "appmaster.cli.main", "drain", host, "--cluster", NAME, "--json"],
            cwd=ROOT,
            env=job.cluster.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            kill_leader(job, zookeeper, point)
            some_more(job, 3_000)
            said, _ = command.communicate(timeout=PATIENCE_SECONDS)
            assert command.returncode == 0
            assert json.loads(said) == {"hosts": [host], "stays": []}
            job.wait_until_nothing_runs_on(host)
        finally:
            point.let_go()
            command.kill()
            command.communicate()
            job.ask("admit", host, "--cluster", NAME)
    assert not job.kinds(begun) & {"container_lost", "failover_started"}
    whole_in_both_cells(job)
    job.assert_exact()


def test_a_deployment_goes_on_under_the_next_leader(
    job: CountingJob, zookeeper: ZooKeeper, points: HoldPoints, tmp_path: Path
) -> None:
    """The deployment is another job's, in the same cluster; its submit waits until it is there."""
    whole_in_both_cells(job)
    settings = {"cluster.name": NAME, "appmaster.cells": "2", "job.python": str(points.python)}
    other = CountingJob(job.cluster, tmp_path / "job", "arrival", "arrival-in", 1, **settings)
    begun = now_ms()
    with points.held(REQUESTED) as point:
        command = other.submit()
        try:
            kill_leader(job, zookeeper, point)
            other.produce(0, pairs(0))
            said, _ = command.communicate(timeout=3 * PATIENCE_SECONDS)
            assert command.returncode == 0, said
            other.assert_exact()
            job.wait(lambda status: status.settled)
            job.assert_no_container_too_many()
            assert not job.kinds(begun) & {"container_lost", "failover_started"}
        finally:
            point.let_go()
            command.kill()
            command.communicate()
            other.close()
    some_more(job, 4_000)
    job.assert_exact()
