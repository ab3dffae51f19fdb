"""Several cells on a real YARN: whichever dies, another candidate leads, and nothing is lost or counted twice.

In the end everything is stopped and started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.cli.launch.cells import share_of
from appmaster.leadership.port_probe import host_of
from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from embedded.servers import KAFKA, ZOOKEEPER
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.yarn.counting import CountingJob, submitted
from tests.system.yarn.running import NOTICES_SILENCE, session
from tests.system.yarn.two_cells import (
    AM,
    CANDIDATE,
    cells_of_actives,
    has_rejoined,
    is_whole,
    leader,
    master,
    pairs,
    whole_in_both_cells,
)

pytestmark = pytest.mark.timeout(10 * PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of this module's own, all servers of which are hurt."""
    with LocalCluster.start(f"cells-{os.getpid()}", is_temporary=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingJob]:
    """Return the counting job: two processors with a standby each, in the two cells that are the default."""
    job = CountingJob(
        cluster,
        tmp_path_factory.mktemp("cells") / "job",
        "cells",
        "cells-in",
        2,
        **{  # type: ignore[arg-type]
            "appmaster.cells": 2,
            "job.container.count": 2,
            **NOTICES_SILENCE,
            "zookeeper.session.timeout.ms": 10_000,
            # Enough for attempts that make way for others on another host.
            "yarn.am.max.attempts": 10,
            "yarn.am.http.pages": "metrics",
        },
    )
    with submitted(job):
        yield job


@pytest.fixture(scope="module")
def zookeeper(cluster: LocalCluster) -> Iterator[ZooKeeper]:
    """Return a session that sees the cells, and the leader."""
    with session(cluster, "cells") as opened:
        yield opened


def test_copies_of_every_task_are_in_different_cells(job: CountingJob) -> None:
    whole_in_both_cells(job)
    found = job.ask("cells", job.name)
    assert [each["cell"] for each in found] == [1, 2]
    assert all(each["is_running"] and each["candidate"] and each["attempt"] for each in found)
    assert [each["leads"] for each in found].count(True) == 1
    racks = dict.fromkeys(job.cluster.hosts, "/default-rack")
    for index, each in enumerate(found):
        wished = share_of(index, 2, racks, (), job.name)
        assert host_of(each["address"]) in wished, "on a host of its own, at the first try"
    for partition in range(2):
        job.produce(partition, pairs(partition))
    job.assert_exact()


def test_dead_am_takes_its_cell_which_fails_over_and_returns_as_a_follower(
    job: CountingJob, zookeeper: ZooKeeper
) -> None:
    whole_in_both_cells(job)
    was = leader(zookeeper)
    attempt = zookeeper.cells.read_all()[was.cell].attempt
    has_active = was.cell in cells_of_actives(job)
    job.produce(0, pairs(0, 2_000))
    process, begun = master(job, was.container, AM), now_ms()
    process.send(signal.SIGKILL)
    elected = job.wait_for_event("leader_elected", begun)
    print(f"another leads after {elected.at_ms - begun} ms")
    job.produce(1, pairs(1, 2_000))
    # With both actives in the other cell, standbys alone are lost: before the new leader looked, after it, or when they
    # have been filled elsewhere. An active whose process still runs is handed over as planned when its standby is ready
    # before its end: all that is certain is that it ends.
    ends = {"failover_finished", "handover_finished"} if has_active else {"decided_bind", "decided_moved"}
    job.wait_for_event(ends, begun)

    def is_back() -> bool:
        candidates = [each for each in zookeeper.registry.candidates() if each.cell == was.cell]
        is_new = (
            zookeeper.cells.read_all()[was.cell].attempt != attempt and leader(zookeeper).cell != was.cell
        )
        return is_new and any(each.container != was.container for each in candidates)

    soon(is_back, "the next attempt's candidate, as a follower")
    assert len({host_of(each.address) for each in zookeeper.cells.read_all().values()}) == 2, (
        "on a host of its own"
    )
    whole_in_both_cells(job)
    job.assert_exact()


def test_leader_paused_past_its_session_resigns_and_rejoins(job: CountingJob, zookeeper: ZooKeeper) -> None:
    whole_in_both_cells(job)
    before, was = job.epochs, leader(zookeeper)
    stopped, begun = master(job, was.container, CANDIDATE), now_ms()
    stopped.send(signal.SIGSTOP)
    try:
        elected = job.wait_for_event("leader_elected", begun)
        assert (elected.data or {})["candidate"] != was.candidate
        job.produce(0, pairs(0, 3_000))
    finally:
        stopped.send(signal.SIGCONT)
    soon(lambda: has_rejoined(zookeeper, was), "the candidate that was paused, as another one")
    job.wait(is_whole(job))
    assert job.epochs == before
    assert [each.kind for each in job.events(begun)].count("leader_elected") == 1
    job.assert_exact()


def test_lost_host_of_the_leader_is_made_up_for(job: CountingJob, zookeeper: ZooKeeper) -> None:
    whole_in_both_cells(job)
    was = leader(zookeeper)
    begun = now_ms()
    with job.lost_host(was.host, silent=True):
        elected = job.wait_for_event("leader_elected", begun)
        assert (elected.data or {})["deposed"] == was.candidate, "its session lives: it is not waited for"
        print(f"another leads after {elected.at_ms - begun} ms")
        for partition in range(2):
            job.produce(partition, pairs(partition, 4_000))
        job.assert_exact()
    whole_in_both_cells(job)
    job.assert_exact()


def test_everything_is_stopped_and_started_again(job: CountingJob, cluster: LocalCluster) -> None:
    """Hosts with all processes, Kafka, ZooKeeper; YARN's own book-keeping stays, as the embedded one keeps no other."""
    whole_in_both_cells(job)
    run = job.run_id
    job.produce(0, pairs(0, 5_000))
    for host in cluster.hosts:
        cluster.kill_host(host)
    cluster.stop_server(KAFKA)
    cluster.stop_server(ZOOKEEPER)
    cluster.start_server(ZOOKEEPER)
    cluster.start_server(KAFKA)
    for host in cluster.hosts:
        cluster.start_host(host)
    job.produce(1, pairs(1, 5_000))
    job.wait(is_whole(job), "a whole job, unaided")
    job.assert_exact()
    assert job.run_id == run
    found = [source for each in job.status.containers for source in job.sources_of_state(each.container)]
    # A copy that had to go to the other cell may have come to a host that had none of it.
    assert {task for task, source in found if source == "local"} == {"0", "1"}, found


def test_a_job_that_yarn_was_asked_to_end_goes_on_when_it_is_submitted_again(job: CountingJob) -> None:
    """Ended again like that, it is deleted by the command (`CountingJob.close`), although no leader is there."""
    whole_in_both_cells(job)
    run, before = job.run_id, job.epochs
    end_through_yarn(job)
    job.produce(0, pairs(0, 6_000))
    command = job.submit()
    said, _ = command.communicate(timeout=3 * PATIENCE_SECONDS)
    assert command.returncode == 0, said
    whole_in_both_cells(job)
    job.assert_exact()
    assert job.run_id == run
    assert all(after > before[task] for task, after in job.epochs.items())
    end_through_yarn(job)


def end_through_yarn(job: CountingJob) -> None:
    """End a job's applications as an operator would who knows nothing of standfast's commands."""
    applications = [each["application"] for each in job.ask("cells", job.name)]
    yarn = ["yarn", "application", "-kill", *applications]
    subprocess.run(yarn, env=job.environment, check=True, timeout=PATIENCE_SECONDS, capture_output=True)
    soon(lambda: not job.cluster.container_processes(), "no container runs")
