"""Who is registered in ZooKeeper at this moment: the candidates and the containers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kazoo.exceptions import NoNodeError

from appmaster import records as bodies
from appmaster.records import CandidateRecord
from standby import naming
from standby import records as shared
from standby.records import ContainerRecord


def clusters(client: Any) -> tuple[str, ...]:
    """Return the names of all clusters."""
    try:
        return tuple(sorted(client.get_children(naming.ROOT)))
    except NoNodeError:
        return ()


def candidates(client: Any, cluster: str) -> tuple[CandidateRecord, ...]:
    """Return every registered candidate."""
    found = _children(client, f"{naming.cluster_path(cluster)}/candidates")
    return tuple(bodies.decode(data, path, CandidateRecord) for path, data in found)


def containers(client: Any, cluster: str) -> tuple[ContainerRecord, ...]:
    """Return every registered container."""
    found = _children(client, f"{naming.cluster_path(cluster)}/containers")
    return tuple(shared.decode_container(data, path) for path, data in found)


def _children(client: Any, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the children of a node with their data; one that goes meanwhile is left out."""
    try:
        names = client.get_children(path)
    except NoNodeError:
        return
    # All asked for at once: one by one, a thousand containers would take a second.
    for child, pending in [(f"{path}/{each}", client.get_async(f"{path}/{each}")) for each in sorted(names)]:
        with suppress(NoNodeError):
            yield child, pending.get()[0]
