"""Notes on a host's disk of the rows that are being rehearsed: those over which a process ended are left out there.

A record can end the JVM, or the whole container, for example for lack of memory. The active that reads it is told of
that, and gives the record up. Standbys rehearse the last records of the input, so this one would end each of them, and
each one that is started in its place, for as long as it is among the last.
"""

from __future__ import annotations

import fcntl
import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from standby.errors import StandfastError
from standby.kernel.store.directories import make_private, remove_empty

_LOG: Final = logging.getLogger(__name__)

#: The folder of the notes, in the directory of a job's run.
FOLDER: Final = "rehearsals"

_END: Final = ".json"

#: Retries: a process that takes its note back also removes the empty directories above it.
_TRIES: Final = 10

#: ``topic:partition`` → first and last offset. The topic is empty where a job has one input.
_Ranges = Mapping[str, tuple[int, int]]


class Note:
    """A note of this process; others tell by its lock whether the process is alive."""

    def __init__(self, path: Path, file: IO[str], state_dir: Path) -> None:
        self._path = path
        self._file = file
        self._state_dir = state_dir

    def take_back(self) -> None:
        """Delete the note, and directories that become empty: the rehearsal was survived."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._file.close()
        remove_empty(self._path.parent, state_dir=self._state_dir)

    def confirm(self) -> None:
        """Leave the note for good, without waiting for the end of this process: the JVM has died."""
        self._file.close()


class RehearsalNotes:
    """The notes of all processes of a host about one run of a job."""

    def __init__(self, state_dir: Path | None = None, run: str = "") -> None:
        """``run`` is the path of the run's directory below a state directory; None: nothing is noted."""
        self._state_dir = state_dir
        self._folder = None if state_dir is None else state_dir / run / FOLDER
        self._has_failed = False

    def leave(self, rows: pa.Table) -> Note | None:
        """Note that these rows are rehearsed now; None if that is not possible, which is logged."""
        folder, state_dir = self._folder, self._state_dir
        if folder is None or state_dir is None:
            return None
        path = folder / f"{uuid.uuid4().hex}{_END}"
        try:
            return Note(path, _left(path, _ranges(rows)), state_dir)
        except (OSError, StandfastError) as error:
            self._note_failure(error)
            return None

    def survivable(self, rows: pa.Table) -> pa.Table | None:
        """Return ``rows`` without those that a process was rehearsing when it ended; None if none are left.

        All of them if the notes cannot be listed, which is logged.
        """
        try:
            fatal = tuple(self._fatal(_ranges(rows)))
        except OSError as error:
            self._note_failure(error)
            return rows
        for topic, partition, first, last in fatal:
            found = pc.and_(pc.equal(rows["_task"], partition), _between(rows["_offset"], first, last))
            if topic:
                found = pc.and_(found, pc.equal(rows["_topic"], topic))
            rows = rows.filter(pc.invert(found))
        return rows if rows.num_rows else None

    def _note_failure(self, error: Exception) -> None:
        if not self._has_failed:
            _LOG.warning("no note of a rehearsal can be left or read in %s: %s", self._folder, error)
        self._has_failed = True

    def _fatal(self, present: _Ranges) -> Iterator[tuple[str, int, int, int]]:
        """Yield topic, partition, first and last offset of what ended processes have noted, unless all is passed."""
        for path in sorted(self._folder.glob(f"*{_END}")) if self._folder is not None else ():
            noted = _left_by_the_dead(path)
            if noted is None:
                continue
            if all(place in present and present[place][0] > last for place, (_, last) in noted.items()):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                continue
            for place, (first, last) in noted.items():
                topic, _, partition = place.rpartition(":")
                yield topic, int(partition), first, last


def _left(path: Path, ranges: _Ranges) -> IO[str]:
    """Return the file of a new note, which is locked before others see it."""
    made = path.with_suffix("")
    file = _opened(made)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(ranges, file)
        file.flush()
        made.rename(path)
    except OSError:
        with suppress(OSError):
            made.unlink(missing_ok=True)
        with suppress(OSError):
            file.close()
        raise
    return file


def _opened(path: Path) -> IO[str]:
    """Return a new file, in directories that are made if they are missing."""
    for left in reversed(range(_TRIES)):
        make_private(path.parent)
        try:
            return path.open("x", encoding="utf-8")
        except FileNotFoundError:
            if not left:
                raise
    raise AssertionError("unreachable")


def _left_by_the_dead(path: Path) -> _Ranges | None:
    """Return what a process noted that has ended; None if it is alive, or has deleted the note meanwhile."""
    try:
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            ranges: dict[str, tuple[int, int]] = json.load(file)
            return ranges if path.exists() else None
    except (OSError, ValueError):
        return None


def _ranges(rows: pa.Table) -> dict[str, tuple[int, int]]:
    """Return the first and the last offset of each partition."""
    keys = [each for each in ("_topic", "_task") if each in rows.column_names]
    found = rows.group_by(keys).aggregate([("_offset", "min"), ("_offset", "max")]).to_pylist()
    return {
        f"{each.get('_topic', '')}:{each['_task']}": (each["_offset_min"], each["_offset_max"])
        for each in found
    }


def _between(offsets: pa.ChunkedArray, first: int, last: int) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(offsets, first), pc.less_equal(offsets, last))
