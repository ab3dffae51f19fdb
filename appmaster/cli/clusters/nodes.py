"""``standfast nodes``: the processes of a cluster's pool, as ZooKeeper has them.

Each with its host, what it offers, since when it waits, and the job that it was claimed for. No leader is needed; with
one, processes that are asked to end (SIGTERM) and still hand over show as leaving.

Exit status: 0 listed; 1 there is none; 2 no such cluster, or one on YARN; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from appmaster.adapters.credentials.keyring import access_to
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from appmaster.cli.shared import yarn
from appmaster.cli.shared.cluster import add_cluster_options, cluster_of
from appmaster.cli.shared.output import attributes_in_words, local_time, print_table, printed_as_json
from appmaster.cli.shared.parsers import add_command
from standby.errors import BadConfiguration, StandfastError
from standby.shared.records import MemberRecord
from standby.shared.wire import PROTOCOL


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``nodes`` on the command line."""
    text = "list the processes of a cluster's pool"
    add_cluster_options(add_command(subparsers, "nodes", _nodes, text, __doc__), "the only one there is")


def _nodes(arguments: argparse.Namespace) -> int:
    cluster = cluster_of(arguments)
    with ZooKeeper(arguments.zookeeper, cluster, access=access_to(cluster)) as zookeeper:
        if not zookeeper.tree.exists():
            raise BadConfiguration(f"there is no cluster {cluster}")
        if not yarn.is_pool(zookeeper):
            raise BadConfiguration(f"cluster {cluster} is not on a pool; see `standfast cells`")
        members = zookeeper.pool.read(sorted(zookeeper.pool.names())).values()
    leaving = _leaving(cluster, arguments.zookeeper) if any(each.record.claim for each in members) else set()
    found = [described(each.record, leaving) for each in members]
    if not printed_as_json(arguments, found):
        print_table(_HEADINGS, [_row(each) for each in found])
    return 0 if found else 1


def _leaving(cluster: str, servers: str) -> AbstractSet[str]:
    """Return the containers that the leader knows to be asked to end; empty if none answers."""
    try:
        with ClusterClient(cluster, servers) as client:
            containers = client.status()["containers"]
    except StandfastError:
        return set()
    return {each["container"] for each in containers if each["leaving"]}


def described(record: MemberRecord, leaving: AbstractSet[str]) -> dict[str, Any]:
    """Return what is shown of a process. ``leaving``: those that are asked to end, as far as is known. Pure."""
    if record.is_released:
        state = "given back"
    elif record.claim:
        state = "leaving" if record.container in leaving else "claimed"
    else:
        # Nothing of another version of the protocol is claimed.
        state = "waiting" if record.protocol == PROTOCOL else "other version"
    offer = record.offer
    return {
        "process": record.container,
        "host": record.host,
        "pid": record.pid,
        "state": state,
        "job": record.job or None,
        "since_ms": record.since_ms or None,
        "group": offer.group or None,
        "memory_mb": offer.memory_mb or None,
        "cores": offer.cores or None,
        "tasks": offer.tasks or None,
        "attributes": dict(offer.attributes),
        "protocol": record.protocol,
        "version": record.standfast,
    }


_HEADINGS = (
    *("PROCESS", "HOST", "STATE", "JOB", "SINCE", "GROUP", "MEMORY", "CORES", "TASKS", "ATTRIBUTES"),
    *("PROTOCOL", "VERSION"),
)


def _row(found: Mapping[str, Any]) -> tuple[object, ...]:
    since, memory = found["since_ms"], found["memory_mb"]
    return (
        *(found["process"], found["host"], found["state"], found["job"]),
        local_time(since) if since else None,
        found["group"],
        f"{memory} MiB" if memory else None,
        *(found["cores"], found["tasks"]),
        attributes_in_words(found["attributes"]),
        *(found["protocol"], found["version"]),
    )
