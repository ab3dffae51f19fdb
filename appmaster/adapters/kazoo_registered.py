"""Who is registered in ZooKeeper at this moment: the candidates and the containers of a cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from kazoo.exceptions import NoNodeError

from appmaster import records as bodies
from appmaster.adapters.kazoo_reads import read_many
from appmaster.records import CandidateRecord
from appmaster.registered import Registration
from standby import naming
from standby import records as shared
from standby.errors import BadConfiguration
from standby.records import ContainerRecord

_log = logging.getLogger(__name__)

_Body = TypeVar("_Body")


def clusters(client: Any) -> tuple[str, ...]:
    """Return the names of all clusters."""
    try:
        return tuple(sorted(client.get_children(naming.ROOT)))
    except NoNodeError:
        return ()


def candidates(client: Any, cluster: str) -> tuple[CandidateRecord, ...]:
    """Return every registered candidate."""
    path = f"{naming.cluster_path(cluster)}/candidates"
    return tuple(each for each, _ in _readable(client, path, partial(bodies.decode, kind=CandidateRecord)))


def containers(client: Any, cluster: str) -> tuple[ContainerRecord, ...]:
    """Return every registered container."""
    return tuple(each.record for each in registrations(client, cluster))


def registrations(client: Any, cluster: str) -> tuple[Registration, ...]:
    """Return every registered container with its incarnation."""
    path = f"{naming.cluster_path(cluster)}/containers"
    return tuple(
        Registration(each, created) for each, created in _readable(client, path, shared.decode_container)
    )


def container_names(client: Any, cluster: str, watch: Callable[..., None] | None) -> frozenset[str]:
    """Return the ids of the registered containers; ``watch`` is called once when one comes or goes."""
    try:
        return frozenset(client.get_children(f"{naming.cluster_path(cluster)}/containers", watch=watch))
    except NoNodeError:
        return frozenset()


def _readable(client: Any, path: str, decode: Callable[[bytes, str], _Body]) -> Iterator[tuple[_Body, int]]:
    """Yield the children of a node, decoded, and the transaction that created each.

    One that goes meanwhile is left out, and so is one that cannot be read: every candidate reads all of them before
    it leads, and none would for as long as that one is there.
    """
    try:
        names = client.get_children(path)
    except NoNodeError:
        return
    for child, data, stat in read_many(client, [f"{path}/{each}" for each in sorted(names)]):
        try:
            yield decode(data, child), stat.czxid
        except BadConfiguration as error:
            _log.error("left out: %s", error)
