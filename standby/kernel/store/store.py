"""The local state of one task: its database, its position, and the side file (rules `commit-first` and `old-state`)."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from standby.errors import BrokenInvariant, CorruptState, StandfastError, Transient, Unavailable
from standby.kernel.ports import ChangelogRecord, Database, OpenDatabase, Profile
from standby.kernel.probes import STORE_BATCH, Probe
from standby.kernel.store.directories import kept_in_use
from standby.replica.claim import CommitRecord, decode_commit
from standby.replica.store.keys import COMMIT, OWN, POSITION
from standby.replica.store.origin import (
    DATABASE,
    SIDE_FILE,
    Origin,
    Position,
    check_beginning,
    check_state,
    decode_origin,
    decode_position,
)
from standby.replica.store.scan import ScanPage

_log: Final = logging.getLogger(__name__)

#: How many records a replica must be behind for the loading profile to be worth the switch back.
_FAR_BEHIND: Final = 200_000


class TaskStore:
    """The state of one task. One thread at a time applies changes; any thread may read or flush."""

    def __init__(
        self, directory: Path, origin: Origin, open_database: OpenDatabase, profile: Profile, probe: Probe
    ) -> None:
        self._directory = directory
        self._origin = origin
        self._open_database = open_database
        self._profile = profile
        self._probe = probe
        # A flush runs concurrently with everything except re-opening and closing.
        self._gate = threading.RLock()
        self._is_interrupted = threading.Event()
        self._is_distrusted = False
        self._database: Database | None = open_database(directory / DATABASE, profile)
        try:
            value = self._open.get_many((POSITION,))[0]
            self._position = None if value is None else decode_position(value)
        except BaseException:
            self._database.close()
            raise
        self._kept = kept_in_use(directory)
        self._written = self._position
        self._flushed = origin.at(self._position) if self._position is not None else origin

    @property
    def found_position(self) -> Position | None:
        """The position found in the database; None when there was none."""
        return self._position

    @property
    def position(self) -> Position:
        """The changelog position of the state."""
        assert self._position is not None, "checked or begun when it was opened"
        return self._position

    @property
    def directory(self) -> Path:
        """The directory of the state."""
        return self._directory

    @property
    def retention_ms(self) -> int:
        """How long the changelog keeps tombstones, in milliseconds."""
        return self._origin.retention_ms

    def begin(self, position: Position) -> None:
        """Set the position of an empty database, and write its side file."""
        self._position = position
        self._write_position()
        self._write_side_file(self._origin)

    def last_commit(self) -> CommitRecord | None:
        """Return the commit record of the last transaction in the state; None when there is none."""
        value = self._open.get_many((COMMIT,))[0]
        return None if value is None else decode_commit(value)

    def own_commit(self) -> int | None:
        """Return the number of the last batch that this replica committed itself, as an active; None: no batch."""
        value = self._open.get_many((OWN,))[0]
        return None if value is None else int(value)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each full key, in order."""
        return self._open.get_many(keys)

    def look_up(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each full key, in order, for threads outside of the replica's work.

        Waits for a concurrent flush, copy or close; the thread that applies changes never waits for look-ups. Raises
        `Transient` while the state is being loaded, `Unavailable` when it is closed.
        """
        with self._gate:
            if self._profile is Profile.LOADING:
                # The memtable of the loading profile is not sorted: each look-up would sort all of it.
                raise Transient("it is being restored")
            return self._open.get_many(keys)

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        """Return a page of the keys of [start, stop), full keys, in order."""
        return self._open.page(start, stop, limit, reverse=reverse)

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys with ``prefix`` and their values, in key order; for checks and tools."""
        return self._open.items(prefix)

    def apply(self, changes: Iterable[ChangelogRecord], offset: int, caught_up_ms: int) -> None:
        """Write the changes and the position as one batch (rule `commit-first`).

        ``caught_up_ms``: the latest time at which the whole changelog is known to have been below ``offset``; 0: not
        known.
        """
        before = self.position
        # Not the later of both: if the clock was set back, the former time is in the future.
        position = Position(offset, caught_up_ms or before.caught_up_ms)
        if offset < before.offset:
            raise BrokenInvariant(
                f"{self._directory}: the position would fall from {before.offset} to {offset}"
            )
        self._probe(STORE_BATCH)
        self._open.write(itertools.chain(changes, ((POSITION, position.encode()),)), self._is_interrupted)
        self._position = self._written = position

    def interrupt(self) -> None:
        """Until `resume`, have writes fail with `Transient` instead of waiting for the disk. Thread-safe."""
        self._is_interrupted.set()

    def resume(self) -> None:
        """Let writes wait for the disk again."""
        self._is_interrupted.clear()

    def distrust(self) -> None:
        """Have the state never be opened again once it is closed: it has turned out to be unusable. Thread-safe."""
        self._is_distrusted = True

    def caught_up(self, at_ms: int) -> None:
        """Record that the changelog had nothing beyond the position at ``at_ms``; persisted occasionally."""
        self._position = Position(self.position.offset, at_ms)
        written = self._written.caught_up_ms if self._written is not None else 0
        if abs(at_ms - written) > min(60_000, self.retention_ms // 8):
            self._write_position()

    def is_flush_due(self, now_ms: int) -> bool:
        """Return whether the disk is so far behind that a crash would require a long replay, or lose the state."""
        position = self._position
        return (
            position is not None
            and position != Position(self._flushed.offset, self._flushed.caught_up_ms)
            # A time to come is one from before the clock was set back.
            and abs(now_ms - self._flushed.caught_up_ms) > min(300_000, self.retention_ms // 4)
        )

    def flush(self) -> None:
        """Flush the state to disk, then update the side file."""
        with self._gate:
            if self._database is None or self._written is None:
                return
            # Read before the flush: at least this position is on disk after it.
            position = self._written
            self._open.flush()
            self._write_side_file(self._origin.at(position))

    def checkpoint(self, directory: Path) -> Origin:
        """Copy the database to a new directory on the same disk; return the content for its side file.

        Changes may be applied meanwhile; re-opening and closing wait. Raises `Unavailable` when the store is closed.
        """
        with self._gate:
            if self._database is None or self._written is None:
                raise Unavailable(f"{self._directory}: the store is closed")
            # Read before the copy is made: at least this position is in it.
            position = self._written
            self._database.checkpoint(directory)
            return self._origin.at(position)

    def serve(self) -> None:
        """Switch from the loading to the serving profile, if necessary."""
        if self._profile is Profile.SERVING:
            # Checked without the lock: a promotion must not wait for a flush or for a copy.
            return
        with self._gate:
            if self._profile is Profile.LOADING:
                self.flush()
                self._open.close()
                self._database = None
                try:
                    self._database = self._open_database(self._directory / DATABASE, Profile.SERVING)
                except BaseException:
                    # A later `close` finds nothing to close.
                    self.drop()
                    raise
                self._profile = Profile.SERVING

    def close(self) -> None:
        """Flush and close, keeping the files; no effect when already closed."""
        with self._gate:
            if self._database is None:
                return
            if self._is_distrusted:
                try:
                    self.drop()
                finally:
                    condemn_state(self._directory)
                return
            # Only the time of the position is still to be written, which is not worth waiting for.
            self.interrupt()
            try:
                if self._position is not None and self._position != self._written:
                    with suppress(Transient):
                        self._write_position()
                self.flush()
            finally:
                # Close even after a disk error: no other process can open a database that this one holds.
                self.drop()

    def drop(self) -> None:
        """Close the store without writing its side file. Harmless when it is closed.

        For state that failed its checks: a new side file would claim that it is the expected state.
        """
        with self._gate:
            database, self._database = self._database, None
            kept, self._kept = self._kept, None
            try:
                if database is not None:
                    database.close()
            finally:
                if kept is not None:
                    os.close(kept)

    @property
    def _open(self) -> Database:
        if self._database is None:
            raise Unavailable(f"{self._directory}: the store is closed")
        return self._database

    def _write_position(self) -> None:
        position = self.position
        self._open.write(((POSITION, position.encode()),), self._is_interrupted)
        self._written = position

    def _write_side_file(self, content: Origin) -> None:
        try:
            write_side_file(self._directory, content)
        except OSError as error:
            raise Unavailable(f"{self._directory / SIDE_FILE}: {error}") from error
        self._flushed = content


def open_existing(
    directory: Path,
    expected: Origin,
    bounds: tuple[int, int],
    now_ms: int,
    open_database: OpenDatabase,
    probe: Probe,
) -> TaskStore | None:
    """Return the state in ``directory``, None when there is none; raises `CorruptState` when it may not be used.

    ``bounds`` are the changelog's first offset and end. Raises `Transient` while another process holds the
    directory, `Unavailable` when the disk fails.
    """
    found = read_side_file(directory)
    if found is None:
        return None
    return _open_checked(directory, found, expected, bounds, now_ms, open_database, probe)


def open_empty(
    directory: Path,
    expected: Origin,
    bounds: tuple[int, int],
    now_ms: int,
    open_database: OpenDatabase,
    probe: Probe,
) -> TaskStore:
    """Return an empty state at the changelog's start; the content of ``directory`` is deleted.

    Parameters and errors as `open_existing`. Raises `BeginningLost`, and deletes nothing, when the changelog does
    not contain the whole state.
    """
    first, end = bounds
    check_beginning(expected, first)
    wipe_store(directory, open_database)
    profile = Profile.LOADING if end > _FAR_BEHIND else Profile.SERVING
    store = TaskStore(directory, expected, open_database, profile, probe)
    try:
        # From now on, no tombstone of the changelog can be missed, so the state counts as caught up at this time.
        store.begin(Position(0, now_ms))
    except BaseException:
        # As long as this process holds the database, nothing can open it again, not even this process.
        with suppress(StandfastError):
            store.drop()
        raise
    return store


def _open_checked(
    directory: Path,
    found: Origin,
    expected: Origin,
    bounds: tuple[int, int],
    now_ms: int,
    open_database: OpenDatabase,
    probe: Probe,
) -> TaskStore:
    first, end = bounds
    if not (directory / DATABASE).is_dir():
        raise CorruptState("its database is gone")
    profile = Profile.LOADING if end - found.offset > _FAR_BEHIND else Profile.SERVING
    # Use the expected side file content: the job's retention may have changed since.
    store = TaskStore(directory, expected, open_database, profile, probe)
    try:
        position = store.found_position
        check_state(found, expected, position, end, now_ms)
        if position is not None and position.offset < first:
            raise CorruptState(
                f"it is at offset {position.offset}, before the beginning of the changelog at {first}"
            )
    except BaseException:
        store.drop()
        raise
    return store


def wipe_store(directory: Path, open_database: OpenDatabase) -> None:
    """Delete a task's directory; raises `Transient` while another process holds its database."""
    if (directory / DATABASE).is_dir():
        try:
            open_database(directory / DATABASE, Profile.SERVING).close()
        except Transient:
            raise
        except (CorruptState, Unavailable):
            # Only the lock matters; a broken database may be deleted.
            pass
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Unavailable(f"{directory}: {error}") from error


def condemn_state(directory: Path) -> None:
    """Have a state that is unusable never be opened again, although it cannot be deleted yet. Raises `Unavailable`.

    Only for the last owner of the state.
    """
    try:
        (directory / SIDE_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"{directory}: {error}") from error


def write_side_file(directory: Path, content: Origin) -> None:
    """Write the side file atomically with respect to crashes. Raises OSError."""
    file = directory / SIDE_FILE
    scratch = file.with_suffix(".new")
    with scratch.open("wb") as out:
        out.write(content.encode())
        out.flush()
        os.fsync(out.fileno())
    scratch.replace(file)


def read_side_file(directory: Path) -> Origin | None:
    """Return the side file's content, None when there is no usable one."""
    file = directory / SIDE_FILE
    try:
        return decode_origin(file.read_bytes())
    except FileNotFoundError:
        return None
    except CorruptState as error:
        _log.warning("%s: %s", file, error)
        return None
    except OSError as error:
        raise Unavailable(f"{file}: {error}") from error
