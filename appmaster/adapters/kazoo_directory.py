"""The directory of code in ZooKeeper: a `appmaster.code.ports.CodeDirectory`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

from appmaster import records as bodies
from appmaster.adapters import kazoo_code
from appmaster.adapters.kazoo_tree import Node, Nodes, WatchedTree
from appmaster.code.activation import needs
from appmaster.code.rules import Directory, JobNeeds
from appmaster.records import JobRecord
from standby import naming
from standby import records as shared
from standby.errors import BadConfiguration, Fenced, Transient
from standby.peers import Holder

_log: Final = logging.getLogger(__name__)

_AWAY: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    SessionExpiredError,
    OperationTimeoutError,
    KazooTimeoutError,
)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise `Transient` instead of what kazoo raises when no server answers, `BadConfiguration` when it may not."""
    try:
        yield
    except _AWAY as error:
        raise Transient(f"ZooKeeper did not answer while {what}: {type(error).__name__}") from error
    except NoAuthError as error:
        raise BadConfiguration(f"ZooKeeper refused {what}: nodes are closed to these credentials") from error


def epoch_version(client: Any, cluster: str, epoch: int) -> int:
    """Return the version of the epoch's node, to be checked by a leader's write.

    Raises `Fenced` when ``epoch`` is not the newest: its leader can write nothing any more.
    """
    data, stat = client.get(naming.controller_epoch_path(cluster))
    if int(data) != epoch:
        raise Fenced(f"epoch {int(data)} has come after epoch {epoch}")
    version: int = stat.version
    return version


class KazooCodeDirectory:
    """Reads by watches, writes through ``client``, which is started and stays its owner's."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
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

    def announce(self, bundle: str, holder: Holder) -> None:
        """Create the holder's ephemeral node."""
        path = naming.code_holder_path(self._cluster, bundle, holder.candidate)
        with translated("announcing a bundle"):
            # Never with its parents' parents: the tree of a cluster that was deleted must not come again.
            with suppress(NodeExistsError, NoNodeError):
                self._client.create(naming.code_path(self._cluster, bundle))
            with suppress(NodeExistsError, NoNodeError):
                self._client.create(path, shared.encode_holder(holder), ephemeral=True)

    def withdraw(self, bundle: str, holder: Holder) -> None:
        """Delete the holder's node."""
        with translated("withdrawing a bundle"), suppress(NoNodeError):
            self._client.delete(naming.code_holder_path(self._cluster, bundle, holder.candidate))

    def revive(self, bundle: str) -> None:
        """Remove a bundle's tombstone."""
        with translated("reviving a bundle"):
            kazoo_code.revive_code(self._client, self._cluster, bundle)

    def condemn(self, bundle: str, epoch: int) -> None:
        """Write a bundle's tombstone, in a transaction that checks the epoch and that nobody touched the bundle.

        That no job names it is read anew, with a sync: what this candidate has seen may lack the latest. Whoever
        names it meanwhile changes the bundle's node in the same transaction (`KazooRequests`).
        """
        path = naming.code_path(self._cluster, bundle)
        with translated("condemning a bundle"):
            self._client.sync(path)
            try:
                data, stat = self._client.get(path)
            except NoNodeError:
                return
            if data or kazoo_code.is_named(self._client, self._cluster, bundle):
                return
            transaction = self._client.transaction()
            transaction.check(
                naming.controller_epoch_path(self._cluster), epoch_version(self._client, self._cluster, epoch)
            )
            transaction.set_data(path, bodies.encode(kazoo_code.tombstone()), version=stat.version)
            results = transaction.commit()
        if isinstance(results[0], BadVersionError):
            raise Fenced(f"another leader has come after epoch {epoch}")
        _log.info("bundle %s has been named by no job for long; it is marked as deleted", bundle)

    def bury(self, bundle: str, version: int) -> bool:
        """Remove the node of a deleted bundle."""
        with translated("removing a bundle"):
            return kazoo_code.bury_code(self._client, self._cluster, bundle, version)

    def activate(self, job: str, revision: int, epoch: int) -> None:
        """Write the job's record, in a transaction that checks the epoch."""
        path = naming.job_path(self._cluster, job)
        with translated("activating a job"):
            try:
                data, stat = self._client.get(path)
            except NoNodeError:
                return
            record = bodies.decode(data, path, JobRecord)
            if record.activated >= revision:
                return
            transaction = self._client.transaction()
            transaction.check(
                naming.controller_epoch_path(self._cluster), epoch_version(self._client, self._cluster, epoch)
            )
            changed = msgspec.structs.replace(record, activated=revision)
            transaction.set_data(path, bodies.encode(changed), version=stat.version)
            results = transaction.commit()
        if isinstance(results[0], BadVersionError):
            raise Fenced(f"another leader has come after epoch {epoch}")
        # Of a record that somebody else changed meanwhile, the watch tells; then it is looked at again.

    def _directory(self, nodes: Nodes) -> Directory:
        candidates: set[str] = set()
        holders: dict[str, tuple[Holder, ...]] = {}
        jobs: list[JobNeeds] = []
        deleted: dict[str, int] = {}
        for path, node in nodes.items():
            try:
                match path.split("/"):
                    case ("candidates", name):
                        candidates.add(name)
                    case ("code", bundle):
                        holders.setdefault(bundle, ())
                        if node.data:
                            deleted[bundle] = node.version
                    case ("code", bundle, name) if name != naming.CODE_PARTS:
                        found = shared.decode_holder(node.data, path)
                        holders[bundle] = (*holders.get(bundle, ()), found)
                    case ("jobs", name):
                        jobs.append(self._needs_of(name, path, node))
            except BadConfiguration as error:
                _log.warning("not counted: %s", error)
        return Directory(frozenset(candidates), holders, tuple(jobs), deleted)

    def _needs_of(self, job: str, path: str, node: Node) -> JobNeeds:
        known = self._needs.get(job)
        if known is None or known[0] != node:
            # Checking a configuration is not free, and most changes are of something else.
            known = (node, needs(bodies.decode(node.data, path, JobRecord)))
            self._needs[job] = known
        return known[1]
