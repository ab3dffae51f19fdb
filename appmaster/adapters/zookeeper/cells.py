"""The records of a cluster's cells in ZooKeeper: created by the submit, completed by the cell's candidate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from appmaster import records as bodies
from appmaster.adapters.zookeeper.calls import children, read, read_or_watch, translated
from appmaster.records import CellRecord
from standby.errors import BadConfiguration
from standby.shared import naming


class ZooKeeperCells:
    """The cells of one cluster. Every call may raise `Transient`, and `BadConfiguration` for an invalid record."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster

    def read(self, number: int, watch: Callable[[], None] | None = None) -> CellRecord | None:
        """Return a cell's record, or None; ``watch`` is called once when it changes, comes or goes."""
        path = naming.cell_path(self._cluster, number)
        with translated("reading a cell"):
            data = read_or_watch(self._client, path, watch)
        return None if data is None else bodies.decode(data, path, CellRecord)

    def read_all(self) -> dict[int, CellRecord]:
        """Return every cell's record by its number; raises the error of a record that is invalid."""
        records: dict[int, CellRecord] = {}
        for number, each in self.read_each().items():
            if isinstance(each, BadConfiguration):
                raise each
            records[number] = each
        return records

    def read_each(self, watch: Callable[[], None] | None = None) -> dict[int, CellRecord | BadConfiguration]:
        """Return every cell's record by its number, or the error that says why it is invalid.

        ``watch`` is called when one changes, comes or goes.
        """
        with translated("reading the cells"):
            names = children(self._client, naming.cells_path(self._cluster), watch)
        found: dict[int, CellRecord | BadConfiguration] = {}
        for number in sorted(int(each) for each in names if each.isdecimal()):
            try:
                record = self.read(number, watch)
            except BadConfiguration as error:
                found[number] = error
                continue
            if record is not None:
                found[number] = record
        return found

    def claim(self, number: int, record: CellRecord, replaces: CellRecord | None = None) -> bool:
        """Create a cell's record, so that two submits never make one cell twice; False if it exists.

        With ``replaces``, the record of an application that has ended is replaced, if it is still that one.
        """
        if replaces is not None:
            return self.change(number, lambda present: record if present == replaces else None)
        path = naming.cell_path(self._cluster, number)
        with translated("claiming a cell"):
            try:
                self._client.create(path, bodies.encode(record), makepath=True)
            except NodeExistsError:
                return False
            return True

    def begin_submit(self, holder: str) -> str:
        """Keep other sessions from submitting cells until `end_submit`, or until this session ends.

        Returns the holder of the session that does so already; empty if this one does.
        """
        path = naming.submitting_path(self._cluster)
        with translated("claiming the cluster's cells"):
            while True:
                try:
                    self._client.create(path, holder.encode(), ephemeral=True, makepath=True)
                except NodeExistsError:
                    found = read(self._client, path)
                    if found is None:
                        continue  # the other one has just ended
                    data, stat = found
                    # The answer to this session's own request may have been lost.
                    return "" if self._is_own(stat) else str(data, "utf-8", "replace")
                return ""

    def end_submit(self) -> None:
        """Let other sessions submit cells again; does nothing if this one does not keep them from it."""
        path = naming.submitting_path(self._cluster)
        with translated("giving up the claim to the cluster's cells"), suppress(NoNodeError):
            found = read(self._client, path)
            if found is not None and self._is_own(found[1]):
                self._client.delete(path)

    def _is_own(self, stat: ZnodeStat) -> bool:
        identity = self._client.client_id
        # None: the connection was lost just now.
        return identity is not None and bool(stat.ephemeralOwner == identity[0])

    def change(self, number: int, edit: Callable[[CellRecord], CellRecord | None]) -> bool:
        """Change a cell's record by ``edit``; False if there is none, or if ``edit`` returns None."""
        path = naming.cell_path(self._cluster, number)
        with translated("recording the cell"):
            while True:
                try:
                    data, stat = self._client.get(path)
                    changed = edit(bodies.decode(data, path, CellRecord))
                    if changed is None:
                        return False
                    self._client.set(path, bodies.encode(changed), version=stat.version)
                except BadVersionError:
                    continue
                except NoNodeError:
                    return False
                return True

    def put(self, number: int, record: CellRecord) -> None:
        """Replace a cell's record."""
        self.change(number, lambda _: record)

    def drop(self, number: int, claim: str | None = None) -> None:
        """Remove a cell's record; with ``claim``, only if it comes from that claim."""
        path = naming.cell_path(self._cluster, number)
        with translated("removing a cell"), suppress(NoNodeError):
            if claim is None:
                self._client.delete(path)
                return
            while True:
                data, stat = self._client.get(path)
                if bodies.decode(data, path, CellRecord).claim != claim:
                    return
                with suppress(BadVersionError):
                    self._client.delete(path, version=stat.version)
                    return
