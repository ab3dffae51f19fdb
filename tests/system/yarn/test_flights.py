"""One deployment of the flights job on a real YARN, from its submit to its end, with a failure of each kind on the way.

After each of them all input is processed, every replica is in sync on its own host, and outputs and state are exact.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from demo.scenario import JOB, STAGE, now_ms
from demo.standing import shared_hosts
from embedded.cluster import LocalCluster
from embedded.machine.ports import free_ports
from standby.shared.model import TaskId
from standby.shared.naming import state_path
from tests.patience import soon
from tests.prometheus import Prometheus
from tests.system.yarn.flights_job import FlightsJob, deployed
from tests.system.yarn.running import NOTICES_SILENCE, session
from tests.system.yarn.scraped import all_are_found, scraping, until
from tests.system.yarn.two_cells import AM, has_rejoined, leader, master


def test_flights_are_counted_exactly_whatever_fails(cluster: LocalCluster, tmp_path: Path) -> None:
    (http_port,) = free_ports(1)
    # However short the changelog, a copy that comes to a host without state asks its peers first.
    settings = {**NOTICES_SILENCE, "job.restore.peer.min.records": "1", "yarn.am.http.port": str(http_port)}
    with deployed(cluster, **settings) as job, scraping(cluster.hosts, http_port, tmp_path) as prometheus:
        every_copy_is_on_a_host_of_its_own(job)
        all_are_found(prometheus, JOB)
        killed_active_is_replaced_in_place(job, prometheus)
        zombie_steps_down_and_serves_as_a_standby(job)
        silent_host_is_made_up_for_elsewhere(job)
        next_candidate_leads_and_counts_anew(job, prometheus)
        process_is_started_again_on_its_own_host_with_policy_restart(job)
        lost_am_takes_its_cell_and_the_job_goes_on(job)
        killed_job_goes_on_where_it_was(job)


def every_copy_is_on_a_host_of_its_own(job: FlightsJob) -> None:
    status = job.status
    assert shared_hosts(status) == ()
    assert [len(each.replicas) for each in status.tasks] == [2, 2, 2, 2]
    job.process()


def killed_active_is_replaced_in_place(job: FlightsJob, prometheus: Prometheus) -> None:
    before, begun = job.epochs, now_ms()
    standby = job.replica(0, active=False)
    with job.flow():
        job.send_alone(job.replica(0, active=True), signal.SIGKILL)
        started = job.wait_for_event("failover_started", begun)
        assert started.container == standby.container, "promoted where it was, nothing restarted"
        assert started.reason == "process-ended", "by the broken stream, not by YARN's word"
        job.wait_for_event("failover_finished", begun)
    assert job.replica(0, active=True).container == standby.container
    after = job.epochs
    assert (after[0], after[2]) == (before[0] + 1, before[2] + 1)
    assert (after[1], after[3]) == (before[1], before[3]), "tasks of the other processor are left alone"
    of_job = f'job="{JOB}"'
    until(
        prometheus,
        f"sum by (role) (standfast_container_failures_total{{{of_job}}}) > 0",
        lambda found: found == {"active": 1},
    )
    until(prometheus, f"sum(standfast_failovers_total{{{of_job}}})", lambda found: found == {"": 1})
    # The zero that was there before makes the first failover an increase.
    until(prometheus, "sum(increase(standfast_failovers_total[5m])) > 0", lambda found: len(found) == 1)
    # The container that came for the lost one is found, on its new port.
    all_are_found(prometheus, JOB)


def zombie_steps_down_and_serves_as_a_standby(job: FlightsJob) -> None:
    begun, zombie = now_ms(), job.replica(0, active=True)
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


def silent_host_is_made_up_for_elsewhere(job: FlightsJob) -> None:
    job.scenario.spare_master()  # the failovers before may have brought all actives to its host
    begun, before = now_ms(), {each.container for each in job.status.containers}
    held = {(str(task.partition), each.host) for task in job.status.tasks for each in task.replicas}
    forget_left_over_state(job)
    with job.flow():
        failover, host = job.scenario.lose_host()
        assert failover.is_restored
        new = [each for each in job.status.containers if each.container not in before]
        assert new, "the lost copies are on another host"
        for each in new:
            sources = job.sources_of_state(each.container)
            assert len(sources) == 2, "each new container holds two replicas"
            for task, source in sources:
                # The host may have taken a cell along: what that had elsewhere comes back where it was.
                is_elsewhere = (task, each.host) not in held
                assert source in ("active", "standby") or (source == "local" and not is_elsewhere), sources
    lost = [each for each in job.events(begun) if each.kind == "container_lost" and each.host == host]
    assert lost
    reasons = {each.reason or "" for each in lost}
    assert all(each.startswith("silent") for each in reasons), reasons
    assert all(each.host != host for each in job.status.containers)
    job.cluster.start_host(host)
    job.wait_until_settled()


def forget_left_over_state(job: FlightsJob) -> None:
    """Remove what replicas left on hosts that they have gone from: a new one there would begin with it."""
    for task in job.status.tasks:
        for host in set(job.cluster.hosts) - {each.host for each in task.replicas}:
            path = state_path(JOB, host, TaskId(JOB, STAGE, task.partition), job.run_id)
            shutil.rmtree(job.cluster.state_directory / path, ignore_errors=True)


def next_candidate_leads_and_counts_anew(job: FlightsJob, prometheus: Prometheus) -> None:
    with session(job.cluster, JOB) as zookeeper:
        was, begun, before = leader(zookeeper), now_ms(), job.status.leader
        assert before is not None
        with job.flow():
            os.kill(was.pid, signal.SIGKILL)
            elected = job.wait_for_event("leader_elected", begun)
            assert (elected.data or {})["candidate"] != was.candidate
            job.wait(lambda status: status.leader is not None and status.leader.epoch > before.epoch)
        until(
            prometheus,
            "max(standfast_controller_epoch)",
            lambda found: found.get("", 0) >= before.epoch + 1,
        )
        until(prometheus, f'sum(standfast_failovers_total{{job="{JOB}"}})', lambda found: found == {"": 0})
        # What follows takes the leader away again, which only a candidate can notice that stands.
        soon(lambda: has_rejoined(zookeeper, was), "the candidate that was killed, as another one")


def process_is_started_again_on_its_own_host_with_policy_restart(job: FlightsJob) -> None:
    job.update(**{"job.hotstandby.failover": "restart"})
    job.wait_until_settled()
    begun, active = now_ms(), job.replica(0, active=True)
    standby = job.replica(0, active=False)
    with job.flow():
        job.send(active, signal.SIGKILL)
        asked = job.wait_for_event("container_requested", begun)
        assert (asked.host, (asked.data or {})["kind"]) == (active.host, "preferred")
        bound = job.wait_for_event("decided_bind", begun)
        assert (bound.data or {})["in_place"] is True
    again = job.replica(0, active=True)
    assert (again.copy, again.host) == (active.copy, active.host)
    assert again.container != active.container
    assert job.replica(0, active=False).container == standby.container, (
        "its standby stays what and where it was"
    )


def lost_am_takes_its_cell_and_the_job_goes_on(job: FlightsJob) -> None:
    """That the cell comes back, which takes YARN half a minute, is the subject of test_cells.py."""
    with session(job.cluster, JOB) as zookeeper:
        was, begun = leader(zookeeper), now_ms()
    with job.flow():
        master(job, was.container, AM).send(signal.SIGKILL)
        elected = job.wait_for_event("leader_elected", begun)
        assert (elected.data or {})["candidate"] != was.candidate


def killed_job_goes_on_where_it_was(job: FlightsJob) -> None:
    run, before = job.run_id, job.epochs
    job.standfast("kill", JOB)
    assert job.cluster.container_processes() == []
    job.scenario.submit()
    assert job.run_id == run
    assert all(after > before[task] for task, after in job.epochs.items())
    job.process()
