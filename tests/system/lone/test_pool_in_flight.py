"""What was under way when the leader died is finished by its successor, a real one.

The simulation kills the leader at each single step (tests/simulation/test_every_step.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path

from appmaster.effects import ASSIGNING, REQUESTED, WRITTEN
from demo.command import CLI, ROOT
from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from tests.held import HeldPoint, HoldPoints
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.pool_job import JobOnPool, pool_of
from tests.system.yarn.running import session
from tests.system.yarn.two_cells import leader, pairs

#: One process on each of three hosts.
NODES = {number: number for number in range(3)}


def test_what_a_leader_had_begun_is_finished_by_the_next(cluster: LocalCluster, tmp_path: Path) -> None:
    points = HoldPoints(tmp_path / "points")
    with (
        pool_of(cluster, tmp_path, NODES, points.python) as pool,
        closing(JobOnPool(pool, "in-flight", 2, **{"job.container.count": "1"})) as job,
    ):
        job.deploy()
        failover_that_is_recorded_and_not_carried_out(job, points)
        drain_of_which_no_container_has_heard(job, points)
        deployment_that_was_only_asked_for(job, points)


def kill_leader(job: JobOnPool, point: HeldPoint) -> None:
    """Kill the candidate that leads where it is held, let go of the point, and wait until another one leads."""
    begun = now_ms()
    with session(job.cluster, job.cluster_name) as zookeeper:
        was = leader(zookeeper)
    assert point.wait() == {was.pid}
    os.kill(was.pid, signal.SIGKILL)
    point.let_go()
    elected = job.wait_for_event("leader_elected", begun)
    assert (elected.data or {})["candidate"] != was.candidate


def some_more(job: JobOnPool, begin: int) -> None:
    """Give every task something to do."""
    for partition in range(job.partitions):
        job.produce(partition, pairs(partition, begin))


def failover_that_is_recorded_and_not_carried_out(job: JobOnPool, points: HoldPoints) -> None:
    status, before = job.wait_whole(), job.epochs
    active = job.replica(0, active=True)
    tasks = {
        each.partition
        for each in status.tasks
        if any(copy.container == active.container for copy in each.replicas)
    }
    with points.held(WRITTEN) as point:
        job.send(active, signal.SIGKILL)
        some_more(job, 1_000)
        kill_leader(job, point)
    some_more(job, 2_000)
    job.assert_exact()
    job.wait_whole()
    assert {task: job.epochs[task] for task in tasks} == {task: before[task] + 1 for task in tasks}


def drain_of_which_no_container_has_heard(job: JobOnPool, points: HoldPoints) -> None:
    """The leader dies when a step is recorded; the command hears of the end from the next one."""
    emptied, begun = str(job.replica(0, active=True).host), now_ms()
    with points.held(ASSIGNING) as point:
        command = subprocess.Popen(
            [*CLI, "drain", emptied, "--cluster", job.cluster_name, "--json"],
            cwd=ROOT,
            env=job.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            kill_leader(job, point)
            some_more(job, 3_000)
            said, _ = command.communicate(timeout=PATIENCE_SECONDS)
            assert command.returncode == 0
            assert json.loads(said) == {"hosts": [emptied], "stays": []}
            assert emptied not in {each.host for task in job.status.tasks for each in task.replicas}
        finally:
            point.let_go()
            command.kill()
            command.communicate()
            job.ask("admit", emptied)
    assert not job.kinds(begun) & {"container_lost", "failover_started"}, job.story(begun)
    job.assert_exact()


def deployment_that_was_only_asked_for(job: JobOnPool, points: HoldPoints) -> None:
    """It is another job's, in the same cluster; its submit waits until it is there."""
    job.wait_whole()
    settings = {"job.container.count": "1", "job.hotstandby.enabled": "false"}
    other, begun = JobOnPool(job.pool, "arrival", 1, **settings), now_ms()
    with points.held(REQUESTED) as point:
        command = other.submit()
        try:
            kill_leader(job, point)
            other.produce(0, pairs(0))
            said, _ = command.communicate(timeout=3 * PATIENCE_SECONDS)
            assert command.returncode == 0, said
            other.assert_exact()
            assert not job.kinds(begun) & {"container_lost", "failover_started"}, job.story(begun)
        finally:
            point.let_go()
            command.kill()
            command.communicate()
            other.close()
    some_more(job, 4_000)
    job.assert_exact()
