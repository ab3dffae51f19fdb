"""The database of one task: RocksDB through rocksdict."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DbClosedError,
    DBCompressionType,
    MemtableFactory,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from standby.errors import CorruptState, StandfastError, Transient, Unavailable
from standby.kernel.ports import ChangelogRecord, InUse, Profile
from standby.kernel.store.directories import make_private
from standby.replica.store.scan import ScanPage
from standby.shared.clock import REAL

#: Shared by all databases of the process, so that many small tasks need no more memory than one large one.
_CACHE: Final = Cache(64 << 20)

#: Limits the memtables of all databases of the process together.
_MEMTABLES: Final = WriteBufferManager(192 << 20, False)

_KEY_OF: Final = itemgetter(0)

#: Size limit of a page of a scan, in bytes of keys and values.
_PAGE_BYTES: Final = 1 << 20

#: The most keys of one look-up in the database, which are also sorted. Of a state of 100,000, each of 33,000 keys took
#: 2.6 µs of CPU time in one look-up, unsorted, and 1.5 µs in such ones (measured): neighbours, and what a look-up keeps
#: for each key, are still in the processor's cache.
_READ_AT_ONCE: Final = 1_000

#: Size at which a memtable is flushed. Serving: each record is inserted in order, which is slow unless the memtable
#: fits into the processor's cache; with 32 MB, this was half of a standby's CPU time (docs/benchmarks.md). Loading:
#: the memtable is sorted as a whole when it is flushed. 2 million records took 4.9 CPU seconds with 64 MB and 4.1
#: with 16 MB (measured); a smaller size creates too many files until they are compacted.
_MEMTABLE_BYTES: Final = {Profile.SERVING: 8 << 20, Profile.LOADING: 16 << 20}

#: How many memtables may wait for the disk in a burst before writes block; `_MEMTABLES` limits their memory.
_MEMTABLES_OF_A_BURST: Final = 12

#: How many level-0 files (64 MB) trigger a compaction. With RocksDB's default of 4, compactions are twice as
#: frequent, and an update of a large state took 3.3 µs of CPU time instead of 2.3; with more, short scans must read
#: more files.
_COMPACTED_AT_FILES: Final = 8

#: Numbers of uncompacted files at which writes are slowed down, and stopped. A restore leaves one file per 16 MB:
#: with RocksDB's defaults of 20 and 36, the next writer was blocked until everything was compacted (observed: 1.3 s
#: after 1.2 million records), and with it all in-sync replicas of the job.
_SLOW_AT_FILES: Final = 500
_STOP_AT_FILES: Final = 1_000

#: RocksDB's error for a batch that it does not take now, because flushes or compactions are behind.
_STALL: Final = "Result incomplete: Write stall"

#: Pauses between attempts to write a batch that RocksDB does not take: the first, and the longest. An attempt builds
#: the batch again, about 1 ms for 2,000 records; what ends a stall is a flush or a compaction, tens of ms at least.
_FIRST_PAUSE_SECONDS: Final = 0.005
_PAUSE_SECONDS: Final = 0.05


#: Marks the calls in which rocksdict holds the interpreter's lock while RocksDB waits for the disk: the whole process
#: is silent then. Measured with 150 ms for each fsync: 1.6 s to create a database, 0.8 s to open one, 0.5 s for a copy.
DiskCall = Callable[[], AbstractContextManager[None]]


def _options(profile: Profile) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_MEMTABLE_BYTES[profile])
    options.set_write_buffer_manager(_MEMTABLES)
    # RocksDB's own log, which would grow without limit.
    options.set_max_log_file_size(1 << 20)
    options.set_keep_log_file_num(2)
    options.set_stats_dump_period_sec(0)
    options.set_max_open_files(256)
    table = BlockBasedOptions()
    table.set_block_cache(_CACHE)
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    if profile is Profile.SERVING:
        options.set_max_write_buffer_number(_MEMTABLES_OF_A_BURST)
        options.set_level_zero_file_num_compaction_trigger(_COMPACTED_AT_FILES)
        options.set_level_zero_slowdown_writes_trigger(_SLOW_AT_FILES)
        options.set_level_zero_stop_writes_trigger(_STOP_AT_FILES)
        options.set_compression_type(DBCompressionType.lz4())
    else:
        # Measured: 19 CPU seconds instead of 33 for 10 million records. The vector memtable does not support
        # concurrent writes; the compaction happens after the switch back to serving.
        options.set_memtable_factory(MemtableFactory.vector())
        options.set_allow_concurrent_memtable_write(False)
        options.set_max_write_buffer_number(4)
        options.set_disable_auto_compactions(True)
        # Without compactions the number of files does not decrease, so writes would stop for good.
        options.set_level_zero_slowdown_writes_trigger(1 << 20)
        options.set_level_zero_stop_writes_trigger(1 << 20)
        options.set_compression_type(DBCompressionType.none())
    return options


def _until(stop: bytes) -> ReadOptions:
    options = ReadOptions()
    options.set_iterate_upper_bound(stop)
    return options


def _translate(error: Exception, path: Path) -> StandfastError:
    """Return our error for one of RocksDB, which rocksdict raises as a plain exception with a text."""
    text = str(error)
    # Without the path: a job may be called "checksums".
    lowered = text.replace(str(path), "").lower()
    if "lock" in lowered and ("unavailable" in lowered or "held by" in lowered or "hold by" in lowered):
        return InUse(path, text)
    # A missing file in RocksDB's directory counts as corruption.
    if any(each in lowered for each in ("corruption", "checksum", "not an sstable", "no such file")):
        return CorruptState(f"{path}: {text}")
    return Unavailable(f"{path}: {text}")


class RocksDatabase:
    """A RocksDB with one column family and no write-ahead log.

    There is only one column family: with two and no log, a kill -9 kept the position and lost the rows (measured).
    """

    def __init__(self, path: Path, profile: Profile, disk_call: DiskCall = nullcontext) -> None:
        self._path = path
        self._disk_call = disk_call
        # In sorted batches, each record is inserted close to the previous one, which saves more than the sorting
        # costs: 7 % of a standby's CPU time (measured). While loading, the memtable is sorted as a whole later.
        self._is_sorting = profile is Profile.SERVING
        self._options = WriteOptions()
        self._options.disable_wal = True  # type: ignore[method-assign,assignment] # the stubs are wrong here
        # Otherwise RocksDB waits inside of the call, in which rocksdict holds the interpreter's lock: the whole process
        # was silent (observed: 3 s).
        self._options.no_slowdown = True
        #: When RocksDB was last given a batch, and whether it took that.
        self._tried_at, self._was_taken = 0.0, True
        try:
            make_private(path.parent)
            options = _options(profile)
            # Without the explicit column family, rocksdict uses the profile of the last opening.
            with disk_call():
                self._db = Rdict(str(path), options, column_families={"default": options})
        except OSError as error:
            raise Unavailable(f"{path}: {error}") from error
        except Exception as error:  # rocksdict raises nothing more specific
            raise _translate(error, path) from error
        if not os.access(path, os.W_OK):
            self._db.close()
            raise Unavailable(f"{path}: {os.strerror(errno.EROFS)}")

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, in order. Of a write at the same time, it may see a part."""
        order = sorted(range(len(keys)), key=keys.__getitem__)
        values: list[bytes | None] = [None] * len(keys)
        try:
            for begin in range(0, len(keys), _READ_AT_ONCE):
                part = order[begin : begin + _READ_AT_ONCE]
                found: Any = self._db.get([keys[at] for at in part])
                for at, value in zip(part, found, strict=True):
                    values[at] = value
        except Exception as error:  # rocksdict raises nothing more specific
            raise self._failed(error) from error
        return values

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        """Return the first ``limit`` keys of [start, stop) with their values; with ``reverse`` the last ones."""
        items: list[tuple[bytes, bytes]] = []
        if start >= stop:
            return ScanPage(items, True)
        # An iterator keeps the database open, even if that is closed. So none may be in the frames of an error.
        found: Any = None
        try:
            found = self._db.items(reverse, stop if reverse else start, _until(stop))
            size = 0
            for key, value in found:
                assert isinstance(key, bytes), "raw mode"
                if reverse and key < start:
                    return ScanPage(items, True)
                if len(items) >= limit or size >= _PAGE_BYTES:
                    return ScanPage(items, False)
                items.append((key, value))
                size += len(key) + len(value)
            self._check_end(items[-1][0] if items else None, start, stop, reverse)
        except CorruptState:
            raise
        except Exception as error:  # rocksdict raises nothing more specific
            raise self._failed(error) from error
        finally:
            found = None
        return ScanPage(items, True)

    def _check_end(self, last: bytes | None, start: bytes, stop: bytes, reverse: bool) -> None:
        """Raise `CorruptState` if there is data after ``last``.

        The library's loop mistakes an unreadable block for the end of the data (observed); only an iterator that is
        moved explicitly shows the difference.
        """
        iterator = self._db.iter(_until(stop))
        try:
            if reverse:
                iterator.seek_for_prev(stop if last is None else last)
                if last is not None and iterator.valid() and iterator.key() == last:
                    iterator.prev()
            else:
                iterator.seek(start if last is None else last + b"\x00")
            iterator.status()
            if iterator.valid() and iterator.key() >= start:
                raise CorruptState(f"{self._path}: a scan ended before {iterator.key()[:32]!r}")
        finally:
            del iterator

    def write(self, changes: Iterable[ChangelogRecord], cancelled: threading.Event | None = None) -> None:
        """Apply the changes as one atomic batch; wait while RocksDB takes none. See `Database.write`."""
        # Sorted by the key only, because changes of one key must keep their order. A list in any case: a batch that is
        # not taken is built again, because an attempt uses it up.
        changes = sorted(changes, key=_KEY_OF) if self._is_sorting else list(changes)
        cancelled = cancelled or threading.Event()
        pause = _FIRST_PAUSE_SECONDS
        try:
            while not self._is_taken(changes, cancelled):
                self._pause(pause, cancelled)
                pause = min(2 * pause, _PAUSE_SECONDS)
        except StandfastError:
            raise
        except Exception as error:  # rocksdict raises nothing more specific
            raise self._failed(error) from error

    def _is_taken(self, changes: Sequence[ChangelogRecord], cancelled: threading.Event) -> bool:
        """Try to write; return whether RocksDB has taken the batch. It refuses one before it writes anything of it."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        if rate := self._db.property_int_value("rocksdb.actual-delayed-write-rate"):
            self._pause(self._seconds_until_due(batch.size_in_bytes() / rate), cancelled)
        self._tried_at, self._was_taken = REAL.monotonic(), False
        try:
            self._db.write(batch, self._options)
        except Exception as error:
            if str(error) == _STALL:
                return False
            raise
        self._was_taken = True
        return True

    def _seconds_until_due(self, seconds: float) -> float:
        """Return how long to wait with an attempt that needs so much time of the rate to which RocksDB limits writes.

        RocksDB counts an attempt against the limit although it refuses it, so one that comes too early prolongs the
        wait: without end if the batch is large.
        """
        return self._tried_at + (1 if self._was_taken else 2) * seconds - REAL.monotonic()

    def _pause(self, seconds: float, cancelled: threading.Event) -> None:
        if seconds > 0 and cancelled.wait(seconds):
            raise Transient(f"{self._path}: a write was cancelled while the disk was behind")

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key that begins with ``prefix``, and its value, in key order."""
        for key, value in self._db.items(from_key=prefix):
            if not isinstance(key, bytes) or not key.startswith(prefix):
                return
            yield key, value

    def flush(self) -> None:
        """Flush everything written so far to disk."""
        try:
            self._db.flush()
        except Exception as error:  # rocksdict raises nothing more specific
            raise self._failed(error) from error

    def checkpoint(self, directory: Path) -> None:
        """Copy the database to a new directory on the same file system, by hard links."""
        # A checkpoint holds the interpreter lock while it flushes memtables (measured: 0.2 s for 30 MB). An explicit
        # flush does not, and leaves almost nothing to write.
        self.flush()
        try:
            with self._disk_call():
                Checkpoint(self._db).create_checkpoint(str(directory))
        except Exception as error:  # rocksdict raises nothing more specific
            # Whatever the cause, a failed copy must not make the database count as corrupt.
            raise Unavailable(f"{directory}: {error}") from error

    def close(self) -> None:
        """Flush and close; no effect when already closed."""
        try:
            try:
                self._db.flush()
            finally:
                # Also when the disk is full: no other process could open a database that this one holds.
                self._db.close()
        except DbClosedError:
            return
        except Exception as error:  # rocksdict raises nothing more specific
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StandfastError:
        return _translate(error, self._path)


def open_database(path: Path, profile: Profile, disk_call: DiskCall = nullcontext) -> RocksDatabase:
    """Return the database in ``path``, which is created if it does not exist; ``disk_call``: see `DiskCall`."""
    return RocksDatabase(path, profile, disk_call)
