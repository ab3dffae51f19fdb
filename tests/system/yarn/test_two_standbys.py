"""A task with two standbys on three hosts: its copies die one after the other, in every order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import permutations

import pytest

from demo.scenario import now_ms
from demo.standing import what_is_missing
from embedded.cluster import LocalCluster
from tests.system.yarn.counting import CountingJob, some, submitted


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingJob]:
    """Return a job of one task, and as many copies of it as there are hosts."""
    settings = {"job.hotstandby.replicationcount": "2", "cluster-manager.container.retry.count": "-1"}
    job = CountingJob(cluster, tmp_path_factory.mktemp("two") / "job", "thrice", "thrice", 1, **settings)
    with submitted(job):
        yield job


@pytest.mark.parametrize("order", list(permutations(("active", "best", "other"))), ids="-".join)
def test_copies_that_die_one_after_the_other_are_all_back(job: CountingJob, order: tuple[str, ...]) -> None:
    """``best`` is the standby that is promoted when the active dies first."""
    (task,) = job.wait(lambda status: not what_is_missing(status, 1, 3), "whole").tasks
    standbys = (each for each in task.replicas if each.copy != task.active)
    copies = dict(zip(("active", "best", "other"), (task.active_replica, *standbys), strict=True))
    begun, taken = now_ms(), len(job.taken[0])
    for number, name in enumerate(order):
        job.produce(0, some(50, 7, taken + 50 * number))
        victim = copies[name]
        assert victim is not None
        job.send(victim, signal.SIGKILL)
        job.wait_for_event("container_lost", begun, container=victim.container)
    job.produce(0, some(50, 7, taken + 150))
    (after,) = job.wait(lambda status: not what_is_missing(status, 1, 3), "whole again").tasks
    job.assert_exact()
    assert {each.host for each in after.replicas} == set(job.cluster.hosts)
    assert after.epoch > task.epoch
    events = job.events(begun)
    lost = [each for each in events if each.kind == "container_lost"]
    assert {each.container for each in lost} == {
        each.container for each in copies.values() if each is not None
    }
    came_back = {each.kind for each in events if each.at_ms < lost[-1].at_ms} & {"container_registered"}
    # With two cores that others use the first may be back before the last has gone; else nobody was there.
    assert came_back or "failover_without_standby" in job.kinds(begun)
