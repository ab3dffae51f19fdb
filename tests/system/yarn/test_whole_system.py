"""A job on YARN after everything was stopped and started again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.cluster import LocalCluster
from embedded.servers import KAFKA, ZOOKEEPER
from tests.patience import PATIENCE_SECONDS
from tests.system.yarn.counting import CountingJob, submitted
from tests.system.yarn.two_cells import is_whole, pairs

pytestmark = pytest.mark.timeout(10 * PATIENCE_SECONDS)

SESSION_MS = 3_000


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of this module's own, all servers of which are hurt."""
    with LocalCluster.start(f"whole-{os.getpid()}", is_temporary=True) as cluster:
        yield cluster


@pytest.fixture
def job(cluster: LocalCluster, tmp_path: Path) -> Iterator[CountingJob]:
    job = CountingJob(
        cluster,
        tmp_path / "job",
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
    cluster.start_server(KAFKA)
    for host in cluster.hosts:
        cluster.start_host(host)
    job.produce(1, pairs(1, 2_000))
    job.wait(is_whole(job), "a whole job, unaided")
    job.assert_exact()
    assert job.run_id == run
    found = [source for each in job.status.containers for source in job.sources_of_state(each.container)]
    # A copy that had to go to the other cell may have come to a host that had none of it.
    assert {task for task, source in found if source == "local"} == {"0", "1"}, found
