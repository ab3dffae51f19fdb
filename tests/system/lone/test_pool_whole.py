"""A job on a pool without ZooKeeper, and after a power cut: its processes, ZooKeeper and Kafka are killed together.

The tree is closed to others.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from embedded.servers import KAFKA, ZOOKEEPER
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.pool_job import MASTERS, JobOnPool, pool_of
from tests.system.yarn.two_cells import pairs

NODES = {number: number for number in range(3)}

#: Short, since the sessions of what was killed have to end.
SESSION_MS = 3_000


def test_a_job_goes_on_without_zookeeper_and_after_all_was_killed(
    own_cluster: LocalCluster, tmp_path: Path
) -> None:
    keys = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
    with pool_of(own_cluster, tmp_path, NODES, **keys) as pool, closing(JobOnPool(pool, "whole", 2)) as job:
        job.deploy()
        job.wait_whole()
        only_its_own_read_the_tree(job)
        zookeeper_away_for_longer_than_its_sessions_is_no_loss(job)
        all_is_killed_and_goes_on_with_the_state_on_its_disks(job)


def only_its_own_read_the_tree(job: JobOnPool) -> None:
    stranger = KazooClient(job.cluster.zookeeper_connect)
    stranger.start(timeout=PATIENCE_SECONDS)
    try:
        for path in ("", "/jobs/whole", "/containers", "/candidates", "/controller", "/code", "/pool"):
            with pytest.raises(NoAuthError):
                stranger.get(f"/standfast/{job.cluster_name}{path}")
    finally:
        stranger.stop()
        stranger.close()


def zookeeper_away_for_longer_than_its_sessions_is_no_loss(job: JobOnPool) -> None:
    before, run, begun = job.epochs, job.run_id, now_ms()
    job.cluster.stop_server(ZOOKEEPER)
    try:
        # No leader can be asked meanwhile: as far as it knows, another one may have followed it.
        job.produce(0, pairs(0))
        job.assert_exact(run=run)
        time.sleep(3 * SESSION_MS / 1000)
        job.produce(1, pairs(1))
        job.assert_exact(run=run)
    finally:
        job.cluster.start_server(ZOOKEEPER)
    job.produce(0, pairs(0, 1_000))
    job.wait_whole()
    job.assert_exact()
    # The leader's writes are accepted.
    job.client.result(job.client.queue("admit", hosts=["127.0.0.99"]), PATIENCE_SECONDS)
    assert job.epochs == before
    assert not job.kinds(begun) & {"failover_started", "container_lost", "leader_elected"}, job.story(begun)


def all_is_killed_and_goes_on_with_the_state_on_its_disks(job: JobOnPool) -> None:
    run, pool = job.run_id, job.pool
    job.produce(0, pairs(0, 2_000))
    pool.kill()
    printed = {number: len(pool.text(f"node-{number}")) for number in NODES}
    for server in (KAFKA, ZOOKEEPER):
        job.cluster.stop_server(server)
    job.cluster.start_server(ZOOKEEPER)
    job.cluster.start_server(KAFKA)
    for number in MASTERS:
        pool.master(number)
    for number in NODES:
        pool.node(number)
    job.produce(1, pairs(1, 2_000))
    job.wait_whole()
    job.assert_exact()
    assert job.run_id == run
    logs = "".join(pool.text(f"node-{number}")[printed[number] :] for number in NODES)
    found = job.sources_in(logs)
    # A copy may have been placed elsewhere before its host was back.
    assert {task for task, source in found if source == "local"} == {"0", "1"}, found
