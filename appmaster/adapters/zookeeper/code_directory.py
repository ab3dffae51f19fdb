"""The directory of code in ZooKeeper: a `appmaster.code.ports.CodeDirectory`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from kazoo.exceptions import NodeExistsError, NoNodeError

from appmaster import records as bodies
from appmaster.adapters.zookeeper.calls import read, translated
from appmaster.adapters.zookeeper.code import ZooKeeperBundles, tombstone
from appmaster.adapters.zookeeper.election import after, commit, transaction_of
from appmaster.adapters.zookeeper.watched_tree import WatchedTree
from appmaster.changes.ports import Node, Nodes
from appmaster.code.activation import needs
from appmaster.code.rules import Directory, JobNeeds
from appmaster.records import JobRecord
from standby.errors import BadConfiguration
from standby.shared import naming
from standby.shared import records as shared
from standby.shared.peers import BundleSource

_log: Final = logging.getLogger(__name__)


class ZooKeeperCodeDirectory:
    """Reads by watches, writes through ``client``, which is started and stays its owner's."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
        self._bundles = ZooKeeperBundles(client, cluster)
        self._tree = WatchedTree(
            client, naming.cluster_path(cluster), ("candidates/*", "code/*", "code/*/*", "jobs/*")
        )
        self._needs: dict[str, tuple[Node, JobNeeds]] = {}

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to read."""
        self._tree.listen(changed)
        self._tree.start()

    def close(self) -> None:
        """Read no more."""
        self._tree.close()

    def read(self) -> Directory | None:
        """Return what the watches brought; one thread asks."""
        return self._directory(self._tree.nodes) if self._tree.is_complete else None

    def fresh(self, timeout_seconds: float) -> Directory:
        """Return what is there now."""
        return self._directory(self._tree.fresh(timeout_seconds))

    def announce(self, bundle: str, source: BundleSource) -> None:
        """Create the source's ephemeral node."""
        path = naming.code_source_path(self._cluster, bundle, source.candidate)
        with translated("announcing a bundle"):
            # Never with its parents' parents: the tree of a cluster that was deleted must not come again.
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
        """Write a bundle's tombstone, in a transaction that checks the epoch and that nobody touched the bundle.

        That no job names it is read anew, with a sync: what this candidate has seen may lack the latest. Whoever
        names it meanwhile changes the bundle's node in the same transaction (`ZooKeeperChanges`).
        """
        path = naming.code_path(self._cluster, bundle)
        with translated("condemning a bundle"):
            self._client.sync(path)
            found = read(self._client, path)
            if found is None or found[0] or self._bundles.is_named(bundle):
                return
            transaction = transaction_of(self._client, self._cluster, epoch)
            transaction.set_data(path, bodies.encode(tombstone()), version=found[1].version)
            commit(transaction, after(epoch))
        _log.info("bundle %s has been named by no job for long; it is marked as deleted", bundle)

    def bury(self, bundle: str, version: int) -> bool:
        """Remove the node of a deleted bundle."""
        return self._bundles.bury(bundle, version)

    def activate(self, job: str, revision: int, epoch: int) -> None:
        """Write the job's record, in a transaction that checks the epoch."""
        path = naming.job_path(self._cluster, job)
        with translated("activating a job"):
            found = read(self._client, path)
            if found is None:
                return
            record = bodies.decode(found[0], path, JobRecord)
            if record.activated >= revision:
                return
            transaction = transaction_of(self._client, self._cluster, epoch)
            changed = msgspec.structs.replace(record, activated=revision)
            transaction.set_data(path, bodies.encode(changed), version=found[1].version)
            commit(transaction, after(epoch))
        # Of a record that somebody else changed meanwhile, the watch tells; then it is looked at again.

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

    def _needs_of(self, job: str, path: str, node: Node) -> JobNeeds:
        known = self._needs.get(job)
        if known is None or known[0] != node:
            # Checking a configuration is not free, and most changes are of something else.
            known = (node, needs(bodies.decode(node.data, path, JobRecord)))
            self._needs[job] = known
        return known[1]
