"""Bundles of code in ZooKeeper: what is left there for candidates that are yet to come, and tombstones.

A bundle is named by its checksum, so writing it is idempotent and needs no epoch: two that write the same
bundle at once write the same bytes. The marker comes last, and only a bundle with a marker exists.

Deleting leaves a tombstone; candidates remove the bundle when it has stood for long enough
(`appmaster.code.rules`). Whoever writes a bundle again removes the tombstone first, which a later removal notices.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from appmaster import records as bodies
from appmaster.records import DeletedRecord, JobRecord
from appmaster.revising import codes
from standby import bundles, naming
from standby.errors import BadConfiguration


def has_code(client: Any, cluster: str, digest: str) -> bool:
    """Return whether the bundle lies in ZooKeeper, completely."""
    return client.exists(naming.code_complete_path(cluster, digest)) is not None


def put_code(client: Any, cluster: str, digest: str, data: bytes) -> None:
    """Write the bundle part by part, and the marker last; nothing when it is there already.

    Raises `CorruptState` when ``data`` is not the bundle called ``digest``, `BadConfiguration` when it is too large.
    """
    bundles.check(digest, data)
    if len(data) > bundles.LEFT_BYTES:
        raise BadConfiguration(
            f"job.modules: packed they are {len(data) >> 20} MiB, too much for ZooKeeper, and no candidate takes them "
            "now; use code.distributor=hdfs, or put data and large libraries into job.python.archive"
        )
    revive_code(client, cluster, digest)
    if has_code(client, cluster, digest):
        return
    parts = bundles.chunks(data)
    client.ensure_path(naming.code_parts_path(cluster, digest))
    for number, part in enumerate(parts):
        path = naming.code_part_path(cluster, digest, number)
        try:
            client.create(path, part)
        except NodeExistsError:
            # Of an earlier writer that did not come to the end, or of one that is just at it: the same bytes.
            client.set(path, part)
    with suppress(NodeExistsError):
        client.create(naming.code_complete_path(cluster, digest), str(len(parts)).encode())


def revive_code(client: Any, cluster: str, digest: str) -> None:
    """Make sure that the bundle has a node, and no tombstone."""
    path = naming.code_path(cluster, digest)
    while True:
        client.ensure_path(path)
        # Removed between the two: once more. After `set` nobody removes it, for its version has changed.
        with suppress(NoNodeError):
            if client.get(path)[0]:
                client.set(path, b"")
            return


def tombstone() -> DeletedRecord:
    """Return what a bundle's node says once it is deleted."""
    return DeletedRecord(time.time_ns() // 1_000_000)


def is_named(client: Any, cluster: str, digest: str) -> bool:
    """Return whether some job names a bundle; raises `BadConfiguration` when a job's record cannot be read."""
    root = naming.jobs_path(cluster)
    for each in client.get_children(root):
        path = f"{root}/{each}"
        with suppress(NoNodeError):
            if digest in codes(bodies.decode(client.get(path)[0], path, JobRecord)):
                return True
    return False


def bury_code(client: Any, cluster: str, digest: str, version: int) -> bool:
    """Remove all of a bundle from ZooKeeper; False when its node is not of ``version`` or a candidate holds it."""
    path, parts = naming.code_path(cluster, digest), naming.code_parts_path(cluster, digest)
    transaction = client.transaction()
    try:
        if naming.CODE_PARTS in client.get_children(path):
            for each in client.get_children(parts):
                transaction.delete(f"{parts}/{each}")
            transaction.delete(parts)
    except NoNodeError:
        return True
    transaction.delete(path, version=version)
    return not any(isinstance(each, Exception) for each in transaction.commit())


def list_code(client: Any, cluster: str) -> tuple[str, ...]:
    """Return the digests of all bundles that are not deleted, those that were never completed included."""
    found = []
    root = naming.code_root_path(cluster)
    with suppress(NoNodeError):
        for each in sorted(client.get_children(root)):
            with suppress(NoNodeError):
                if not client.get(f"{root}/{each}")[0]:
                    found.append(each)
    return tuple(found)
