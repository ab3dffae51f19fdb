"""Who follows what dies on a real YARN: with a standby, without one, and on a single host."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from demo.scenario import JOB, now_ms
from demo.standing import Status, Task
from embedded.cluster import LocalCluster
from tests.system.yarn.flights_job import FlightsJob, deployed


@pytest.fixture(scope="module")
def job(cluster: LocalCluster) -> Iterator[FlightsJob]:
    """Return the flights job: two processors of two tasks, each with a standby, on three hosts.

    In one cell: with two, each host that has a standby has an active, too.
    """
    settings = {"cluster-manager.container.request.timeout.ms": "1000", "appmaster.cells": "1"}
    with deployed(cluster, **settings) as job:
        yield job


def copies(job: FlightsJob, partition: int) -> tuple[str, str]:
    """Return the containers of a task's active and of its standby."""
    active, standby = job.replica(partition, active=True), job.replica(partition, active=False)
    assert active.container is not None
    assert standby.container is not None
    return active.container, standby.container


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


def test_killed_standby_is_created_again_and_no_active_is_touched(job: FlightsJob) -> None:
    job.scenario.wait_until_whole()
    before, begun = job.epochs, now_ms()
    standby = job.replica(1, active=False)
    with job.flow():
        job.send(standby, signal.SIGKILL)
        lost = job.wait_for_event("container_lost", begun, container=standby.container)
        assert (lost.data or {})["role"] == "standby"
        job.wait(
            lambda status: any(
                each.copy == standby.copy and each.container not in (None, standby.container) and each.in_sync
                for task in status.tasks
                if task.partition == 1
                for each in task.replicas
            ),
            "a new standby in sync",
        )
    assert job.epochs == before
    assert "failover_started" not in job.kinds(begun)


def test_promoted_standby_that_dies_at_once_is_replaced_too_and_the_commands_tell_of_it(
    job: FlightsJob,
) -> None:
    job.scenario.wait_until_whole()
    begun = now_ms()
    standby = job.replica(1, active=False)
    with job.flow():
        job.send(job.replica(1, active=True), signal.SIGKILL)
        job.wait_for_event("decided_failover", begun)
        job.send(standby, signal.SIGKILL)
        job.wait_for_event("failover_without_standby", begun)
    assert job.ask("status", JOB)["jobs"][0]["status"] == "deployed"
    assert len(job.ask("tasks", JOB)) == 4
    assert len(job.ask("containers", JOB)) == 4
    assert "failover started" in job.standfast("events", JOB)
    assert "leading under epoch" in job.standfast("logs", JOB, "--lines", "100000")
    metrics = job.scrape()
    assert 'standfast_in_sync_replicas{job="flights",partition="0",stage="main"} 2.0' in metrics
    assert "standfast_is_leader 1.0" in metrics
    assert 'standfast_replica_lag_records{copy="0"' in metrics
    assert "runs already" in job.standfast("submit", "examples/flights/flights.yaml", status=2)
    assert "no credentials of cluster nothing" in job.standfast("status", "nothing", status=2)


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
