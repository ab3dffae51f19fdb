"""What a benchmark needs around it: one Kafka broker with nothing beside it, and a directory for states."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contest import say
from demo.interrupt import Interrupts
from embedded.cluster import LocalCluster
from embedded.registry import end, end_abandoned
from embedded.servers import RESOURCE_MANAGER, ZOOKEEPER


@contextmanager
def arena(scratch: Path | None) -> Iterator[tuple[str, Path]]:
    """Yield the ``host:port`` of a new broker and an empty directory; both are gone after the block.

    As `whole_arena`, but nothing else runs: nobody asks YARN or ZooKeeper here, and their heartbeats would take
    part of two cores.
    """
    with whole_arena(scratch, nodes=1) as (cluster, directory):
        cluster.kill_host(cluster.hosts[0])
        for each in (RESOURCE_MANAGER, ZOOKEEPER):
            cluster.stop_server(each)
        yield cluster.kafka_bootstrap, directory


@contextmanager
def whole_arena(
    scratch: Path | None, *, nodes: int = 3, brokers: int = 1
) -> Iterator[tuple[LocalCluster, Path]]:
    """Yield a new embedded cluster and an empty directory; both are gone after the block.

    The directory is made in ``scratch``, by default among the temporary ones. Ctrl-C and SIGTERM raise
    `demo.interrupt.Interrupted` in the block, once. Raises as `LocalCluster.start`.
    """
    name = f"benchmark-{os.getpid()}"
    end_abandoned()
    with (
        Interrupts() as interrupts,
        tempfile.TemporaryDirectory(prefix="standfast-benchmark-", dir=scratch) as directory,
    ):
        try:
            cluster = LocalCluster.start(name, nodes=nodes, brokers=brokers, is_temporary=True)
            say(f"the broker serves at {cluster.kafka_bootstrap}")
            yield cluster, Path(directory)
        finally:
            interrupts.ignore()
            end(name)
