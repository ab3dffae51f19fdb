"""The fetching side of a bootstrap: downloads the files of a peer's copy, and verifies every byte."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from standby.errors import CorruptState, Transient, Unavailable
from standby.kernel.ports import OpenSource, SnapshotSource
from standby.kernel.replay.rate_limiter import RateLimiter
from standby.kernel.store.directories import content_bytes, make_private
from standby.kernel.store.store import write_side_file
from standby.ports import PeerDirectory
from standby.replica.store.origin import DATABASE
from standby.replica.store.snapshot import Manifest, SnapshotFile, decode_manifest, resumable
from standby.shared.clock import REAL

_log: Final = logging.getLogger(__name__)

#: Directory beside those of the tasks, which holds fetched files until the copy is complete.
FETCHES: Final = ".fetch"

#: End of the name of the file that is locked during a fetch, after the name of its directory there.
LOCK: Final = ".lock"

_MANIFEST: Final = "manifest.json"
_PIECE_BYTES: Final = 256 << 10


def _is_open(opened: IO[bytes], file: Path) -> bool:
    """Return whether this is the file of that name, which has not been deleted since."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), file.stat())
    except OSError:
        return False


class Slots:
    """Limits the number of concurrent fetches of a container."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._used = 0

    def take(self, limit: int, is_off: Callable[[], bool]) -> bool:
        """Wait for a slot and return True; return False if ``is_off`` returns true before, checked at each `wake`."""
        with self._changed:
            while self._used >= limit:
                if is_off():
                    return False
                self._changed.wait()
            self._used += 1
            return True

    def give_back(self) -> None:
        """Free a slot."""
        with self._changed:
            self._used -= 1
            self._changed.notify_all()

    def wake(self) -> None:
        """Make all waiting threads check ``is_off`` again."""
        with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Peers:
    """What a container needs to fetch from peers; shared by all its replicas."""

    container: str
    """Its own id: a container does not fetch from itself."""
    directory: PeerDirectory
    open_source: OpenSource
    slots: Slots = field(default_factory=Slots)
    rate_limiter: RateLimiter = field(default_factory=lambda: RateLimiter(REAL.monotonic))


class Scratch:
    """The directory where one task's state is assembled: beside its final place, on the same disk.

    Its content survives interruptions of all kinds; the next attempt keeps files with the right digest.
    """

    def __init__(self, final: Path) -> None:
        self.final: Final = final
        self.directory: Final = final.parent / FETCHES / final.name
        self._database: Final = self.directory / DATABASE
        self.fetched_bytes = 0
        """Bytes fetched over the network."""
        self.done_bytes = 0
        """Bytes of the current manifest that are present and verified."""

    @property
    def held_bytes(self) -> int:
        """Number of bytes that earlier attempts have left here."""
        return content_bytes(self._database)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other processes of this host. Raises `Transient` while one fetches the same task."""
        lock: IO[bytes] | None = None
        try:
            try:
                make_private(self.directory)
                file = self.directory.with_name(self.directory.name + LOCK)
                lock = file.open("ab")
            except OSError as error:
                raise Unavailable(f"{self.directory}: {error}") from error
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Transient(f"{self.directory}: another process fetches this state") from error
            if not _is_open(lock, file):
                raise Transient(f"{self.directory}: what was left of an earlier fetch was just deleted")
            yield
        finally:
            if lock is not None:
                lock.close()

    def begin(self, manifest: Manifest) -> dict[str, int]:
        """Return the byte at which each file resumes; files that are not in ``manifest`` are deleted."""
        try:
            make_private(self._database)
            present = {each.name: each.stat().st_size for each in self._database.iterdir()}
            kept, gone = resumable(self._manifest(), manifest, present)
            for name in gone:
                (self._database / name).unlink()
            (self.directory / _MANIFEST).write_bytes(manifest.encode())
        except OSError as error:
            raise Unavailable(f"{self.directory}: {error}") from error
        self.done_bytes = 0
        return kept

    def fetch(
        self,
        source: SnapshotSource,
        manifest: Manifest,
        wait: Callable[[int], None],
        tell: Callable[[], None],
    ) -> None:
        """Fetch every file; ``wait`` is called with the size of each piece, ``tell`` after it.

        Raises `Transient` when the source goes away (fetched data is kept), `CorruptState` when a file does not
        match the manifest, `Unavailable` when the disk fails.
        """
        kept = self.begin(manifest)
        for each in manifest.files:
            start = kept.get(each.name, 0)
            if not self._bring(source, manifest.lease, each, start, wait, tell) and not (
                # Data of an earlier attempt may be damaged, which is not this source's fault.
                start and self._bring(source, manifest.lease, each, 0, wait, tell)
            ):
                raise CorruptState(f"{each.name} of {each.size} bytes does not match its digest")

    def install(self, manifest: Manifest) -> None:
        """Make the fetched copy the task's state, atomically with respect to crashes.

        The final place must be free. The state is checked later like any other left-over state.
        """
        try:
            (self.directory / _MANIFEST).unlink(missing_ok=True)
            _sync(self._database)
            write_side_file(self.directory, manifest.origin)
            _sync(self.directory)
            self.directory.rename(self.final)
            _sync(self.final.parent)
        except OSError as error:
            raise Unavailable(f"{self.final}: {error}") from error

    def clear(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def discard(self) -> None:
        """Delete the data of earlier attempts, unless another process is using it."""
        if self.directory.is_dir():
            with contextlib.suppress(Transient, Unavailable), self.locked():
                self.clear()

    def _bring(
        self,
        source: SnapshotSource,
        lease: str,
        file: SnapshotFile,
        start: int,
        wait: Callable[[int], None],
        tell: Callable[[], None],
    ) -> bool:
        """Fetch one file from byte ``start`` on; return whether it matches its digest."""
        digest = hashlib.sha256()
        path = self._database / file.name
        size = start
        try:
            with path.open("r+b" if start else "wb", buffering=0) as out:
                left = start
                while left and (piece := out.read(min(left, _PIECE_BYTES))):
                    digest.update(piece)
                    left -= len(piece)
                # Also if nothing of it is missing: files of an earlier attempt may take longer to read than the
                # source keeps a copy for which nobody asks.
                for piece in source.read(lease, file.name, start):
                    wait(len(piece))
                    size += len(piece)
                    if size > file.size:
                        raise CorruptState(f"{file.name} is longer than {file.size} bytes")
                    _write(out, piece)
                    digest.update(piece)
                    self.fetched_bytes += len(piece)
                    self.done_bytes += len(piece)
                    tell()
                if size < file.size:
                    raise Transient(f"{file.name} was interrupted at byte {size} of {file.size}")
                os.fsync(out.fileno())
            is_right = digest.hexdigest() == file.sha256
            self.done_bytes += start if is_right else start - size
            if not is_right:
                _log.warning("%s: does not match its digest", path)
                path.unlink()
        except OSError as error:
            raise Unavailable(f"{path}: {error}") from error
        return is_right

    def _manifest(self) -> Manifest | None:
        try:
            return decode_manifest((self.directory / _MANIFEST).read_bytes())
        except (OSError, CorruptState):
            return None


def _write(out: IO[bytes], piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        # Unbuffered: an almost full disk may write a part and then fail.
        view = view[out.write(view) :]


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
