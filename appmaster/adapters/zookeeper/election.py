"""The leader's record in ZooKeeper, and the check that lets only the leader write.

Safety rests on one thing (rule `epoch-check`): every write of a leader is a transaction that checks the version of
``/controller_epoch``, which the next leader raises in the transaction that makes it the leader. A deposed leader
therefore cannot write anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import BadVersionError, NoNodeError

from appmaster.adapters.zookeeper.calls import read, read_or_watch, translated
from appmaster.leadership.suspicion import Beat
from standby.errors import Fenced, Transient
from standby.shared import naming
from standby.shared import records as shared
from standby.shared.records import ControllerRecord


class ZooKeeperElection:
    """One session's part in the election, and its transactions while it leads.

    An `appmaster.leadership.ports.Electorate`.
    """

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
        self._epoch_version = -1
        #: The epoch under which this session leads; 0 while it does not.
        self.epoch = 0

    def controller(self, watch: Callable[[], None] | None = None) -> ControllerRecord | None:
        """Return the leader, or None; ``watch`` is called once, on kazoo's thread, when that changes."""
        path = naming.controller_path(self._cluster)
        with translated("reading the leader's record"):
            data = read_or_watch(self._client, path, watch)
        return None if data is None else shared.decoded(data, path, shared.ControllerRecord)

    def lead(
        self, record: ControllerRecord, depose: ControllerRecord | None = None, last: Beat | None = None
    ) -> int | None:
        """Try to become the leader; return the new epoch, or None if another candidate was quicker.

        The record, the raised epoch and, with ``depose``, the end of a leader that was found lost (rule `epoch-check`)
        are one transaction. With ``last``, it also checks that this is still the leader's last beat: one that has just
        renewed its lease is not deposed for its silence.
        """
        path = naming.controller_path(self._cluster)
        epoch_path = naming.controller_epoch_path(self._cluster)
        with translated("standing for leader"):
            try:
                data, stat = self._client.get(epoch_path)
            except NoNodeError as error:
                raise Transient("the cluster has no tree (any more)") from error
            epoch = int(data) + 1
            transaction = self._client.transaction()
            if depose is not None:
                try:
                    present, present_stat = self._client.get(path)
                except NoNodeError:
                    return None  # its session has ended meanwhile: the record is absent
                if shared.decoded(present, path, shared.ControllerRecord) != depose:
                    return None
                transaction.delete(path, version=present_stat.version)
            transaction.set_data(epoch_path, str(epoch).encode(), version=stat.version)
            elected = ControllerRecord(record.candidate, record.host, record.port, epoch)
            transaction.create(path, shared.encode(elected), ephemeral=True)
            beat_path, beat = naming.controller_beat_path(self._cluster), str(epoch).encode()
            beaten = self._client.exists(beat_path)
            if last is not None and (beaten is None or beaten.mzxid != last.number):
                return None
            if beaten is None:
                transaction.create(beat_path, beat)
            else:
                transaction.set_data(beat_path, beat, version=-1 if last is None else beaten.version)
            results = transaction.commit()
        if has_failed(results):
            return None
        self._epoch_version = stat.version + 1
        self.epoch = epoch
        return epoch

    def confirm_lead(self) -> None:
        """Leave a beat if this session still holds the newest epoch; raises `Fenced` if it does not.

        In a transaction: unlike a read, its check cannot be answered by a server that lags behind.
        """
        transaction = self.transaction()
        transaction.set_data(naming.controller_beat_path(self._cluster), str(self.epoch).encode())
        self.commit(transaction, "confirming the leadership")

    def beat(self) -> Beat | None:
        """Return the last beat of the latest leader, None if there is none; a server that lags behind may answer."""
        path = naming.controller_beat_path(self._cluster)
        with translated("reading the leader's last sign of life"):
            found = read(self._client, path)
        return None if found is None else Beat(int(found[0]), found[1].mzxid)

    def resign_lead(self) -> None:
        """End this session's leadership at once, if it has it, so that no one waits for the session's end."""
        if self.epoch == 0:
            return
        transaction = self.transaction()
        transaction.delete(naming.controller_path(self._cluster))
        self.epoch = 0
        self.commit(transaction, "resigning")

    def raise_epoch(self, seen: int) -> None:
        """Have the next leader's epoch be above ``seen``, and end this leadership, in one transaction.

        For a root that is younger than the containers: they obey no epoch below one that they have seen (rule
        `epoch-check`). Raises `Fenced` if another candidate leads or this session does not, `Transient` if the outcome
        is unknown.
        """
        if not self.epoch:
            # It knows no version of the epoch, so the check would pass whichever candidate leads.
            raise Fenced("this session does not lead")
        transaction = self._client.transaction()
        path = naming.controller_epoch_path(self._cluster)
        transaction.set_data(path, str(max(seen, self.epoch)).encode(), version=self._epoch_version)
        transaction.delete(naming.controller_path(self._cluster))
        if has_failed(self.commit(transaction, "raising the epoch")):
            raise Transient("the record of this leader is gone: there is no leader")
        self.epoch = 0

    def transaction(self) -> Any:
        """Return a transaction that fails unless this session still holds the newest epoch."""
        return checked(self._client, self._cluster, self._epoch_version)

    @staticmethod
    def commit(transaction: Any, what: str) -> list[Any]:
        """Return the results of a leader's ``transaction``, including that of its check.

        Raises `Fenced` if the epoch has moved on, `Transient` if the outcome is unknown, and `BadConfiguration` if the
        transaction is too large for the servers.
        """
        with translated(what):
            return commit(transaction, f"another leader has taken over; refused while {what}")


def transaction_of(client: Any, cluster: str, epoch: int) -> Any:
    """Return a transaction that only the leader of ``epoch`` can make; see `commit`.

    Raises `Fenced` if ``epoch`` is not the newest, or if the tree is gone: its leader cannot write any more.
    """
    found = read(client, naming.controller_epoch_path(cluster))
    if found is None:
        raise Fenced("the cluster's tree in ZooKeeper is gone")
    data, stat = found
    if int(data) != epoch:
        raise Fenced(f"epoch {int(data)} has come after epoch {epoch}")
    return checked(client, cluster, stat.version)


def commit(transaction: Any, fenced: str) -> list[Any]:
    """Return the results of a leader's ``transaction``, including that of its check.

    Raises `Fenced` with the text ``fenced`` if the epoch has moved on, `BadConfiguration` if the transaction is too
    large for the servers, and kazoo's errors if the outcome is unknown.
    """
    results: list[Any] = transaction.commit()
    if isinstance(results[0], (BadVersionError, NoNodeError)):  # or the whole tree is gone
        raise Fenced(fenced)
    return results


def deposed_by(epoch: int) -> str:
    """Return the message for a leader that was deposed."""
    return f"another leader has come after epoch {epoch}"


def has_failed(results: list[Any]) -> bool:
    """Return whether a transaction changed nothing because one of its expectations failed."""
    return any(isinstance(each, Exception) for each in results)


def checked(client: Any, cluster: str, version: int) -> Any:
    """Return a transaction that fails if the node with the cluster's epoch has another ``version``."""
    transaction = client.transaction()
    transaction.check(naming.controller_epoch_path(cluster), version)
    return transaction
