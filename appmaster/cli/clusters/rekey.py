"""``standfast rekey``: give a closed tree in ZooKeeper to a new secret, and the cluster to new credentials.

For a secret that is no longer secret. Certificates that merely expire are changed by ``standfast credentials rotate``
while jobs run. Kill the jobs of the cluster, move its directory in $STANDFAST_CREDENTIALS (or ~/.standfast/credentials)
elsewhere, give that place to this command, which makes new credentials, and submit again.

Exit status: 0 done; 1 the cluster runs; 2 no such cluster, one that is open, or the former credentials do not fit; 3 a
server cannot be used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from appmaster.adapters.credentials.keyring import keyring_in, make_sure
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.cli.clusters.protect import check_stopped
from appmaster.cli.shared.cluster import add_command_of_cluster, servers_of
from appmaster.cli.shared.output import Progress, printed_as_json
from standby.errors import BadConfiguration


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``rekey`` on the command line."""
    text = "give a closed tree in ZooKeeper to new credentials"
    parser = add_command_of_cluster(subparsers, "rekey", _rekey, text, __doc__)
    parser.add_argument(
        "--former",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the cluster's former credentials are now",
    )


def _rekey(arguments: argparse.Namespace) -> int:
    servers = servers_of(arguments)
    cluster = arguments.cluster or arguments.job
    former = keyring_in(arguments.former, cluster).access()
    present = make_sure(cluster).access()
    if former == present:
        raise BadConfiguration(f"{arguments.former} holds the credentials that {cluster} has now")
    with ZooKeeper(servers, cluster, access=former) as zookeeper:
        # Nodes that an earlier attempt has given away must be readable, too.
        zookeeper.tree.prove(present)
        if not zookeeper.tree.exists():
            raise BadConfiguration(f"there is no cluster {cluster}")
        if not zookeeper.tree.is_closed:
            raise BadConfiguration(
                f"the tree of {cluster} is open to everybody; there is nothing to give to new credentials"
            )
        check_stopped(zookeeper, cluster)
        count = zookeeper.tree.hand_over(present)
    if not printed_as_json(arguments, {"cluster": cluster, "nodes": count}):
        Progress().say(f"{count} nodes of {cluster} belong to the new credentials")
    return 0
