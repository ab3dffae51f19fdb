"""Who goes where on a real YARN that has little to offer, and who takes over when there is no standby to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from appmaster.api.client import ClusterClient
from demo.events import Event
from demo.scenario import JOB, now_ms
from demo.standing import Status, Task
from embedded.cluster import LocalCluster
from tests.system.yarn.flights_job import FlightsJob, deployed
from tests.system.yarn.running import keyring


@pytest.fixture(scope="module")
def job(cluster: LocalCluster) -> Iterator[FlightsJob]:
    """Return the flights job: two processors of two tasks, each with a standby, on three hosts.

    In one cell: with two, each host that has a standby has an active, too.
    """
    settings = {"cluster-manager.container.request.timeout.ms": "1000", "appmaster.cells": "1"}
    with deployed(cluster, **settings) as job:
        yield job


@pytest.fixture
def drain(job: FlightsJob) -> Iterator[Callable[[str | None], None]]:
    """Return what drains one host, and no other; in the end none is drained."""
    with ClusterClient(JOB, job.cluster.zookeeper_connect, keyring(job.cluster, JOB)) as client:

        def say(host: str | None) -> None:
            client.change("admit", hosts=sorted(job.cluster.hosts))
            if host is not None:
                client.change("drain", hosts=[host], reason="to see what becomes of a request")

        yield say
        say(None)


def copies(job: FlightsJob, partition: int) -> tuple[str, str]:
    """Return the containers of a task's active and of its standby."""
    active, standby = job.replica(partition, active=True), job.replica(partition, active=False)
    assert active.container is not None
    assert standby.container is not None
    return active.container, standby.container


def placing(job: FlightsJob) -> set[tuple[int, int, str | None]]:
    return {
        (each.partition, copy.copy, copy.container) for each in job.status.tasks for copy in each.replicas
    }


def is_given_back(event: Event) -> bool:
    is_end = event.kind in ("request_cancelled", "container_released")
    return is_end and (event.data or {})["outcome"] == "surplus"


@pytest.mark.parametrize("moment", ["container_requested", "request_granted"])
def test_a_grant_that_nobody_needs_any_more_goes_back(
    job: FlightsJob, drain: Callable[[str | None], None], moment: str
) -> None:
    """A standby is to leave its host, and may stay as soon as a container for it is asked for, or granted."""
    job.scenario.wait_until_whole()
    before, begun = placing(job), now_ms()
    standby = next(
        copy
        for each in job.status.tasks
        for copy in each.replicas
        if copy.copy != each.active
        and not any(
            other.host == copy.host and other.is_active for one in job.status.tasks for other in one.replicas
        )
    )
    drain(standby.host)
    job.wait_for_event(moment, begun)
    drain(None)
    job.wait(lambda status: all(len(each.in_sync) == 2 for each in status.tasks))
    job.wait_for_events(is_given_back, begun, "request cancelled or container released as surplus")
    job.assert_no_container_too_many()
    assert placing(job) == before, "nobody was moved"
    assert "failover_started" not in job.kinds(begun)


def count(job: FlightsJob, without: str) -> int:
    """Return how often the leader has counted a failover without a standby for a reason."""
    line = f'standfast_failovers_without_standby_total{{job="flights",reason="{without}"}} '
    found = [each.removeprefix(line) for each in job.scrape().splitlines() if each.startswith(line)]
    return round(float(found[0])) if found else 0


def test_active_and_standby_that_die_together_come_back_from_their_disks(job: FlightsJob) -> None:
    job.scenario.wait_until_whole()
    begun, counted = now_ms(), count(job, "no-other-copy-lives")
    with job.flow():
        active, standby = copies(job, 0)
        # Seen dead in the other order, the standby is promoted before it is missed, and then there is nobody.
        job.kill_together(standby, active)
        job.wait_for_events(
            lambda each: (
                each.kind == "failover_without_standby" and str(each.reason).startswith("no other copy lives")
            ),
            begun,
            "failover without another copy",
        )
    assert count(job, "no-other-copy-lives") == counted + 1


def held_in_the_standbys_place(job: FlightsJob) -> str:
    """Kill task 1's standby; return the container in its place, held so that it cannot say that it has caught up."""
    for _ in range(5):
        begun = now_ms()
        _, standby = copies(job, 1)
        job.send_to(standby, signal.SIGKILL)
        bound = job.wait_for_event("decided_bind", begun).container
        assert bound is not None
        job.send_to(bound, signal.SIGSTOP)
        mine = [each for task in job.status.tasks for each in task.replicas if each.container == bound]
        if mine and not any(each.in_sync for each in mine):
            return bound
        # Its state is small, and this process was not quick enough.
        job.send_to(bound, signal.SIGCONT)
        assert job.scenario.wait_until_whole() is not None
    pytest.fail("each new standby had caught up before it could be held")


def test_active_that_dies_while_its_standby_restores_is_followed_by_it_all_the_same(job: FlightsJob) -> None:
    job.scenario.wait_until_whole()
    counted = count(job, "restoring")
    with job.flow():
        restoring = held_in_the_standbys_place(job)
        try:
            active, _ = copies(job, 1)
            begun = now_ms()
            job.send_to(active, signal.SIGKILL)
            started = job.wait_for_event("failover_started", begun)
        finally:
            job.send_to(restoring, signal.SIGCONT)
        assert started.container == restoring
        without = job.wait_for_event("failover_without_standby", begun)
        assert (without.reason or "").startswith("restoring")
    assert count(job, "restoring") == counted + 1


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
        story = job.events(begun)
        # What was asked for of the first may have expired before the second was lost.
        ended = [each for each in job.events(lost) if each.kind == "request_cancelled"]
        assert {first, second} <= {each.host for each in ended if (each.data or {})["outcome"] == "expired"}
        assert_bounded([each for each in story if each.kind == "container_requested"])
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


def assert_bounded(asked: list[Event]) -> None:
    """Fail unless the requests for each place lie apart, and are few."""
    for place in {str((each.data or {})["slot"]) for each in asked}:
        times = [each.at_ms for each in asked if (each.data or {})["slot"] == place]
        assert len(times) <= 12, f"{place}: {times}"
        assert all(after - before >= 400 for before, after in pairwise(times)), f"{place}: {times}"
