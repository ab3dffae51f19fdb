"""The servers that the tests of a phase share, started when a test first needs one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from embedded.cluster import LocalCluster
from embedded.registry import end_abandoned
from embedded.terminal import ProgressLine
from tests.topics import outlives_tests


@contextmanager
def shared_cluster(hosts: int) -> Iterator[LocalCluster]:
    """Return ZooKeeper, Kafka and, unless there are no hosts, YARN, for as long as the block lasts.

    A run over the failures of several phases (`--lf`) has one with hosts and one without.
    """
    end_abandoned()
    progress = ProgressLine()
    cluster = LocalCluster.start(
        f"test-{os.getpid()}-{hosts}", nodes=hosts, is_temporary=True, show=progress.show
    )
    progress.close()
    with cluster:
        outlives_tests(cluster.kafka_bootstrap)
        yield cluster
