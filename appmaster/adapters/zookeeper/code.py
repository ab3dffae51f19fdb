"""Bundles of code in ZooKeeper, for candidates that do not run yet, and the directory of their holders.

A bundle is named by its checksum, so writing it is idempotent and needs no epoch: two clients that write the same
bundle at once write the same bytes. The marker comes last, and only a bundle with a marker exists.

A deletion leaves a tombstone; candidates remove the bundle when the tombstone is old enough (`appmaster.code.rules`).
A client that writes a bundle again removes the tombstone first, which a later removal notices.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from kazoo.exceptions import NodeExistsError, NoNodeError

from appmaster import records as bodies
from appmaster.adapters.zookeeper.calls import children, read, translated
from appmaster.adapters.zookeeper.election import commit, deposed_by, has_failed, transaction_of
from appmaster.adapters.zookeeper.watched_tree import WatchedTree
from appmaster.changes.ports import Nodes, Znode
from appmaster.changes.revisions import codes
from appmaster.code.activation import needs
from appmaster.code.rules import Directory, JobNeeds
from appmaster.records import DeletedRecord, JobRecord
from standby.code import bundles
from standby.errors import BadConfiguration
from standby.shared import naming
from standby.shared import records as shared
from standby.shared.peers import BundleSource

_log: Final = logging.getLogger(__name__)


class ZooKeeperBundles:
    """The bundles of one cluster. Every call may raise `Transient`."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster

    def has(self, digest: str) -> bool:
        """Return whether the bundle exists, completely."""
        with translated("looking for a bundle of code"):
            return self._client.exists(naming.code_complete_path(self._cluster, digest)) is not None

    def put(self, digest: str, data: bytes) -> None:
        """Write a bundle (`standby.code.bundles`) part by part, and the marker last; nothing if it exists already.

        Raises `CorruptState` if ``data`` does not have the checksum ``digest``, `BadConfiguration` if it is too large.
        """
        bundles.check(digest, data)
        if len(data) > bundles.LEFT_BYTES:
            raise BadConfiguration(
                f"job.modules: {len(data) >> 20} MiB when packed, too much for ZooKeeper, and no candidate takes "
                "them now; use code.distributor=hdfs, or put data and large libraries into job.python.archive"
            )
        with translated("writing a bundle of code"):
            self.revive(digest)
            if self.has(digest):
                return
            parts = bundles.chunks(data)
            self._client.ensure_path(naming.code_parts_path(self._cluster, digest))
            for number, part in enumerate(parts):
                path = naming.code_part_path(self._cluster, digest, number)
                try:
                    self._client.create(path, part)
                except NodeExistsError:
                    # Left by an earlier, unfinished writer, or written by another at this moment: the same bytes.
                    self._client.set(path, part)
            with suppress(NodeExistsError):
                self._client.create(
                    naming.code_complete_path(self._cluster, digest), str(len(parts)).encode()
                )

    def revive(self, digest: str) -> None:
        """Ensure that the bundle has a node, and no tombstone."""
        path = naming.code_path(self._cluster, digest)
        with translated("reviving a bundle"):
            while True:
                self._client.ensure_path(path)
                # If it is removed between the two calls: once more. After `set` its new version prevents a removal.
                with suppress(NoNodeError):
                    if self._client.get(path)[0]:
                        self._client.set(path, b"")
                    return

    def names(self) -> tuple[str, ...]:
        """Return the digests of all bundles that are not deleted, including incomplete ones."""
        found = []
        root = naming.code_root_path(self._cluster)
        with translated("listing the bundles of code"):
            for each in children(self._client, root):
                with suppress(NoNodeError):
                    if not self._client.get(f"{root}/{each}")[0]:
                        found.append(each)
        return tuple(found)

    def is_named(self, digest: str) -> bool:
        """Return whether a job names a bundle; raises `BadConfiguration` if a job's record cannot be read."""
        root = naming.jobs_path(self._cluster)
        with translated("looking for jobs that name a bundle"):
            for each in self._client.get_children(root):
                path = f"{root}/{each}"
                with suppress(NoNodeError):
                    if digest in codes(bodies.decode(self._client.get(path)[0], path, JobRecord)):
                        return True
        return False

    def withdraw(self, digest: str) -> bool:
        """Remove a bundle while nothing of the cluster runs; return False if a job names it, and it stays."""
        with translated("withdrawing a bundle of code"):
            with suppress(NoNodeError):
                if self.is_named(digest):
                    return False
            with suppress(NoNodeError):
                self._client.delete(naming.code_path(self._cluster, digest), recursive=True)
        return True

    def bury(self, digest: str, version: int) -> bool:
        """Remove all of a deleted bundle; False if its node is not of ``version`` or a candidate holds it."""
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


