"""The environment of a benchmark: a single Kafka broker, and a directory for states."""

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
    """Yield the ``host:port`` of a new broker and an empty directory; both are removed after the block.

    Like `whole_arena`, but nothing else runs: YARN and ZooKeeper are not needed here, and their heartbeats would use
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
    """Yield a new embedded cluster and an empty directory; both are removed after the block.

    The directory is created in ``scratch``, by default the temporary directory. Ctrl-C and SIGTERM raise
    `demo.interrupt.Interrupted` in the block, once. Raises what `LocalCluster.start` raises.
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
