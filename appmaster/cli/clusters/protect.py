"""``standfast protect``: close a cluster's open tree in ZooKeeper to all but the holders of your credentials.

Kill the jobs of the cluster first; state and offsets are kept. Everybody who reaches ZooKeeper could have written to an
open tree, so queued changes are refused, and the jobs are listed. Harmless if the tree is closed already.

Exit status: 0 done; 1 the cluster runs; 2 no such cluster, no credentials, or it is closed to these; 3 a server cannot
be used.
"""

from __future__ import annotations

import argparse

from appmaster.adapters.credentials.keyring import require
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.cli.shared.cluster import add_command_of_cluster, open_zookeeper
from appmaster.cli.shared.output import Progress, printed_as_json
from standby.errors import BadConfiguration, StandfastError


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``protect`` on the command line."""
    text = "close an open tree in ZooKeeper to everybody else"
    add_command_of_cluster(subparsers, "protect", _protect, text, __doc__)


def _protect(arguments: argparse.Namespace) -> int:
    cluster = arguments.cluster or arguments.job
    require(cluster)
    with open_zookeeper(arguments) as zookeeper:
        if not zookeeper.tree.exists():
            raise BadConfiguration(f"there is no cluster {cluster}")
        if zookeeper.tree.is_open:
            check_stopped(zookeeper, cluster)
        count = zookeeper.tree.protect()
        # No one else can write to it any more.
        jobs = zookeeper.jobs.names()
        if count:
            zookeeper.changes.refuse_left("anyone could have queued it")
    if printed_as_json(arguments, {"cluster": cluster, "nodes": count, "jobs": list(jobs)}):
        return 0
    say = Progress().say
    if not count:
        say(f"the tree of {cluster} is closed to others already")
        return 0
    say(f"{count} nodes of {cluster} are closed to others")
    say(f"its jobs are {', '.join(jobs) or 'none'}: delete what is not yours before you submit again")
    return 0


def check_stopped(zookeeper: ZooKeeper, cluster: str) -> None:
    """Raise `StandfastError` while an application master of the cluster runs: what it creates would stay open."""
    running = ", ".join(each.candidate for each in zookeeper.registry.candidates())
    if running:
        raise StandfastError(
            f"{running} of {cluster} runs; kill its jobs first (state and offsets stay), and stop the "
            "masters and nodes of a pool"
        )
