"""``python -m standby``: the composition root of a container's process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NoReturn


def start(probe: Callable[[str], None] | None = None) -> NoReturn:
    """Run the container, and end the process with its exit code; see `standby.shared.exits`.

    ``probe`` is called at each named point (`standby.shared.probes`, `standby.kernel.probes`).
    """
    from standby.process.descriptors import allow_most
    from standby.process.witness import fork_witness

    # Before the port is opened, whose number must stay above all others.
    allow_most()
    witnessed = fork_witness(os.environ)
    # gRPC reads these when it is imported. Its fork support waits for threads that never stop here, and is not
    # needed, because a child execs Java at once.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

    from pathlib import Path

    from standby.cluster import ClusterConfig
    from standby.config import parse
    from standby.kernel.environment import Environment
    from standby.kernel.replicas import LocalReplicas
    from standby.kernel.restore.snapshots import Snapshots
    from standby.kernel.store.leftovers import find_leftovers, purge_run
    from standby.kernel.strays import Roots, Strays
    from standby.process.container import Kernel, main
    from standby.process.lending import Lending
    from standby.process.lookup import Lookups
    from standby.shared.clock import REAL
    from standby.shared.metric import Samples
    from standby.shared.model import Leftover
    from standby.shared.peers import SNAPSHOTS_ROUTE, STATE_ROUTE, TRANSFORMS_ROUTE, only
    from standby.shared.probes import no_probe
    from standby.shared.roles import PeerRole
    from standby.shared.wire import JobDefinition

    def make_kernel(
        cluster: ClusterConfig, environment: Environment, on_change: Callable[[], None]
    ) -> Kernel:
        host = environment.host
        replicas = LocalReplicas(environment, on_change)
        snapshots = Snapshots(replicas.offer, environment.restores)
        lending = Lending(replicas.lent)
        lookups = Lookups(replicas.held, REAL.now_ms)
        routes = {
            SNAPSHOTS_ROUTE: only((PeerRole.CONTAINER,), snapshots.answer),
            TRANSFORMS_ROUTE: only((PeerRole.CONTAINER,), lending.answer),
            STATE_ROUTE: only((PeerRole.OPERATOR,), lookups.answer),
        }
        directories = [Path(each) for each in cluster.state_dirs]
        roots = Roots(tuple(directories), cluster.name, host)
        Strays(roots, replicas.known, environment.opening, REAL.now_ms, cluster.stray_delay_ms).start()

        def leftovers() -> tuple[Leftover, ...]:
            return find_leftovers(directories, cluster.name, host, REAL.now_ms())

        def purge(job: JobDefinition) -> None:
            named = () if cluster.is_pool else parse(job.config).state_dirs
            purge_run(sorted({*directories, *map(Path, named)}), cluster.name, host, job.name, job.run)

        def metrics() -> Iterable[Samples]:
            return (*environment.restores.metrics(), *lending.metrics())

        return Kernel(replicas, leftovers, purge, routes, snapshots.close, metrics)

    main(make_kernel, witnessed, probe or no_probe)


if __name__ == "__main__":
    start()
