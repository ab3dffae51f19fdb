"""An embedded cluster that ends with the block that started it, however that block ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from demo.interrupt import Interrupts
from demo.screen import Screen
from embedded.cluster import LocalCluster, end, end_abandoned


@contextmanager
def cluster_of_our_own(
    screen: Screen, interrupts: Interrupts, *, is_kept: bool = False
) -> Iterator[LocalCluster]:
    """Start a cluster, yield it, and end it with everything in it; with ``is_kept`` leave it running.

    Raises what `LocalCluster.start` raises. Clusters whose starters died are ended first.
    """
    # A name of its own: whatever bears it was started here, so that it can be ended without a question.
    name = f"demo-{os.getpid()}"
    end_abandoned()
    try:
        screen.phase("starting ZooKeeper, Kafka and YARN")
        begin = time.monotonic()
        cluster = LocalCluster.start(name, is_temporary=not is_kept, show=screen.show)
        screen.say(f"the cluster is up after {time.monotonic() - begin:.1f} s: {', '.join(cluster.hosts)}")
        yield cluster
    finally:
        # From here on nothing may cut the cleaning short.
        interrupts.ignore()
        if is_kept:
            screen.say(f'left running: eval "$(standfast local env --name {name})"')
        else:
            screen.phase("ending everything that runs")
            end(name)
