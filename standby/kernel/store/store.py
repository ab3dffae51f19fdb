"""The local state of one task: its database, its position, and the side file (rules `commit-first` and `old-state`)."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from standby.errors import BrokenInvariant, CorruptState, Transient, Unavailable
from standby.kernel.ports import Change, Database, OpenDatabase, Profile
from standby.kernel.probes import STORE_BATCH, Probe
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
from standby.replica.store.scan import Page

_log: Final = logging.getLogger(__name__)

#: How many records a replica must be behind for the loading profile to pay for the switch back.
_FAR_BEHIND: Final = 200_000


class TaskStore:
    """State of one task; one thread at a time applies changes, any thread may read or flush."""

    def __init__(
        self, directory: Path, origin: Origin, open_database: OpenDatabase, profile: Profile, probe: Probe
    ) -> None:
        self._directory = directory
        self._origin = origin
        self._open_database = open_database
        self._profile = profile
        self._probe = probe
        # Flushing goes on beside everything else; re-opening and closing must not happen under it.
        self._gate = threading.RLock()
        self._database: Database | None = open_database(directory / DATABASE, profile)
        try:
            value = self._open.get_many((POSITION,))[0]
            self._position = None if value is None else decode_position(value)
        except BaseException:
            self._database.close()
            raise
        self._written = self._position
        self._flushed = origin.at(self._position) if self._position is not None else origin

    @property
    def found_position(self) -> Position | None:
        """What the database had as its position; None when it had none."""
        return self._position

    @property
    def position(self) -> Position:
        """How far the state is."""
        assert self._position is not None, "checked or begun when it was opened"
        return self._position

    @property
    def directory(self) -> Path:
        """Where it lies."""
        return self._directory

    @property
    def retention_ms(self) -> int:
        """For how long the changelog keeps tombstones."""
        return self._origin.retention_ms

    def begin(self, position: Position) -> None:
        """Make an empty database one that is at ``position``, and write its side file."""
        self._position = position
        self._write_position()
        self._write_side_file(self._origin)

    def last_commit(self) -> CommitRecord | None:
        """Return what the last transaction that is in the state says of itself; None: no such one said anything."""
        value = self._open.get_many((COMMIT,))[0]
        return None if value is None else decode_commit(value)

    def own_commit(self) -> int | None:
        """Return the number of the last batch that the replica has committed itself, as an active; None: of none."""
        value = self._open.get_many((OWN,))[0]
        return None if value is None else int(value)

    def committed(self) -> CommitRecord | None:
        """Return the same to threads that have no part in the replica's work; raises as `look_up`."""
        value = self.look_up((COMMIT,))[0]
        return None if value is None else decode_commit(value)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each full key, in order."""
        return self._open.get_many(keys)

    def look_up(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each full key, in order: for threads that have no part in the replica's work.

        They may meet a flush, a copy or the closing, and wait for those; whoever applies changes never waits for
        them. Raises `Transient` while the state is being loaded, `Unavailable` when it is closed.
        """
        with self._gate:
            if self._profile is Profile.LOADING:
                # Its memory is not sorted: each look-up would sort all of it.
                raise Transient("it is being restored")
            return self._open.get_many(keys)

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> Page:
        """Return a page of the keys of [start, stop), full keys, in order."""
        return self._open.page(start, stop, limit, reverse=reverse)

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield what has ``prefix``, in key order: for checks and tools."""
        return self._open.items(prefix)

    def apply(self, changes: Iterable[Change], offset: int, caught_up_ms: int) -> None:
        """Write the changes and the position as one batch (rule `commit-first`).

        ``caught_up_ms``: when all there was in the changelog is known to have been at or below ``offset``.
        """
        before = self.position
        position = Position(offset, max(caught_up_ms, before.caught_up_ms))
        if offset < before.offset:
            raise BrokenInvariant(
                f"{self._directory}: the position would fall from {before.offset} to {offset}"
            )
        self._probe(STORE_BATCH)
        self._open.write(itertools.chain(changes, ((POSITION, position.encode()),)))
        self._position = self._written = position

    def caught_up(self, at_ms: int) -> None:
        """Take note that there was nothing beyond the position at ``at_ms``; written down now and then."""
        position = self.position
        self._position = Position(position.offset, max(position.caught_up_ms, at_ms))
        written = self._written.caught_up_ms if self._written is not None else 0
        if at_ms - written > min(60_000, self.retention_ms // 8):
            self._write_position()

    def is_flush_due(self, now_ms: int) -> bool:
        """Return whether the disk lags so far behind that a crash would cost a long replay, or all state."""
        position = self._position
        return (
            position is not None
            and position != Position(self._flushed.offset, self._flushed.caught_up_ms)
            and now_ms - self._flushed.caught_up_ms > min(300_000, self.retention_ms // 4)
        )

    def flush(self) -> None:
        """Bring the state to the disk, then renew the side file."""
        with self._gate:
            if self._database is None or self._written is None:
                return
            # Taken before the flush: at least this much is on the disk after it.
            position = self._written
            self._open.flush()
            self._write_side_file(self._origin.at(position))

    def checkpoint(self, directory: Path) -> Origin:
        """Make a copy of the database in a new directory on the same disk; return what its side file must say.

        Changes may be applied meanwhile; opening again and closing wait. Raises `Unavailable` when it is closed.
        """
        with self._gate:
            if self._database is None or self._written is None:
                raise Unavailable(f"{self._directory}: the store is closed")
            # Taken before the copy is made: at least this much is in it.
            position = self._written
            self._database.checkpoint(directory)
            return self._origin.at(position)

    def serve(self) -> None:
        """Leave the loading profile, if the state is in it."""
        if self._profile is Profile.SERVING:
            # A promotion must not wait at the gate for a flush, or for a copy that is being made.
            return
        with self._gate:
            if self._profile is Profile.LOADING:
                self.flush()
                self._open.close()
                self._database = None
                self._database = self._open_database(self._directory / DATABASE, Profile.SERVING)
                self._profile = Profile.SERVING

    def close(self) -> None:
        """Flush and close, keeping the files; harmless when closed."""
        with self._gate:
            if self._database is None:
                return
            try:
                if self._position is not None and self._position != self._written:
                    self._write_position()
                self.flush()
            finally:
                # Whatever the disk said: nobody else could open what this process still holds.
                database, self._database = self._database, None
                database.close()

    @property
    def _open(self) -> Database:
        if self._database is None:
            raise Unavailable(f"{self._directory}: the store is closed")
        return self._database

    def _write_position(self) -> None:
        position = self.position
        self._open.write(((POSITION, position.encode()),))
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
    directory, `Unavailable` when the disk does not do.
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
    """Return an empty state at the changelog's start; what lies in ``directory`` is wiped. As `open_existing`.

    Raises `BeginningLost`, and wipes nothing, when the changelog has not all of the state.
    """
    first, end = bounds
    check_beginning(expected, first)
    wipe_store(directory, open_database)
    profile = Profile.LOADING if end > _FAR_BEHIND else Profile.SERVING
    store = TaskStore(directory, expected, open_database, profile, probe)
    # Nothing of the changelog is missed from now on, so this is when it is "caught up" to its start.
    store.begin(Position(0, now_ms))
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
    # The side file as it would be written now: the job's retention may have changed since.
    store = TaskStore(directory, expected, open_database, profile, probe)
    try:
        position = store.found_position
        check_state(found, expected, position, end, now_ms)
        if position is not None and position.offset < first:
            raise CorruptState(f"it is at {position.offset}, and the changelog begins at {first}")
    except BaseException:
        store.close()
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
            # Broken is as good as free: only the lock counts.
            pass
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Unavailable(f"{directory}: {error}") from error


def write_side_file(directory: Path, content: Origin) -> None:
    """Write the side file so that after a crash it is the old one or the new one; raises OSError."""
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
