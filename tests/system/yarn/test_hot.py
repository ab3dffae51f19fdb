"""Hot standbys on a real YARN with Spark: two inputs, a killed active, inputs that grow, and the next kill."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from demo.scenario import now_ms
from demo.standing import Status, what_is_missing
from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS
from tests.system.yarn.counting import CountingJob, submitted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(10 * PATIENCE_SECONDS)]

NAME = "hot"
ALSO = "hot-also"

#: A JVM that starts, and rehearses, on a machine that is busy.
SETTLE_SECONDS = 2 * PATIENCE_SECONDS


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingJob]:
    """Return the counting job on Spark: one processor of two tasks, and a standby."""
    settings = {
        "task.feed": "spark",
        "task.transform": "counting_job:unchanged",
        "job.container.count": "1",
        "task.inputs.may.grow": "true",
        "cluster-manager.container.memory.mb": "1024",
    }
    job = CountingJob(cluster, tmp_path_factory.mktemp(NAME) / "job", NAME, NAME, 2, [ALSO], **settings)
    with submitted(job):
        yield job


def is_ready(job: CountingJob, status: Status) -> bool:
    """Return whether every task has its standby, in sync, and it says what a promotion would wait for."""
    if what_is_missing(status, job.partitions, 2):
        return False
    standbys = [
        each
        for task in job.client.status()["tasks"]
        for each in task["replicas"]
        if each["copy"] != task["active"]
    ]
    return all(each["start_ms"] is not None for each in standbys)


def kill_the_active(job: CountingJob) -> None:
    """Kill it once its standby is ready, amid input, and see that the standby has taken over."""
    job.wait(lambda status: is_ready(job, status), "a standby that is ready", SETTLE_SECONDS)
    victim, standby = job.replica(0, active=True), job.replica(0, active=False)
    begun = now_ms()
    job.send(victim, signal.SIGKILL)
    job.wait_for_event("failover_finished", begun)
    assert job.replica(0, active=True).copy == standby.copy


def test_it_is_exact_over_kills_and_a_growth_of_its_inputs(job: CountingJob) -> None:
    with job.flow():
        kill_the_active(job)
    job.grow(job.partitions + 1)
    with job.flow():
        kill_the_active(job)
    job.wait(lambda status: is_ready(job, status), "a standby that is ready", SETTLE_SECONDS)
    assert not any(each["failures"] for task in job.client.status()["tasks"] for each in task["replicas"])
