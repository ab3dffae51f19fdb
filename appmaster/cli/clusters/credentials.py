"""``standfast credentials``: what a cluster's processes and operators know each other by.

`show` tells what this user has of a cluster and when it ends. `rotate` gives a cluster another authority and everybody
other certificates while its jobs run; one that broke off, or whose processes did not all follow, is gone on with by the
same command. `issue` makes the credentials of another operator, by whose name the event log tells who asked for what: a
directory to be handed over, which becomes $STANDFAST_CREDENTIALS there. It has to be issued anew after a rotation.

Exit status: 0 done; 1 not every process has followed yet; 2 no such cluster or credentials, or the tree in ZooKeeper is
open to everybody; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from appmaster.adapters.credentials.certificates import end_of
from appmaster.adapters.credentials.keyring import require
from appmaster.adapters.credentials.processes import RegisteredProcesses, talk
from appmaster.api.client import ClusterClient
from appmaster.cli.clusters.rotation import rotate
from appmaster.cli.shared.cluster import add_cluster_options, open_zookeeper
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress, print_json
from appmaster.cli.shared.parsers import add_command
from standby.errors import BadConfiguration, Unavailable
from standby.shared.roles import PeerRole


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``credentials`` on the command line."""
    group = subparsers.add_parser(
        "credentials",
        help="what a cluster's processes and operators know each other by",
        description="Show, rotate and issue a cluster's credentials.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = group.add_subparsers(metavar="COMMAND", required=True)
    for name, run, text in (
        ("show", _show, "tell what this user has of a cluster, and when it ends"),
        ("rotate", _rotate, "give a cluster other credentials while its jobs run"),
        ("issue", _issue, "make the credentials of another operator"),
    ):
        parser = add_command(commands, name, run, text, None)
        parser.add_argument("job", metavar="JOB", help="a job of the cluster, or the cluster")
        add_cluster_options(parser)
        if name == "rotate":
            parser.add_argument(
                "--timeout",
                type=float,
                default=120.0,
                metavar="SECONDS",
                help="how long the processes may take to follow (default: %(default)g)",
            )
        if name == "issue":
            parser.add_argument(
                "--name", required=True, help="who the operator is, as the event log is to say"
            )
            parser.add_argument(
                "--to", type=Path, required=True, metavar="DIR", help="a directory that is not there yet"
            )


def _show(arguments: argparse.Namespace) -> int:
    ring = require(arguments.cluster or arguments.job)
    ends = end_of(ring.credentials(PeerRole.OPERATOR).certificate.encode())
    if arguments.json:
        print_json(
            {
                "cluster": ring.cluster,
                "directory": str(ring.directory),
                "is_owner": ring.is_whole,
                "number": ring.number,
                "ends": ends.isoformat(),
            }
        )
        return 0
    whose = "its owner" if ring.is_whole else "an operator"
    what = f"credentials {ring.number} of cluster {ring.cluster}, for {whose}"
    Progress().say(f"{ring.directory}: {what}; they end on {ends:%Y-%m-%d}")
    return 0


def _rotate(arguments: argparse.Namespace) -> int:
    ring = require(arguments.cluster or arguments.job)
    progress, deadline = Progress(is_quiet=arguments.json), Deadline(arguments.timeout)
    with open_zookeeper(arguments) as zookeeper:
        if not zookeeper.tree.exists():
            raise BadConfiguration(f"there is no cluster {ring.cluster}")
        if zookeeper.tree.is_open:
            raise BadConfiguration(
                f"the tree of {ring.cluster} is open: everybody could read the keys there. Close it first: "
                f"standfast protect {ring.cluster}"
            )
        number = rotate(
            ring,
            RegisteredProcesses(zookeeper.registry, zookeeper.credentials),
            talk,
            progress.say,
            deadline,
        )
    if arguments.json:
        print_json({"cluster": ring.cluster, "number": number})
    else:
        progress.say(f"{ring.cluster} has credentials {number}; operators need theirs issued anew")
    return 0


def _issue(arguments: argparse.Namespace) -> int:
    ring = require(arguments.cluster or arguments.job)
    issued = ring.issue(arguments.name, arguments.to / ring.cluster)
    if arguments.zookeeper:
        # Who has no secret for ZooKeeper is to know of candidates to ask.
        with suppress(Unavailable), ClusterClient(ring.cluster, arguments.zookeeper) as client:
            known = [f"{each['host']}:{each['port']}" for each in client.info()["candidates"]]
            with ClusterClient(ring.cluster, arguments.zookeeper, issued, known) as theirs:
                theirs.info()
    if arguments.json:
        print_json({"cluster": ring.cluster, "directory": str(arguments.to), "name": arguments.name})
    else:
        Progress().say(
            f"hand over {arguments.to}: it is what STANDFAST_CREDENTIALS of {arguments.name} is to name"
        )
    return 0
