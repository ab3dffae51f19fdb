"""A hot standby takes over on a real YARN, whatever dies, and nothing is lost or counted twice."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from demo.events import Event
from demo.scenario import JOB, STAGE, now_ms
from demo.standing import shared_hosts
from embedded.cluster import LocalCluster
from standby.model import TaskId
from standby.naming import state_path
from tests.integration.flights_job import FlightsJob, deployed


@pytest.fixture(scope="module")
def job(cluster: LocalCluster) -> Iterator[FlightsJob]:
    """Return the flights job: two processors of two tasks, each with a standby, on three hosts."""
    # However short the changelog, a copy that comes to a host without state asks its peers first.
    with deployed(cluster, **{"job.restore.peer.min.records": "1"}) as job:
        yield job


def kinds(events: list[Event]) -> list[str]:
    return [each.kind for each in events]


def restored_from(job: FlightsJob, container: str) -> dict[str, str]:
    """Return replica's task → where its state came from, as the container's log tells."""
    logs = [
        path.read_text(encoding="utf-8")
        for host in job.cluster.hosts
        for path in (job.cluster.host_directory(host) / "logs").glob(f"*/{container}/*.log")
    ]
    assert logs, f"{container} has written no log"
    return dict(re.findall(r"flights/main\.(\d+): state from (\w+) at offset", "".join(logs)))


def forget_left_over_state(job: FlightsJob) -> None:
    """Remove what replicas left on hosts that they have gone from: a new one there would begin with it."""
    for task in job.status.tasks:
        here = {each.host for each in task.replicas}
        for host in set(job.cluster.hosts) - here:
            path = state_path(JOB, host, TaskId(JOB, STAGE, task.partition), job.run_id)
            shutil.rmtree(job.cluster.directory / "state" / path, ignore_errors=True)


def epochs(job: FlightsJob) -> dict[int, int]:
    return {each.partition: each.epoch for each in job.status.tasks}


def test_every_copy_is_on_a_host_of_its_own_and_the_input_is_counted_exactly(job: FlightsJob) -> None:
    status = job.status
    assert shared_hosts(status) == ()
    assert [len(each.replicas) for each in status.tasks] == [2, 2, 2, 2]
    hosts = Counter(each.host for each in status.containers)
    assert max(hosts.values()) <= 2, "four containers spread over the hosts"
    with job.flow(rows=4_000, rate=2_000):
        pass


def test_killed_active_is_replaced_in_place_and_comes_back_as_a_standby(job: FlightsJob) -> None:
    before, begun = epochs(job), now_ms()
    standby = job.replica(0, active=False)
    with job.flow():
        job.send_alone(job.replica(0, active=True), signal.SIGKILL)
        started = job.wait_for_event("failover_started", begun)
        assert started.container == standby.container, "promoted where it was, nothing restarted"
        assert started.reason == "process-ended", "by the broken stream, not by YARN's word"
        job.wait_for_event("failover_finished", begun)
    assert job.replica(0, active=True).container == standby.container
    after = epochs(job)
    assert (after[0], after[2]) == (before[0] + 1, before[2] + 1)
    assert (after[1], after[3]) == (before[1], before[3]), "tasks of the other processor are left alone"
    assert "failover_without_standby" not in kinds(job.events(begun))
    metrics = job.scrape()
    lost = 'standfast_container_failures_total{job="flights",reason="process-ended",role="active"} 1.0'
    assert lost in metrics
    assert 'standfast_failovers_total{job="flights",policy="promote"} 1.0' in metrics
    assert 'standfast_failover_seconds_count{phase="fenced"} 2.0' in metrics, "one for each task"


def test_killed_standby_is_created_again_and_no_active_is_touched(job: FlightsJob) -> None:
    before, begun = epochs(job), now_ms()
    standby = job.replica(1, active=False)
    with job.flow(rows=8_000):
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
    assert epochs(job) == before
    assert "failover_started" not in kinds(job.events(begun))
    assert job.replica(1, active=False).host == standby.host, "its state lies there"


def test_silent_host_is_noticed_by_its_silence_and_replaced_elsewhere(job: FlightsJob) -> None:
    job.scenario.spare_master()  # the failovers before may have brought all actives to its host
    begun = now_ms()
    before = {each.container for each in job.status.containers}
    forget_left_over_state(job)
    with job.flow(rows=15_000):
        failover, host = job.scenario.lose_host()
        assert failover.is_restored
        new = {each.container for each in job.status.containers} - before
        assert new, "the lost copies are on another host"
        sources = [source for each in new for source in restored_from(job, each).values()]
        assert len(sources) == 2 * len(new), "each new container holds two replicas"
        assert set(sources) <= {"active", "standby"}, "fetched from a peer, on real YARN as elsewhere"
    lost = [each for each in job.events(begun) if each.kind == "container_lost"]
    assert lost
    assert all((each.reason or "").startswith("silent") for each in lost)
    assert all(each.host != host for each in job.status.containers)
    job.cluster.start_host(host)


def test_promoted_standby_that_dies_at_once_is_replaced_too(job: FlightsJob) -> None:
    begun = now_ms()
    standby = job.replica(1, active=False)
    with job.flow():
        job.send(job.replica(1, active=True), signal.SIGKILL)
        job.wait_for_event("decided_failover", begun)
        job.send(standby, signal.SIGKILL)
        job.wait_for_event("failover_without_standby", begun)


def test_zombie_writes_nothing_steps_down_and_serves_as_a_standby_again(job: FlightsJob) -> None:
    begun = now_ms()
    zombie = job.replica(0, active=True)
    with job.flow():
        job.send(zombie, signal.SIGSTOP)
        try:
            # Not until the first commit: on a busy machine its place would be given to another meanwhile.
            job.wait_for_event("replica_active", begun)
        finally:
            job.send(zombie, signal.SIGCONT)
        job.wait(
            lambda status: any(
                each.container == zombie.container and each.role == "standby" and each.in_sync
                for task in status.tasks
                for each in task.replicas
            ),
            "the zombie as a standby in sync",
        )
    assert "container_released" not in kinds(job.events(begun)), "the same process, not a new one"


def test_leader_killed_is_followed_by_a_new_epoch_and_tasks_never_pause(job: FlightsJob) -> None:
    leader = job.status.leader
    assert leader is not None
    before, begun = epochs(job), now_ms()
    with job.flow(rows=8_000):
        elected = [each for each in job.events() if each.kind == "leader_elected"][-1]
        os.kill(int(str((elected.data or {})["pid"])), signal.SIGKILL)
        job.wait_for_event("leader_elected", begun)
        job.wait(lambda status: status.leader is not None and status.leader.epoch > leader.epoch)
    assert epochs(job) == before, "no task changed hands"
    assert "failover_started" not in kinds(job.events(begun))


def test_commands_tell_what_runs_where(job: FlightsJob) -> None:
    assert job.scenario.wait_until_whole() is not None
    assert job.ask("status", "flights")["jobs"][0]["status"] == "deployed"
    assert len(job.ask("tasks", "flights")) == 4
    assert len(job.ask("containers", "flights")) == 4
    assert "failover started" in job.standfast("events", "flights")
    assert "leading under epoch" in job.standfast("logs", "flights")
    metrics = job.scrape()
    # Counted since the present leader's start, which came after most failures of this module.
    assert 'standfast_in_sync_replicas{job="flights",partition="0",stage="main"} 2.0' in metrics
    assert "standfast_is_leader 1.0" in metrics
    assert 'standfast_replica_lag_records{copy="0"' in metrics
    refused = job.standfast("submit", "examples/flights/flights.yaml", status=2)
    assert "runs already" in refused
    assert "no credentials of cluster nothing" in job.standfast("status", "nothing", status=2)


def test_killed_job_goes_on_where_it_was_when_it_is_submitted_again(job: FlightsJob) -> None:
    run, before = job.run_id, epochs(job)
    job.standfast("kill", "flights")
    assert job.cluster.container_processes() == []
    job.scenario.submit()
    assert job.run_id == run
    assert all(after > before[task] for task, after in epochs(job).items())
    with job.flow(rows=4_000, rate=2_000):
        pass
