"""A task with two standbys on three hosts loses all of its copies, one after the other, before any is back."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from demo.scenario import now_ms
from demo.standing import Status, what_is_missing
from embedded.cluster import LocalCluster
from standby.shared.probes import REGISTERING
from tests.held import HoldPoints
from tests.system.yarn.counting import CountingJob, some, submitted


@pytest.fixture(scope="module")
def job(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory, points: HoldPoints
) -> Iterator[CountingJob]:
    """Return a job of one task, and as many copies of it as there are hosts."""
    settings = {
        "job.hotstandby.replicationcount": "2",
        "cluster-manager.container.retry.count": "-1",
        "job.python": str(points.python),
    }
    job = CountingJob(cluster, tmp_path_factory.mktemp("two") / "job", "thrice", "thrice", 1, **settings)
    with submitted(job):
        yield job


def is_whole(status: Status) -> bool:
    return not what_is_missing(status, 1, 3)


def test_copies_that_die_one_after_the_other_are_all_back(job: CountingJob, points: HoldPoints) -> None:
    """Each of the others is promoted before it dies."""
    (task,) = job.wait(is_whole, "whole").tasks
    copies = sorted(task.replicas, key=lambda each: each.copy != task.active)
    begun = now_ms()
    with points.held(REGISTERING):
        for number, victim in enumerate(copies):
            job.produce(0, some(50, 7, 50 * number))
            job.send(victim, signal.SIGKILL)
            job.wait_for_event("container_lost", begun, container=victim.container)
    job.produce(0, some(50, 7, 150))
    (after,) = job.wait(is_whole, "whole again").tasks
    job.assert_exact()
    assert {each.host for each in after.replicas} == set(job.cluster.hosts)
    assert after.epoch > task.epoch
    lost = {each.container for each in job.events(begun) if each.kind == "container_lost"}
    assert lost == {each.container for each in copies}
    job.wait_for_event("failover_without_standby", begun)
