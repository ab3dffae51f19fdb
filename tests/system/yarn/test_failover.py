"""What else can be lost on a real YARN than in test_flights.py, and what the commands tell of it."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator

import pytest

from demo.events import Event
from demo.scenario import JOB, STAGE, now_ms
from embedded.cluster import LocalCluster
from standby.model import TaskId
from standby.naming import state_path
from tests.system.yarn.flights_job import FlightsJob, deployed
from tests.system.yarn.running import NOTICES_SILENCE


@pytest.fixture(scope="module")
def job(cluster: LocalCluster) -> Iterator[FlightsJob]:
    """Return the flights job: two processors of two tasks, each with a standby, on three hosts."""
    # However short the changelog, a copy that comes to a host without state asks its peers first.
    with deployed(cluster, **NOTICES_SILENCE, **{"job.restore.peer.min.records": "1"}) as job:
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


def test_killed_standby_is_created_again_and_no_active_is_touched(job: FlightsJob) -> None:
    before, begun = epochs(job), now_ms()
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
    assert epochs(job) == before
    assert "failover_started" not in kinds(job.events(begun))
    assert job.replica(1, active=False).host == standby.host, "its state lies there"


def test_silent_host_is_noticed_by_its_silence_and_replaced_elsewhere(job: FlightsJob) -> None:
    job.scenario.spare_master()  # the failovers before may have brought all actives to its host
    begun = now_ms()
    before = {each.container for each in job.status.containers}
    forget_left_over_state(job)
    with job.flow():
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


def test_commands_tell_what_runs_where(job: FlightsJob) -> None:
    assert job.scenario.wait_until_whole() is not None
    assert job.ask("status", "flights")["jobs"][0]["status"] == "deployed"
    assert len(job.ask("tasks", "flights")) == 4
    assert len(job.ask("containers", "flights")) == 4
    assert "failover started" in job.standfast("events", "flights")
    assert "leading under epoch" in job.standfast("logs", "flights", "--lines", "100000")
    metrics = job.scrape()
    assert 'standfast_in_sync_replicas{job="flights",partition="0",stage="main"} 2.0' in metrics
    assert "standfast_is_leader 1.0" in metrics
    assert 'standfast_replica_lag_records{copy="0"' in metrics
    refused = job.standfast("submit", "examples/flights/flights.yaml", status=2)
    assert "runs already" in refused
    assert "no credentials of cluster nothing" in job.standfast("status", "nothing", status=2)
