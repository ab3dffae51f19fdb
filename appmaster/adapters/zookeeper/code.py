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
from appmaster.adapters.zookeeper.calls import translated
from appmaster.adapters.zookeeper.election import has_failed
from appmaster.changes.revisions import codes
from appmaster.records import DeletedRecord, JobRecord
from standby.code import bundles
from standby.errors import BadConfiguration
from standby.shared import naming


class ZooKeeperBundles:
    """The bundles of one cluster. Every call may raise `Transient`."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster

    def has(self, digest: str) -> bool:
        """Return whether the bundle is there, completely."""
        with translated("looking for a bundle of code"):
            return self._has(digest)

    def put(self, digest: str, data: bytes) -> None:
        """Write a bundle (`standby.code.bundles`) part by part, and the marker last; nothing when it is there already.

        Raises `CorruptState` when ``data`` is not what ``digest`` says, `BadConfiguration` when it is too large.
        """
        bundles.check(digest, data)
        if len(data) > bundles.LEFT_BYTES:
            raise BadConfiguration(
                f"job.modules: packed they are {len(data) >> 20} MiB, too much for ZooKeeper, and no candidate takes "
                "them now; use code.distributor=hdfs, or put data and large libraries into job.python.archive"
            )
        with translated("writing a bundle of code"):
            self._revive(digest)
            if self._has(digest):
                return
            parts = bundles.chunks(data)
            self._client.ensure_path(naming.code_parts_path(self._cluster, digest))
            for number, part in enumerate(parts):
                path = naming.code_part_path(self._cluster, digest, number)
                try:
                    self._client.create(path, part)
                except NodeExistsError:
                    # Of an earlier writer that did not come to the end, or of one that is just at it: the same bytes.
                    self._client.set(path, part)
            with suppress(NodeExistsError):
                self._client.create(
                    naming.code_complete_path(self._cluster, digest), str(len(parts)).encode()
                )

    def revive(self, digest: str) -> None:
        """Make sure that the bundle has a node, and no tombstone."""
        with translated("reviving a bundle"):
            self._revive(digest)

    def names(self) -> tuple[str, ...]:
        """Return the digests of all bundles that are not deleted, those that were never completed included."""
        found = []
        root = naming.code_root_path(self._cluster)
        with translated("listing the bundles of code"), suppress(NoNodeError):
            for each in sorted(self._client.get_children(root)):
                with suppress(NoNodeError):
                    if not self._client.get(f"{root}/{each}")[0]:
                        found.append(each)
        return tuple(found)

    def is_named(self, digest: str) -> bool:
        """Return whether some job names a bundle; raises `BadConfiguration` when a job's record cannot be read."""
        with translated("looking who names a bundle"):
            return self._is_named(digest)

    def withdraw(self, digest: str) -> bool:
        """Remove a bundle, while nothing of the cluster runs; return False when a job names it, and it stays."""
        with translated("withdrawing a bundle of code"):
            with suppress(NoNodeError):
                if self._is_named(digest):
                    return False
            with suppress(NoNodeError):
                self._client.delete(naming.code_path(self._cluster, digest), recursive=True)
        return True

    def bury(self, digest: str, version: int) -> bool:
        """Remove all of a deleted bundle; False when its node is not of ``version`` or a candidate holds it."""
        path, parts = naming.code_path(self._cluster, digest), naming.code_parts_path(self._cluster, digest)
        with translated("removing a bundle"):
            transaction = self._client.transaction()
            try:
                if naming.CODE_PARTS in self._client.get_children(path):
                    for each in self._client.get_children(parts):
                        transaction.delete(f"{parts}/{each}")
                    transaction.delete(parts)
            except NoNodeError:
                return True
            transaction.delete(path, version=version)
            return not has_failed(transaction.commit())

    def _has(self, digest: str) -> bool:
        return self._client.exists(naming.code_complete_path(self._cluster, digest)) is not None

    def _revive(self, digest: str) -> None:
        path = naming.code_path(self._cluster, digest)
        while True:
            self._client.ensure_path(path)
            # Removed between the two: once more. After `set` nobody removes it, for its version has changed.
            with suppress(NoNodeError):
                if self._client.get(path)[0]:
                    self._client.set(path, b"")
                return

    def _is_named(self, digest: str) -> bool:
        root = naming.jobs_path(self._cluster)
        for each in self._client.get_children(root):
            path = f"{root}/{each}"
            with suppress(NoNodeError):
                if digest in codes(bodies.decode(self._client.get(path)[0], path, JobRecord)):
                    return True
        return False


def tombstone() -> DeletedRecord:
    """Return what a bundle's node says once it is deleted."""
    return DeletedRecord(time.time_ns() // 1_000_000)
