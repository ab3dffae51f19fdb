"""``standfast rekey``: give a closed tree in ZooKeeper to new Skein credentials.

Kill the jobs of the cluster, keep a copy of the directory with the former credentials, have
new ones made (`skein config gencerts --force`), then name the copy to this command and submit again.

Exit status: 0 done; 1 the cluster runs; 2 no such cluster, one that is open, or the former credentials do not fit; 3 a
server cannot be used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from appmaster.adapters.kazoo import ZooKeeper
from appmaster.cli.output import Progress, print_json
from appmaster.cli.parsers import add_command
from appmaster.cli.protect import check_stopped
from appmaster.cli.stop import add_cluster_options
from appmaster.client import access_in, user_access
from standby.errors import BadConfiguration


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``rekey`` on the command line."""
    parser = add_command(
        subparsers, "rekey", _rekey, "give a closed tree in ZooKeeper to new Skein credentials", __doc__
    )
    parser.add_argument("job", metavar="JOB", help="a job of the cluster")
    parser.add_argument(
        "--former",
        type=Path,
        required=True,
        metavar="DIR",
        help="where skein.pem of the former credentials lies; the new one is in $SKEIN_CONFIG, or ~/.skein",
    )
    add_cluster_options(parser)


def _rekey(arguments: argparse.Namespace) -> int:
    if not arguments.zookeeper:
        raise BadConfiguration("give --zookeeper HOSTS or set STANDFAST_ZOOKEEPER")
    cluster = arguments.cluster or arguments.job
    former, present = access_in(arguments.former), user_access()
    if not present.secret:
        raise BadConfiguration("there are no new credentials yet: skein config gencerts")
    with ZooKeeper(arguments.zookeeper, cluster, access=former) as zookeeper:
        # What an earlier attempt has given away is to be read, too.
        zookeeper.prove(present)
        if not zookeeper.exists():
            raise BadConfiguration(f"there is no cluster {cluster}")
        if not zookeeper.is_closed:
            raise BadConfiguration(
                f"the tree of {cluster} is open to everybody; there is nothing to give to new credentials"
            )
        check_stopped(zookeeper, cluster)
        count = zookeeper.hand_over(present)
    if arguments.json:
        print_json({"cluster": cluster, "nodes": count})
    else:
        Progress().say(f"{count} nodes of {cluster} belong to the new credentials")
    return 0
