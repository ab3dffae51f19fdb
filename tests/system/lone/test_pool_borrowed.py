"""A standby that is promoted before its Spark has started: another container runs its transform meanwhile."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

from demo.scenario import now_ms
from demo.standing import is_warm
from embedded.cluster import LocalCluster
from embedded.java import find_java
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.lone.pool_job import SPARK, JobOnPool, pool_of
from tests.system.lone.pool_lab import host

#: An active and a standby of each of two processors.
NODES = {0: 0, 1: 1, 2: 2, 3: 3}

#: The node whose Java waits.
COLD = 4

SETTINGS = {**SPARK, "job.container.count": "2"}

JAVA = """#!/bin/sh
touch {reached}
until test -e {may_start}; do sleep 0.1; done
exec {java} "$@"
"""


def waiting_java(directory: Path) -> tuple[Path, Path, Path]:
    """Return the home of a Java that waits, the file that it makes before, and the one that it waits for."""
    home, reached, may_start = directory / "java", directory / "reached", directory / "may-start"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(JAVA.format(reached=reached, may_start=may_start, java=find_java(os.environ).command))
    java.chmod(0o755)
    return home, reached, may_start


def produce(job: JobOnPool, value: bytes) -> None:
    for task in range(job.partitions):
        job.produce(task, [(b"%d" % task, value)])


def test_a_standby_that_is_cold_takes_over_at_once(cluster: LocalCluster, tmp_path: Path) -> None:
    home, reached, may_start = waiting_java(tmp_path)
    with pool_of(cluster, tmp_path, NODES) as pool, closing(JobOnPool(pool, "borrowed", **SETTINGS)) as job:
        job.deploy()
        produce(job, b"first")
        job.wait(is_warm, "warm standbys", 3 * PATIENCE_SECONDS)
        lost = job.replica(0, active=True)
        begun = now_ms()
        pool.node(COLD, JAVA_HOME=str(home))
        (node,) = (number for number in NODES if host(number) == lost.host)
        pool.end(f"node-{node}", signal.SIGKILL)
        job.send(lost, signal.SIGKILL)
        job.wait_for_event("failover_finished", begun)
        job.wait_whole()
        cold = job.replica(0, active=False)
        assert cold.host == host(COLD)
        soon(reached.exists, "its Spark starts")
        again = now_ms()
        job.send(job.replica(0, active=True), signal.SIGKILL)
        job.wait_for_event("failover_finished", again)
        assert job.replica(0, active=True).container == cold.container
        produce(job, b"second")
        job.assert_exact()

        def own() -> dict[str, Any]:
            return next(
                each for each in job.ask("containers", job.name) if each["container"] == cold.container
            )

        assert not own()["warm"]
        may_start.touch()
        soon(lambda: own()["warm"], "its own Spark is warm")
        produce(job, b"third")
        job.assert_exact()
        job.wait_whole()
