"""Hands the rows of micro-batches to Spark, in files in memory: a DataFrame whose rows are those that were put last.

A plan is made once and run for every batch: its source is a Python function that reads the rows from their file.
A streaming query would plan each micro-batch anew, request the end of the input from the broker, and start a reader
for every Kafka partition.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from standby.errors import Transient
from standby.shared.errortext import text_of

#: Names contain the id of the process.
_PREFIX: Final = "standfast-rows-"

#: A disk would be slower than Spark itself for a small batch.
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  (only directories with names of our own are made in it)

#: Bytes of rows in one Arrow batch.
_PIECE_BYTES: Final = 4 << 20

#: A batch is written to a file system with at least this many times its size free: others use it as well.
_ROOM: Final = 2

#: Marks an error of the reader in a Python worker, which Spark reports as it does those of the job's functions.
_UNREAD: Final = "standfast cannot read the rows of the batch"


class RowExchange:
    """A place for the rows of one batch."""

    def __init__(self) -> None:
        name = f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex}"
        self._directory = _places()[0] / name
        #: For batches for which there is no room in memory.
        self._spare = _places()[-1] / name

    def frame(self, session: SparkSession, columns: str, partitions: int) -> DataFrame:
        """Return a DataFrame of the rows that were `put` before each of its actions, with that many partitions."""
        source = session.range(0, partitions, 1, partitions)
        return source.mapInArrow(_reader_of(str(self._directory)), columns)

    def path(self, number: int) -> Path:
        """Return the file of a part of the rows."""
        return self._directory / str(number)

    def put(self, rows: pa.Table, partitions: int, *, on_disk: bool = False) -> None:
        """Replace the rows. They are divided among ``partitions``, in their order.

        ``on_disk``: even if there is room in memory. Raises `Transient` when there is no room for them.
        """
        share = -(-rows.num_rows // partitions) or 1
        place = self._directory
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            if on_disk or not _has_room(self._directory, rows.nbytes):
                place = self._spare
                place.mkdir(mode=0o700, exist_ok=True)
            for number in range(partitions):
                self._write(place, number, rows.slice(number * share, share))
        except OSError as error:
            self.clear()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise Transient(f"the rows of a batch cannot be written to {place.parent}: {reason}") from error

    def has_filled_disk(self, least: int) -> bool:
        """Return whether the files are of at least that many bytes, and there is no room for many more beside them."""
        size = sum(each.stat().st_size for each in self._directory.iterdir())
        return size >= least and not _has_room(self._spare, size)

    def clear(self) -> None:
        """Free the memory of the rows."""
        for place in {self._directory, self._spare}:
            shutil.rmtree(place, ignore_errors=True)

    def _write(self, place: Path, number: int, part: pa.Table) -> None:
        path = place / str(number)
        known = self.path(number)
        for each in (known, path):
            # A cancelled run may still have mapped the file.
            each.unlink(missing_ok=True)
        if path != known:
            known.symlink_to(path)
        at_once = max(1, _PIECE_BYTES * max(1, part.num_rows) // max(1, part.nbytes))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, part.schema) as writer:
            writer.write_table(part, max_chunksize=at_once)


class JobPlan:
    """The plan of a frame of a `RowExchange`, run by a Spark job for each batch."""

    def __init__(self, frame: DataFrame, exchange: RowExchange, parts: int) -> None:
        """``parts``: the number of partitions of the frame of the exchange."""
        self._frame = frame
        self._exchange = exchange
        self._parts = parts

    def run(self, rows: pa.Table, group: str) -> pa.Table:
        """Return the result for ``rows``, in their order. Raises `Transient` without room for them, and Spark's errors.

        A batch of ``group`` is cancelled by cancelling the jobs of that group.
        """
        try:
            self._exchange.put(rows, self._parts)
            return self._frame.toArrow()
        finally:
            self._exchange.clear()


def is_unread(error: BaseException) -> bool:
    """Return whether a Python worker could not read the rows: no function of the job has failed."""
    return _UNREAD in text_of(error)


def sweep() -> None:
    """Remove the rows of processes that were killed."""
    for place in _places():
        # The next one does it if there is no file descriptor left now.
        with contextlib.suppress(OSError):
            for path in place.glob(f"{_PREFIX}*"):
                owner = path.name[len(_PREFIX) :].split("-")[0]
                if not Path("/proc", owner).exists():
                    shutil.rmtree(path, ignore_errors=True)


def _reader_of(directory: str) -> Any:
    # A nested function is sent to Spark's Python workers as it is.
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                try:
                    reader = pa.ipc.open_stream(pa.memory_map(f"{directory}/{number}"))
                except (OSError, ValueError) as error:
                    raise RuntimeError(f"{_UNREAD}: {error}") from error
                yield from reader

    return read


def _places() -> tuple[Path, ...]:
    """Return the directories for rows, the best one first."""
    is_usable = os.access(_IN_MEMORY, os.W_OK | os.X_OK)
    return (*((_IN_MEMORY,) if is_usable else ()), Path(tempfile.gettempdir()))


def _has_room(place: Path, size: int) -> bool:
    """Return whether a batch fits into ``place``. Container engines give 64 MB of memory by default."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize > _ROOM * size