def tombstone() -> DeletedRecord:
    """Return the content of a deleted bundle's node."""
    return DeletedRecord(time.time_ns() // 1_000_000)


class ZooKeeperCodeDirectory:
    """A `appmaster.code.ports.CodeDirectory`.

    It reads through watches, and writes through ``client``, which is started and still belongs to the caller.
    """

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
        self._bundles = ZooKeeperBundles(client, cluster)
        self._tree = WatchedTree(
            client, naming.cluster_path(cluster), ("candidates/*", "code/*", "code/*/*", "jobs/*")
        )
        self._needs: dict[str, tuple[Znode, JobNeeds]] = {}

    def start(self, changed: Callable[[], None]) -> None:
        """Start reading."""
        self._tree.listen(changed)
        self._tree.start()

    def close(self) -> None:
        """Stop reading."""
        self._tree.close()

    def read(self) -> Directory | None:
        """Return what the watches have read; called by one thread."""
        return self._directory(self._tree.nodes) if self._tree.is_complete else None

    def fresh(self, timeout_seconds: float) -> Directory:
        """Return the present content."""
        return self._directory(self._tree.fresh(timeout_seconds))

    def announce(self, bundle: str, source: BundleSource) -> None:
        """Create the source's ephemeral node."""
        path = naming.code_source_path(self._cluster, bundle, source.candidate)
        with translated("announcing a bundle"):
            # Never with the parents of its parent: the tree of a deleted cluster must not be created again.
            with suppress(NodeExistsError, NoNodeError):
                self._client.create(naming.code_path(self._cluster, bundle))
            with suppress(NodeExistsError, NoNodeError):
                self._client.create(path, shared.encode_source(source), ephemeral=True)

    def withdraw(self, bundle: str, source: BundleSource) -> None:
        """Delete the source's node."""
        with translated("withdrawing a bundle"), suppress(NoNodeError):
            self._client.delete(naming.code_source_path(self._cluster, bundle, source.candidate))

    def revive(self, bundle: str) -> None:
        """Remove a bundle's tombstone."""
        self._bundles.revive(bundle)

    def condemn(self, bundle: str, epoch: int) -> None:
        """Write a bundle's tombstone, in a transaction that checks the epoch and that the bundle's node is unchanged.

        Whether a job names it is read again, with a sync, because this candidate may not have seen the latest jobs. A
        change that names it meanwhile changes the bundle's node in the same transaction (`ZooKeeperChanges`).
        """
        path = naming.code_path(self._cluster, bundle)
        with translated("condemning a bundle"):
            self._client.sync(path)
            found = read(self._client, path)
            if found is None or found[0] or self._bundles.is_named(bundle):
                return
            transaction = transaction_of(self._client, self._cluster, epoch)
            transaction.set_data(path, bodies.encode(tombstone()), version=found[1].version)
            commit(transaction, deposed_by(epoch))
        _log.info("no job has named bundle %s for a long time; it is marked as deleted", bundle)

    def bury(self, bundle: str, version: int) -> bool:
        """Remove the node of a deleted bundle."""
        return self._bundles.bury(bundle, version)

    def activate(self, job: str, run: str, revision: int, epoch: int) -> None:
        """Write the job's record, in a transaction that checks the epoch.

        The record is read again: the job may have been deleted and created again since, with other code.
        """
        path = naming.job_path(self._cluster, job)
        with translated("activating a job"):
            found = read(self._client, path)
            if found is None:
                return
            record = bodies.decode(found[0], path, JobRecord)
            if record.definition.run != run or record.activated >= revision:
                return
            transaction = transaction_of(self._client, self._cluster, epoch)
            changed = msgspec.structs.replace(record, activated=revision)
            transaction.set_data(path, bodies.encode(changed), version=found[1].version)
            commit(transaction, deposed_by(epoch))
        # If another client changed the record meanwhile, the watch reports it; then it is looked at again.

    def _directory(self, nodes: Nodes) -> Directory:
        candidates: set[str] = set()
        sources: dict[str, tuple[BundleSource, ...]] = {}
        jobs: list[JobNeeds] = []
        deleted: dict[str, int] = {}
        for path, node in nodes.items():
            try:
                match path.split("/"):
                    case ("candidates", name):
                        candidates.add(name)
                    case ("code", bundle):
                        sources.setdefault(bundle, ())
                        if node.data:
                            deleted[bundle] = node.version
                    case ("code", bundle, name) if name != naming.CODE_PARTS:
                        found = shared.decode_source(node.data, path)
                        sources[bundle] = (*sources.get(bundle, ()), found)
                    case ("jobs", name):
                        jobs.append(self._needs_of(name, path, node))
            except BadConfiguration as error:
                _log.warning("not counted: %s", error)
        return Directory(frozenset(candidates), sources, tuple(jobs), deleted)

    def _needs_of(self, job: str, path: str, node: Znode) -> JobNeeds:
        known = self._needs.get(job)
        if known is None or known[0] != node:
            # Checking a configuration takes time, and most changes concern something else.
            known = (node, needs(bodies.decode(node.data, path, JobRecord)))
            self._needs[job] = known
        return known[1]
