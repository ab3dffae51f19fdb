"""The candidates and containers of a cluster that are registered in ZooKeeper at this moment, and its pool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from kazoo.exceptions import NodeExistsError

from appmaster import records as bodies
from appmaster.adapters.zookeeper.calls import children, read_many, translated
from appmaster.adapters.zookeeper.election import ZooKeeperElection, has_failed
from appmaster.leadership.ports import PoolMember, RegisteredContainer
from appmaster.records import CandidateRecord
from standby.errors import BadConfiguration
from standby.shared import naming
from standby.shared import records as shared
from standby.shared.records import ContainerRecord

_log = logging.getLogger(__name__)

_Body = TypeVar("_Body")


class ZooKeeperRegistry:
    """The registrations in one cluster. Every call may raise `Transient`."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._root = naming.cluster_path(cluster)

    def clusters(self) -> tuple[str, ...]:
        """Return the names of all clusters on these servers, not only this session's."""
        with translated("listing clusters"):
            return tuple(children(self._client, naming.ROOT))

    def register(self, record: CandidateRecord) -> None:
        """Register this candidate; the node lasts as long as the session."""
        path = f"{self._root}/candidates/{record.candidate}"
        with translated("registering the candidate"):
            try:
                self._client.create(path, bodies.encode(record), ephemeral=True, makepath=True)
            except NodeExistsError:
                # It belongs to this candidate's own former session, which has not ended yet.
                self._client.delete(path)
                self._client.create(path, bodies.encode(record), ephemeral=True, makepath=True)

    def candidates(self) -> tuple[CandidateRecord, ...]:
        """Return every candidate that is registered at this moment."""
        with translated("listing candidates"):
            decode = partial(bodies.decode, kind=CandidateRecord)
            return tuple(each for each, _ in _readable(self._client, f"{self._root}/candidates", decode))

    def containers(self) -> tuple[ContainerRecord, ...]:
        """Return every container that is registered at this moment."""
        return tuple(each.record for each in self.registrations())

    def registrations(self) -> tuple[RegisteredContainer, ...]:
        """Return every registered container with its incarnation."""
        with translated("listing containers"):
            return tuple(
                RegisteredContainer(each, created)
                for each, created in _readable(
                    self._client, f"{self._root}/containers", partial(shared.decoded, kind=ContainerRecord)
                )
            )

    def container_names(self, watch: Callable[[], None] | None = None) -> frozenset[str]:
        """Return the ids of the registered containers; ``watch`` is called once when one comes or goes."""
        with translated("listing containers"):
            return frozenset(children(self._client, f"{self._root}/containers", watch))


class ZooKeeperPool:
    """The processes of one cluster's pool, changed as the leader according to ``election``."""

    def __init__(self, client: Any, cluster: str, election: ZooKeeperElection) -> None:
        self._client = client
        self._cluster = cluster
        self._election = election

    @property
    def epoch(self) -> int:
        """The leader's epoch."""
        return self._election.epoch

    def names(self, watch: Callable[[], None] | None = None) -> frozenset[str]:
        """Return the ids of the registered processes; ``watch`` is called once when one comes or goes."""
        with translated("listing the pool"):
            return frozenset(children(self._client, naming.pool_path(self._cluster), watch))

    def read(self, names: Sequence[str]) -> dict[str, PoolMember]:
        """Return those of the processes that are still registered, and whose record can be read."""
        found = {}
        with translated("reading the pool"):
            # After a write of unknown outcome, the read may be served by a server that lags behind.
            self._client.sync(naming.cluster_path(self._cluster))
            paths = [naming.member_path(self._cluster, each) for each in names]
            for path, data, stat in read_many(self._client, paths):
                try:
                    record = shared.decoded(data, path, shared.MemberRecord)
                except BadConfiguration as error:
                    _log.error("left out: %s", error)
                    continue
                found[record.container] = PoolMember(record, stat.version)
        return found

    def write(self, member: PoolMember) -> bool:
        """Write a process's record over its version; return False if it has another one, or is gone.

        Raises `Fenced` if another candidate leads, `Transient` if the outcome is unknown.
        """
        path = naming.member_path(self._cluster, member.record.container)
        transaction = self._election.transaction()
        transaction.set_data(path, shared.encode(member.record), version=member.version)
        return not has_failed(self._election.commit(transaction, "changing a process of the pool"))


def _readable(client: Any, path: str, decode: Callable[[bytes, str], _Body]) -> Iterator[tuple[_Body, int]]:
    """Yield the children of a node, decoded, and the transaction that created each.

    A child that is deleted meanwhile is left out, and so is one that cannot be read: every candidate reads all of them
    before it leads, and a single bad one would prevent all of them from leading.
    """
    for child, data, stat in read_many(client, [f"{path}/{each}" for each in children(client, path)]):
        try:
            yield decode(data, child), stat.czxid
        except BadConfiguration as error:
            _log.error("left out: %s", error)
