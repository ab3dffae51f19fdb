"""An active that gets no further, or does not reach Kafka, is replaced by a real leader, and goes on as a standby."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from demo.scenario import now_ms
from demo.standing import Replica, Task, what_is_missing
from embedded.cluster import LocalCluster
from standby.kernel.probes import DRAINED
from tests.far_broker import FarBroker
from tests.held import HoldPoints
from tests.system.yarn.counting import CountingJob, some, submitted

RECORDS = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarBroker]:
    with FarBroker(tmp_path_factory.mktemp("far")) as broker:
        yield broker


@pytest.fixture(scope="module")
def job(
    cluster: LocalCluster, broker: FarBroker, tmp_path_factory: pytest.TempPathFactory, points: HoldPoints
) -> Iterator[CountingJob]:
    """Return a job of one task and three copies, whose processes come to Kafka by a wire."""
    settings = {
        "job.hotstandby.replicationcount": "2",
        "job.transaction.timeout.ms": "5000",
        "task.progress.timeout.ms": "5000",
        "job.python": str(points.python),
        "kafka.bootstrap.servers": broker.far,
    }
    directory = tmp_path_factory.mktemp("stuck") / "job"
    job = CountingJob(cluster, directory, "stuck", "stuck", 1, kafka=broker.far, **settings)
    with submitted(job):
        yield job


def whole(job: CountingJob) -> tuple[Task, Replica]:
    """Return the task with all its copies in sync, and its active."""
    (task,) = job.wait(lambda status: not what_is_missing(status, 1, 3), "whole").tasks
    assert task.active_replica is not None
    return task, task.active_replica


def produce(job: CountingJob) -> None:
    job.produce(0, some(RECORDS, 7, len(job.taken[0])))


def test_a_promotion_that_hangs_is_given_to_the_third_copy(job: CountingJob, points: HoldPoints) -> None:
    """It goes on once another one is active, and changes nothing."""
    task, active = whole(job)
    begun = now_ms()
    with points.held(DRAINED) as point:
        job.send(active, signal.SIGKILL)
        produce(job)
        (hung,) = point.wait()
        point.let_others_pass()
        first, second = job.wait_for_events(
            lambda event: event.kind == "decided_failover", begun, "decisions", least=2
        )
        hangs, third = (
            next(each for each in task.replicas if each.copy == decision.copy) for decision in (first, second)
        )
        assert hangs.pid == hung
        assert len({active.copy, hangs.copy, third.copy}) == 3
        produce(job)
        job.assert_exact()
    produce(job)
    job.assert_exact()
    after, now_active = whole(job)
    assert now_active.container == third.container
    assert hangs.container in {each.container for each in after.replicas}, "it is a standby, and was not lost"
    assert after.epoch == task.epoch + 2


def test_an_active_that_is_cut_off_from_kafka_is_replaced_and_comes_back_as_a_standby(
    job: CountingJob, broker: FarBroker
) -> None:
    task, active = whole(job)
    begun = now_ms()
    assert active.pid is not None
    broker.wire.cut_off(active.pid)
    try:
        produce(job)
        job.wait_for_event("failover_finished", begun)
        job.assert_exact()
    finally:
        broker.wire.mend()
    produce(job)
    job.assert_exact()
    after, now_active = whole(job)
    assert now_active.container != active.container
    assert active.container in {each.container for each in after.replicas}
    assert after.epoch == task.epoch + 1
