"""``python -m standby``: the process of one container, put together from its real parts."""

from __future__ import annotations

import os
from typing import NoReturn


def start() -> NoReturn:
    """End the process with the container's exit code; see `standby.control.exits`."""
    from standby.witness import split

    witnessed = split(os.environ)
    # gRPC reads these while it is imported. Its guard around fork() waits for threads that never stop here,
    # and needs none: a child execs Java at once.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

    import threading
    import time
    from pathlib import Path

    from standby.adapters.confluent_kafka import connect
    from standby.adapters.peer_client import open_sources
    from standby.adapters.rocksdict import open_database
    from standby.config import parse
    from standby.container import Kernel, Surroundings, main
    from standby.feed.functions import step_of
    from standby.kernel.directories import tighten_below
    from standby.kernel.fetch import Peers
    from standby.kernel.leftovers import find_leftovers, purge_run
    from standby.kernel.replicas import LocalReplicas
    from standby.kernel.snapshots import ROUTE, Snapshots
    from standby.kernel.strays import Strays
    from standby.kernel.tally import Tally
    from standby.lookup import Lookups
    from standby.model import Leftover
    from standby.peers import STATE_ROUTE
    from standby.wire import JobDefinition

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    def make_kernel(around: Surroundings) -> Kernel:
        cluster, host = around.cluster, around.host
        tally, opening = Tally(), threading.Lock()
        replicas = LocalReplicas(
            cluster.name,
            host,
            around.records,
            around.make_feed,
            around.on_change,
            connect=connect,
            open_database=open_database,
            find_step=step_of,
            load_code=around.load_code,
            tally=tally,
            peers=Peers(around.container, around.peers, open_sources(around.credentials)),
            marks=around.marks,
            opening=opening,
        )
        snapshots = Snapshots(replicas.offer, tally)
        lookups = Lookups(replicas.held, now_ms)
        routes = {ROUTE: snapshots.answer, STATE_ROUTE: lookups.answer}
        directories = [Path(each) for each in cluster.state_dirs]
        for each in directories:
            tighten_below(each, cluster.name, host)

        Strays(
            directories, cluster.name, host, replicas.known, opening, now_ms, cluster.stray_delay_ms
        ).start()

        def leftovers() -> tuple[Leftover, ...]:
            return find_leftovers(directories, cluster.name, host, (), now_ms())

        def purge(job: JobDefinition) -> None:
            every = {*directories, *map(Path, parse(job.config).state_dirs)}
            purge_run(sorted(every), cluster.name, host, job.name, job.run)

        return Kernel(replicas, leftovers, purge, routes, snapshots.close, tally.metrics)

    main(make_kernel, witnessed)


if __name__ == "__main__":
    start()
