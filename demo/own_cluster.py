"""A cluster that is stopped at the end of the block that started it, in every case."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.hosts import POOL, YARN, Hosts
from demo.interrupt import Interrupted, Interrupts
from demo.pool import PoolHosts
from demo.screen import Screen
from embedded.cluster import LocalCluster
from embedded.registry import end, end_abandoned

#: What containers can run on → how to start ZooKeeper, Kafka and that.
_STARTS: Final[Mapping[str, Callable[..., Hosts]]] = {YARN: LocalCluster.start, POOL: PoolHosts.start}


@contextmanager
def cluster_of_our_own(
    screen: Screen, interrupts: Interrupts, logs: Path, *, is_kept: bool = False
) -> Iterator[LocalCluster]:
    """Start a cluster with YARN; like `hosts_of_our_own`."""
    with hosts_of_our_own(YARN, screen, interrupts, logs, is_kept=is_kept) as cluster:
        assert isinstance(cluster, LocalCluster)
        yield cluster


@contextmanager
def hosts_of_our_own(
    what: str, screen: Screen, interrupts: Interrupts, logs: Path, *, is_kept: bool = False
) -> Iterator[Hosts]:
    """Start ZooKeeper, Kafka and YARN or a pool; stop everything after the block; with ``is_kept`` leave it running.

    Unless it was interrupted, the logs of all servers and containers are in the directory ``logs`` afterwards.
    Raises what `LocalCluster.start` raises. Clusters whose starters have died are stopped first.
    """
    # A unique name: every process with this name was started here, so it can be ended safely.
    name = f"demo-{os.getpid()}"
    end_abandoned()
    try:
        screen.phase(f"starting ZooKeeper, Kafka and {'YARN' if what == YARN else 'a pool'}")
        begin = time.monotonic()
        cluster = _STARTS[what](name, is_temporary=not is_kept, show=screen.show)
        screen.say(f"the cluster is up after {time.monotonic() - begin:.1f} s: {', '.join(cluster.hosts)}")
        try:
            yield cluster
        except Interrupted:
            raise
        except BaseException:
            _save_logs(cluster, logs)
            raise
        _save_logs(cluster, logs)
    finally:
        # From here on nothing may interrupt the clean-up.
        interrupts.ignore()
        if is_kept:
            screen.say(f'left running: eval "$(standfast local env --name {name})"')
        else:
            screen.phase("ending everything that runs")
            end(name)


def _save_logs(cluster: Hosts, directory: Path) -> None:
    """Copy the logs that would be removed with the cluster; if one file cannot be copied, continue with the others."""
    shutil.rmtree(directory, ignore_errors=True)
    sources = {"servers": cluster.directory / "log"}
    sources |= {host: cluster.host_directory(host) / "logs" for host in cluster.hosts}
    for name, source in sources.items():
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(source, directory / name)
