"""A spare container of a pool: it is warm without any copy, replaces what is lost, and serves a second loss at once."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

from demo.scenario import now_ms
from demo.standing import Status
from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.pool_job import SPARK, JobOnPool, pool_of

#: One on each of four hosts: for the active, its standby, the spare container, and the one after it.
NODES = {0: 0, 1: 1, 2: 2, 3: 3}

SETTINGS = {**SPARK, "job.container.count": "1", "job.container.spare.count": "1"}


def is_ready(status: Status) -> bool:
    (job,) = status.jobs
    return job.spares.ready == job.spares.held == 1


def test_a_lost_container_is_replaced_by_a_spare_one_which_serves_a_second_loss(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """With Spark: the spare container's pipeline is warm before it has held a copy."""
    with pool_of(cluster, tmp_path, NODES) as pool, closing(JobOnPool(pool, "spares", **SETTINGS)) as job:
        job.deploy()
        for task in range(job.partitions):
            job.produce(task, [(b"%d" % task, b"x")])
        job.wait(is_ready, "a spare container that is ready", 3 * PATIENCE_SECONDS)
        [spare] = (each for each in job.ask("containers", job.name) if each["spare"])
        assert (spare["slot"], spare["replicas"], spare["warm"]) == ("spares:spare-0", 0, True)
        assert "spare containers: 1 of 1, 1 ready" in job.standfast("status", job.name)
        with job.flow():
            begun, first = now_ms(), job.replica(0, active=True)
            job.send(first, signal.SIGKILL)
            job.wait_for_event("failover_finished", begun)
            taken = job.wait_for_event("spare_taken", begun)
            assert (taken.container, (taken.data or {})["is_ready"]) == (spare["container"], True)
            # No other container came for the copy.
            standby = job.wait(
                lambda status: all(len(each.in_sync) == 2 for each in status.tasks),
                "every copy in sync again",
            )
            placed = {each.container for task in standby.tasks for each in task.replicas}
            assert spare["container"] in placed
            asked = job.wait_for_event("container_requested", begun)
            assert (asked.data or {})["slot"] == "spares:spare-0", "a new spare one, and only then"
            again, second = now_ms(), job.replica(0, active=True)
            assert second.container != spare["container"]
            job.send(second, signal.SIGKILL)
            job.wait_for_event("failover_finished", again)
            assert job.replica(0, active=True).container == spare["container"]
        job.wait_whole(copies=2)
