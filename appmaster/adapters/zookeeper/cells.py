"""The records of a cluster's cells in ZooKeeper: created by the submit, completed by the cell's candidate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from appmaster import records as bodies
from appmaster.adapters.zookeeper.calls import children, read_or_watch, translated
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
        """Complete a cell's record that this process has claimed."""
        self.change(number, lambda _: record)

    def drop(self, number: int) -> None:
        """Remove a cell's record."""
        with translated("removing a cell"), suppress(NoNodeError):
            self._client.delete(naming.cell_path(self._cluster, number))
