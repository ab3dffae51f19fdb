"""A database that records when it is written; the lag of a standby is computed from two such records."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.lags import Written
from standby.adapters.rocksdict import open_database
from standby.kernel.ports import ChangelogRecord, Database, Profile
from standby.replica.store.keys import POSITION
from standby.replica.store.origin import decode_position
from standby.replica.store.scan import ScanPage


class Trace:
    """The write times of all databases of this process, by task; `open` is a `standby.kernel.ports.OpenDatabase`."""

    def __init__(self) -> None:
        self._written: dict[str, list[tuple[float, int]]] = {}

    def open(self, path: Path, profile: Profile) -> Database:
        """Return the real database, with its writes recorded."""
        return _Traced(open_database(path, profile), self._written.setdefault(path.parent.name, []))

    def save(self, file: Path) -> None:
        """Write the records to ``file``."""
        file.write_text(json.dumps(self._written), encoding="utf-8")


def load(file: Path) -> dict[str, list[Written]]:
    """Return the records in ``file``: task → its writes, in order."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return {task: [Written(*each) for each in writes] for task, writes in found.items()}


class _Traced:
    def __init__(self, database: Database, notes: list[tuple[float, int]]) -> None:
        self._database = database
        self._notes = notes

    def write(self, changes: Iterable[ChangelogRecord], cancelled: threading.Event | None = None) -> None:
        batch = list(changes)
        self._database.write(batch, cancelled)
        now = time.monotonic()
        # The position is the last of a batch (`standby.kernel.store.store.TaskStore.apply`).
        if batch and batch[-1][0] == POSITION and batch[-1][1] is not None:
            self._notes.append((now, decode_position(batch[-1][1]).offset))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._database.get_many(keys)

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        return self._database.page(start, stop, limit, reverse=reverse)

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._database.items(prefix)

    def flush(self) -> None:
        self._database.flush()

    def checkpoint(self, directory: Path) -> None:
        self._database.checkpoint(directory)

    def close(self) -> None:
        self._database.close()
