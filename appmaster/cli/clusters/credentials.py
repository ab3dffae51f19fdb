"""``standfast credentials``: the certificates by which a cluster's processes and operators authenticate each other.

`show` prints this user's credentials of a cluster and when they expire. `rotate` gives a cluster a new authority and
all processes new certificates while its jobs run; if it was interrupted, or not all processes followed, the same
command continues it. `issue` makes the credentials of another operator, whose name the event log then shows for that
operator's requests: a directory to hand over, which becomes $STANDFAST_CREDENTIALS there. They have to be issued again
after a rotation.

Exit status: 0 done; 1 not every process has followed yet; 2 no such cluster or credentials, or the tree in ZooKeeper is
open to everybody; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from appmaster.adapters.credentials.certificates import end_of
from appmaster.adapters.credentials.keyring import require
from appmaster.adapters.credentials.processes import handshake_failure, running_processes
from appmaster.api.client import ClusterClient
from appmaster.cli.clusters.rotation import renew, rotate
from appmaster.cli.shared.cluster import add_command_of_cluster, open_zookeeper
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress, printed_as_json
from appmaster.cli.shared.parsers import add_timeout
from standby.errors import BadConfiguration, Unavailable
from standby.shared.roles import PeerRole


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``credentials`` on the command line."""
    group = subparsers.add_parser(
        "credentials",
        help="the certificates of a cluster's processes and operators",
        description="Show, rotate and issue a cluster's credentials.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = group.add_subparsers(metavar="COMMAND", required=True)
    for name, run, text in (
        ("show", _show, "show this user's credentials of a cluster, and when they expire"),
        ("rotate", _rotate, "give a cluster new credentials while its jobs run"),
        ("issue", _issue, "make the credentials of another operator"),
    ):
        parser = add_command_of_cluster(commands, name, run, text, None)
        if name == "rotate":
            add_timeout(parser, 120.0, "how long the processes may take to follow")
        if name == "issue":
            parser.add_argument("--name", required=True, help="the operator's name, for the event log")
            parser.add_argument(
                "--to", type=Path, required=True, metavar="DIR", help="a directory that does not exist yet"
            )


def _show(arguments: argparse.Namespace) -> int:
    ring = require(arguments.cluster or arguments.job)
    ends = end_of(ring.credentials(PeerRole.OPERATOR).certificate.encode())
    if printed_as_json(
        arguments,
        {
            "cluster": ring.cluster,
            "directory": str(ring.directory),
            "is_owner": ring.is_whole,
            "number": ring.number,
            "ends": ends.isoformat(),
        },
    ):
        return 0
    whose = "its owner" if ring.is_whole else "an operator"
    what = f"credentials {ring.number} of cluster {ring.cluster}, for {whose}"
    Progress().say(f"{ring.directory}: {what}; they expire on {ends:%Y-%m-%d}")
    return 0


def _rotate(arguments: argparse.Namespace) -> int:
    ring = require(arguments.cluster or arguments.job)
    progress, deadline = Progress(is_quiet=arguments.json), Deadline(arguments.timeout)
    with open_zookeeper(arguments) as zookeeper:
        if not zookeeper.tree.exists():
            if not ring.has_expired:
                raise BadConfiguration(f"there is no cluster {ring.cluster}")
            # Of a cluster that was deleted; its next submit needs valid ones.
            number = renew(ring)
        elif zookeeper.tree.is_open:
            raise BadConfiguration(
                f"the tree of {ring.cluster} is open: everybody could read the keys there. Close it first: "
                f"standfast protect {ring.cluster}"
            )
        else:
            number = rotate(
                ring,
                zookeeper.credentials,
                lambda: running_processes(zookeeper.registry),
                handshake_failure,
                progress.say,
                deadline,
            )
    if not printed_as_json(arguments, {"cluster": ring.cluster, "number": number}):
        progress.say(f"{ring.cluster} has credentials {number}; operators need new ones issued")
    return 0


def _issue(arguments: argparse.Namespace) -> int:
    ring = require(arguments.cluster or arguments.job)
    issued = ring.issue(arguments.name, arguments.to / ring.cluster)
    if arguments.zookeeper:
        # An operator without a secret for ZooKeeper needs to know candidates to ask.
        with suppress(Unavailable), ClusterClient(ring.cluster, arguments.zookeeper) as client:
            known = [f"{each['host']}:{each['port']}" for each in client.info()["candidates"]]
            with ClusterClient(ring.cluster, arguments.zookeeper, issued, known) as theirs:
                theirs.info()
    if not printed_as_json(
        arguments, {"cluster": ring.cluster, "directory": str(arguments.to), "name": arguments.name}
    ):
        Progress().say(f"hand over {arguments.to}: {arguments.name} has to set STANDFAST_CREDENTIALS to it")
    return 0
