"""Bundles of code in ZooKeeper: written by whoever submits or upgrades a job, read by every new container.

A bundle is named by its checksum, so writing it is idempotent and needs no epoch: two that write the same
bundle at once write the same bytes. The marker comes last, and only a bundle with a marker exists.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from standby import bundles, naming


def has_code(client: Any, cluster: str, digest: str) -> bool:
    """Return whether the bundle is there, completely."""
    return client.exists(naming.code_complete_path(cluster, digest)) is not None


def put_code(client: Any, cluster: str, digest: str, data: bytes) -> None:
    """Write the bundle part by part, and the marker last; nothing when it is there already.

    Raises `CorruptState` when ``data`` is not the bundle called ``digest``.
    """
    bundles.check(digest, data)
    if has_code(client, cluster, digest):
        return
    parts = bundles.chunks(data)
    client.ensure_path(naming.code_path(cluster, digest))
    for number, part in enumerate(parts):
        path = naming.code_part_path(cluster, digest, number)
        try:
            client.create(path, part)
        except NodeExistsError:
            # Of an earlier writer that did not come to the end, or of one that is just at it: the same bytes.
            client.set(path, part)
    with suppress(NodeExistsError):
        client.create(naming.code_complete_path(cluster, digest), str(len(parts)).encode())


def delete_code(client: Any, cluster: str, digest: str) -> None:
    """Remove the bundle, its marker first; nothing when it is not there."""
    with suppress(NoNodeError):
        client.delete(naming.code_complete_path(cluster, digest))
    with suppress(NoNodeError):
        client.delete(naming.code_path(cluster, digest), recursive=True)


def list_code(client: Any, cluster: str) -> tuple[str, ...]:
    """Return the digests of all bundles, those that were never completed included."""
    try:
        return tuple(sorted(client.get_children(naming.code_root_path(cluster))))
    except NoNodeError:
        return ()
