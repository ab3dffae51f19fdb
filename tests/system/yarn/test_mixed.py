"""Containers that hold actives and standbys side by side: evenly spread, and so again after one is lost."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from demo.scenario import JOB, Shape, now_ms
from demo.standing import Status, is_spread
from embedded.cluster import LocalCluster
from tests.system.yarn.flights_job import FlightsJob, deployed

TASKS = 6


@pytest.fixture
def job(cluster: LocalCluster) -> Iterator[FlightsJob]:
    """Return the flights job: six tasks with a standby each in three containers."""
    with deployed(
        cluster,
        Shape(TASKS, processors=3),
        **{
            "job.hotstandby.mixed": "true",
            "appmaster.cells": "1",
            "job.locality.rebalance": "auto",
        },
    ) as job:
        yield job


def actives(status: Status) -> Counter[str | None]:
    """Return container → tasks that are active there."""
    return Counter(each.active_replica.container for each in status.tasks if each.active_replica is not None)


def copies(status: Status) -> Counter[str | None]:
    """Return container → copies there."""
    return Counter(copy.container for each in status.tasks for copy in each.replicas)


def is_even(status: Status) -> bool:
    return sorted(actives(status).values()) == [2, 2, 2] and sorted(copies(status).values()) == [4, 4, 4]


def test_actives_of_a_lost_container_spread_over_the_holders_of_their_standbys(job: FlightsJob) -> None:
    job.process()
    status = job.wait(is_even, "two actives and two standbys in each of three containers")
    assert len({each.host for each in status.containers}) == 3
    begun = now_ms()
    victim = next(iter(actives(status)))
    assert victim is not None
    lost = {
        each.partition
        for each in status.tasks
        if each.active_replica and each.active_replica.container == victim
    }
    holders = {
        each.partition: {copy.container for copy in each.replicas if copy.container != victim}
        for each in status.tasks
    }
    epochs = {each.partition: each.epoch for each in status.tasks}
    with job.flow():
        job.send_to(victim, signal.SIGKILL)
        started = job.wait_for_events(
            lambda each: each.kind == "failover_started", begun, "failovers", len(lost)
        )
        taken = {int(task): each.container for each in started for task in (each.data or {})["tasks"]}
        assert taken.keys() == lost
        assert all(taken[task] in holders[task] for task in taken)
        assert {each.partition: each.epoch for each in job.status.tasks if each.partition not in lost} == {
            task: epoch for task, epoch in epochs.items() if task not in lost
        }
    assert "failover_without_standby" not in job.kinds(begun)
    job.wait(lambda status: is_even(status) and is_spread(status), "evened out")
    # By automatic hand-overs, which do not count as failovers.
    moves = [
        each
        for each in job.events(begun)
        if each.kind == "handover_started" and (each.reason or "").startswith("rebalance: ")
    ]
    assert moves
    assert len([each for each in job.events(begun) if each.kind == "failover_started"]) == len(lost)
    said = job.standfast("status", JOB)
    assert "active processors: " in said
    assert "not even" not in said
