"""A database in memory, with disk faults on demand."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from standby.errors import CorruptState, Transient, Unavailable
from standby.kernel.ports import ChangelogRecord, InUse, Profile
from standby.replica.store.scan import ScanPage
from tests.patience import LOOK_SECONDS

#: A checkpoint's one file.
_COPY = "000001.sst"

#: So many of the last writes a crash may undo.
_RECENT = 8


class MemoryDisk:
    """All databases of a test by path; what was not flushed is lost when the power goes."""

    def __init__(self) -> None:
        self.flushed: dict[Path, dict[bytes, bytes]] = {}
        self.open_ones: dict[Path, MemoryDatabase] = {}
        self.profiles: list[Profile] = []
        self.corrupt: set[Path] = set()
        self.is_full = False
        #: Whether writes wait, as for flushes; and whether one has.
        self.is_behind, self.has_waited = False, threading.Event()
        #: Called inside of each write, before anything of it is there.
        self.on_write: Callable[[], None] = lambda: None
        #: Called inside of each flush, that of closing included; may wait.
        self.on_flush: Callable[[], None] = lambda: None

    def open(self, path: Path, profile: Profile) -> MemoryDatabase:
        """Return the database in ``path``; a `standby.kernel.ports.OpenDatabase`."""
        path = path.resolve()
        if path in self.open_ones:
            raise InUse(path)
        if path in self.corrupt:
            raise CorruptState(f"{path}: broken")
        if not path.is_dir():
            # Deleting the directory deletes the database.
            self.flushed.pop(path, None)
            path.mkdir(parents=True)
        if (path / _COPY).is_file():
            # A checkpoint, wherever it was carried since.
            self.flushed[path] = pickle.loads((path / _COPY).read_bytes())
            (path / _COPY).unlink()
        self.profiles.append(profile)
        database = self.open_ones[path] = MemoryDatabase(self, path)
        return database

    def cut_power(self) -> None:
        """Forget what was not flushed, and close everything."""
        self.open_ones.clear()

    def crash(self, host: str, lost: int) -> None:
        """End all that a process on a host has open; of each the last ``lost`` writes are gone that were not flushed.

        Which of them reach the disk before a flush is not said, only that none does without those before.
        """
        for path, database in tuple(self.open_ones.items()):
            if host in path.parts:
                del self.open_ones[path]
                self.flushed[path] = database.before(lost)


class MemoryDatabase:
    """A `standby.kernel.ports.Database`."""

    def __init__(self, disk: MemoryDisk, path: Path) -> None:
        self._disk, self._path = disk, path
        self._content = dict(disk.flushed.get(path, {}))
        #: What it was before each of the last writes, since the last flush.
        self._former: deque[dict[bytes, bytes]] = deque(maxlen=_RECENT)

    def content(self) -> dict[bytes, bytes]:
        """Return all that it has at this moment. Thread-safe."""
        return dict(self._content)

    def before(self, writes: int) -> dict[bytes, bytes]:
        """Return what it was before the last few writes, as far as they were not flushed."""
        former = [*self._former, self._content]
        return former[max(0, len(former) - 1 - writes)]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check()
        return [self._content.get(each) for each in keys]

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        self._check()
        found = sorted((each for each in self._content.items() if start <= each[0] < stop), reverse=reverse)
        return ScanPage(found[:limit], len(found) <= limit)

    def write(self, changes: Iterable[ChangelogRecord], cancelled: threading.Event | None = None) -> None:
        self._check()
        self._disk.on_write()
        while self._disk.is_behind:
            self._disk.has_waited.set()
            if (cancelled or threading.Event()).wait(LOOK_SECONDS):
                raise Transient(f"{self._path}: cancelled")
        if self._disk.is_full:
            raise Unavailable(f"{self._path}: no space left")
        content = dict(self._content)
        for key, value in changes:
            if value is None:
                content.pop(key, None)
            else:
                content[key] = value
        self._former.append(self._content)
        self._content = content

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check()
        yield from sorted(each for each in self._content.items() if each[0].startswith(prefix))

    def flush(self) -> None:
        self._check()
        self._disk.on_flush()
        if self._disk.is_full:
            raise Unavailable(f"{self._path}: no space left")
        self._former.clear()
        self._disk.flushed[self._path] = dict(self._content)

    def checkpoint(self, directory: Path) -> None:
        self.flush()
        if directory.exists() or not directory.parent.is_dir():
            raise Unavailable(f"{directory}: exists, or has no parent")
        directory.mkdir()
        (directory / _COPY).write_bytes(pickle.dumps(self._content))

    def close(self) -> None:
        if self._disk.open_ones.get(self._path) is self:
            try:
                self.flush()
            finally:
                del self._disk.open_ones[self._path]

    def _check(self) -> None:
        if self._disk.open_ones.get(self._path) is not self:
            raise Unavailable(f"{self._path}: closed")
