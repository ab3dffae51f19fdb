"""The cluster that a command is about: options that name it, a session with its ZooKeeper, and a client of it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from appmaster.adapters.credentials.keyring import access_to, anonymous_access
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from appmaster.changes.operations import CurrentJob
from appmaster.cli.shared.parsers import Subparsers, add_command, cluster_name
from appmaster.records import JobRecord
from standby.errors import BadConfiguration


def add_cluster_options(parser: argparse.ArgumentParser, default: str = "the job's") -> None:
    """Add the options that name the cluster, and ``--json``."""
    parser.add_argument(
        "--cluster", metavar="NAME", type=cluster_name, help=f"the cluster's name (default: {default})"
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        default=os.environ.get("STANDFAST_ZOOKEEPER", ""),
        help="ZooKeeper servers (default: $STANDFAST_ZOOKEEPER)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_job_command(
    subparsers: Subparsers[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    doc: str | None,
    aliases: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Return the parser of a new command whose first argument is a job; the parameters are those of `add_command`."""
    parser = add_command(subparsers, name, run, text, doc, aliases)
    parser.add_argument("job", metavar="JOB", help="the job's name")
    add_cluster_options(parser)
    return parser


def add_command_of_cluster(
    subparsers: Subparsers[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    doc: str | None,
) -> argparse.ArgumentParser:
    """Return the parser of a new command whose first argument is a cluster; the parameters are those of `add_command`.

    A cluster that one job has started without `cluster.name` has the name of that job.
    """
    parser = add_command(subparsers, name, run, text, doc)
    parser.add_argument("job", metavar="CLUSTER", help="the cluster's name, or a job of it with --cluster")
    add_cluster_options(parser, "CLUSTER")
    return parser


def servers_of(arguments: argparse.Namespace) -> str:
    """Return the ZooKeeper servers that the arguments name; raises `BadConfiguration` if they name none."""
    if not arguments.zookeeper:
        raise BadConfiguration("give --zookeeper HOSTS or set STANDFAST_ZOOKEEPER")
    return str(arguments.zookeeper)


def open_zookeeper(arguments: argparse.Namespace) -> ZooKeeper:
    """Return an unopened session for the cluster that the arguments name; raises `BadConfiguration`."""
    cluster = arguments.cluster or arguments.job
    return ZooKeeper(servers_of(arguments), cluster, access=access_to(cluster))


def open_client(arguments: argparse.Namespace) -> ClusterClient:
    """Return a client of the cluster that the arguments name; raises `BadConfiguration`."""
    return ClusterClient(arguments.cluster or arguments.job, servers_of(arguments))


def present_job(job: str, client: ClusterClient) -> CurrentJob:
    """Return the job as it is; raises `BadConfiguration` if there is no such job."""
    present = client.present(job)
    if present is None:
        raise BadConfiguration(
            f"there is no job {job} in its cluster; is the name right, or --cluster missing?"
        )
    return present


def record_of(job: str, client: ClusterClient) -> JobRecord:
    """Return the job's record; raises as `present_job`."""
    return present_job(job, client).record


def cluster_of(arguments: argparse.Namespace) -> str:
    """Return the name of the cluster that is meant; raises `BadConfiguration` if that is ambiguous."""
    servers = servers_of(arguments)
    if arguments.cluster:
        return str(arguments.cluster)
    with ZooKeeper(servers, "", access=anonymous_access()) as zookeeper:
        names = zookeeper.registry.clusters()
    if len(names) != 1:
        raise BadConfiguration(
            f"there are {len(names)} clusters ({', '.join(names)}); say which with --cluster"
            if names
            else "there is no cluster on these ZooKeeper servers"
        )
    return names[0]


def known_client(arguments: argparse.Namespace) -> ClusterClient:
    """Return a client of the job's cluster; raises `BadConfiguration` if there is no such job."""
    client = open_client(arguments)
    try:
        record_of(arguments.job, client)
    except BaseException:
        client.close()
        raise
    return client
