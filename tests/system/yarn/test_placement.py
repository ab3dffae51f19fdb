"""Who follows what dies on a real YARN, down to a single host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.scenario import JOB, now_ms
from demo.standing import Status, Task
from embedded.cluster import LocalCluster
from tests.system.yarn.flights_job import FlightsJob, deployed


@pytest.fixture
def job(cluster: LocalCluster) -> Iterator[FlightsJob]:
    """Return the flights job: two processors of two tasks, each with a standby, on three hosts.

    In one cell: with two, each host that has a standby has an active, too.
    """
    settings = {"cluster-manager.container.request.timeout.ms": "1000", "appmaster.cells": "1"}
    with deployed(cluster, **settings) as job:
        yield job


def test_one_host_left_runs_every_active_and_takes_no_copy_of_them(job: FlightsJob) -> None:
    """Of three hosts one goes, the job is whole on two; a second goes, and comes back."""
    leader = job.status.leader
    assert leader is not None
    first, second = (host for host in job.cluster.hosts if host != leader.host)
    lost = now_ms()
    gone = {each.container for each in job.status.containers if each.host == first}
    with job.lost_host(first):
        with job.flow():
            assert job.scenario.wait_until_whole(without=gone) is not None
            assert {each.host for each in job.status.containers} == {leader.host, second}
        begun = now_ms()
        with job.flow():
            with job.lost_host(second):
                refused = job.wait_for_event("same_host_refused", begun)
                assert refused.host == leader.host
                job.wait(
                    lambda status: all(_active_on(each, leader.host) for each in status.tasks), "actives"
                )
                job.wait(_is_incomplete_for_want_of_hosts, "the reasons why it is incomplete")
                job.wait_for_events(lambda each: each.kind == "same_host_refused", begun, "refusals", least=2)
            assert job.scenario.wait_until_whole() is not None
        assert job.status.jobs[0].status == "deployed"
        assert len(job.ask("tasks", JOB)) == 4
        assert len(job.ask("containers", JOB)) == 4
        # What was asked for of the first may have expired before the second was lost.
        ended = [each for each in job.events(lost) if each.kind == "request_cancelled"]
        assert {first, second} <= {each.host for each in ended if (each.data or {})["outcome"] == "expired"}
        job.assert_no_container_too_many()
    assert "standfast_same_host_refused_total " in job.scrape()


def _is_incomplete_for_want_of_hosts(status: Status) -> bool:
    (job,) = status.jobs
    return (
        job.status == "incomplete"
        and all("copy" in each for each in job.reasons)
        and any("same-host" in each for each in job.reasons)
    )


def _active_on(each: Task, host: str) -> bool:
    active = each.active_replica
    return active is not None and active.is_active and active.host == host
