"""What a job on YARN does without ZooKeeper, and after everything was stopped; its tree is closed to others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from embedded.servers import KAFKA, ZOOKEEPER
from tests.patience import PATIENCE_SECONDS
from tests.system.yarn.counting import CountingJob, submitted
from tests.system.yarn.two_cells import is_whole, pairs

pytestmark = pytest.mark.timeout(10 * PATIENCE_SECONDS)

SESSION_MS = 3_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of this module's own, all servers of which are hurt."""
    with LocalCluster.start(f"whole-{os.getpid()}", is_temporary=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingJob]:
    job = CountingJob(
        cluster,
        tmp_path_factory.mktemp("whole") / "job",
        "whole",
        "whole-in",
        2,
        **{
            "appmaster.cells": 2,  # type: ignore[arg-type]
            "job.container.count": 2,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "yarn.am.http.pages": "metrics",
        },
    )
    with submitted(job):
        yield job


def test_nobody_else_reads_the_tree(job: CountingJob, cluster: LocalCluster) -> None:
    job.wait(is_whole(job), "a whole job")
    stranger = KazooClient(cluster.zookeeper_connect, timeout=10)
    stranger.start(timeout=PATIENCE_SECONDS)
    try:
        for path in ("", "/jobs", "/jobs/whole", "/containers", "/candidates", "/controller", "/code"):
            with pytest.raises(NoAuthError):
                stranger.get(f"/standfast/whole{path}")
    finally:
        stranger.stop()
        stranger.close()


def test_zookeeper_away_for_longer_than_its_sessions_is_not_noticed_by_the_tasks(
    job: CountingJob, cluster: LocalCluster
) -> None:
    before, run, begun = job.epochs, job.run_id, now_ms()
    cluster.stop_server(ZOOKEEPER)
    try:
        # Nobody can be asked meanwhile: who led may have been followed by another, as far as it knows.
        job.produce(0, pairs(0, 0))
        job.assert_exact(run=run)
        time.sleep(3 * SESSION_MS / 1000)
        job.produce(1, pairs(1, 0))
        job.assert_exact(run=run)
    finally:
        cluster.start_server(ZOOKEEPER)
    job.produce(0, pairs(0, 1_000))
    job.wait(is_whole(job), "a whole job")
    job.assert_exact()
    # The leader's writes are taken.
    job.client.result(job.client.queue("admit", hosts=["127.0.0.99"]), PATIENCE_SECONDS)
    assert job.epochs == before
    assert not job.kinds(begun) & {"failover_started", "container_lost", "cell_lost", "leader_elected"}


def test_everything_is_stopped_and_started_again(job: CountingJob, cluster: LocalCluster) -> None:
    """Hosts with all processes, Kafka, ZooKeeper; YARN's own book-keeping stays, as the embedded one keeps no other."""
    job.wait(is_whole(job), "a whole job")
    run = job.run_id
    job.produce(0, pairs(0, 2_000))
    for host in cluster.hosts:
        cluster.kill_host(host)
    cluster.stop_server(KAFKA)
    cluster.stop_server(ZOOKEEPER)
    cluster.start_server(ZOOKEEPER)
    cluster.start_kafka()
    for host in cluster.hosts:
        cluster.start_host(host)
    job.produce(1, pairs(1, 2_000))
    job.wait(is_whole(job), "a whole job, unaided")
    job.assert_exact()
    assert job.run_id == run
    found = [source for each in job.status.containers for source in job.sources_of_state(each.container)]
    # A copy that had to go to the other cell may have come to a host that had none of it.
    assert {task for task, source in found if source == "local"} == {"0", "1"}, found
