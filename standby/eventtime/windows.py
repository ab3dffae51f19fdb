"""Tumbling and hopping windows. Pure.

The store must not be used in any other way, except for a watermark. Its keys::

    d <start> <key>   → <accumulator>        one open window of one key
    f                 → <closed> <removed> <size> <advance> <offset>
                                             how far windows were closed, and removed
    c                 → <watermark> <last>   while many are closed or removed: up to when, and the last key that
                                             was seen to

All windows have the same size, so the order of their starts is the order of their ends: due windows are found by one
scan from where the last one ended, without an index.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar

from standby.api import Store
from standby.eventtime.aggregates import Aggregate
from standby.eventtime.bounded import CLOSING, MOST, postpone
from standby.eventtime.results import Results, WindowResult, check_rows
from standby.state.serdes import INT, dump_value

V = TypeVar("V")
A = TypeVar("A")

_DATA: Final = b"d"
_FLOOR: Final = b"f"
_FLOOR_FORM: Final = struct.Struct(">qqQQQ")
_LOWEST: Final = -(1 << 63)

#: Accumulators by window and key.
_Live = dict[int, dict[bytes, A]]


@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size that begin every ``advance_ms``: tumbling if that is the size, otherwise hopping.

    Like Kafka Streams' TimeWindows, Spark's `window(time, size, slide, start)`, and Flink's Tumbling- and
    SlidingEventTimeWindows: a window is [start, start + size), and starts are multiples of the advance since 1970
    UTC.
    """

    size_ms: int
    advance_ms: int
    offset_ms: int = 0
    """Shifts all starts, for example for days of another time zone."""

    def __post_init__(self) -> None:
        if not 0 < self.advance_ms <= self.size_ms:
            raise ValueError(f"not 0 < advance <= size: {self.advance_ms} and {self.size_ms} ms")

    @classmethod
    def tumbling(cls, size_ms: int, offset_ms: int = 0) -> TimeWindows:
        """Return windows without gaps and overlaps."""
        return cls(size_ms, size_ms, offset_ms)

    @classmethod
    def hopping(cls, size_ms: int, advance_ms: int, offset_ms: int = 0) -> TimeWindows:
        """Return overlapping windows: each row is in about ``size_ms / advance_ms`` of them."""
        return cls(size_ms, advance_ms, offset_ms)

    def starts(self, time_ms: int) -> range:
        """Return the starts of the windows that contain ``time_ms``, in order."""
        before = time_ms - self.size_ms
        first = before + self.advance_ms - (before - self.offset_ms) % self.advance_ms
        return range(first, time_ms + 1, self.advance_ms)


class Emit(Enum):
    """When a window's result is emitted."""

    ON_UPDATE = "on-update"
    """After each of its rows: like Kafka Streams without a cache, or Spark's update mode with one row per batch."""
    ON_CLOSE = "on-close"
    """Once, when it has closed: like Kafka Streams' `suppress(untilWindowCloses)`, or Spark's append mode."""


@dataclass(frozen=True)
class WindowAggregation(Generic[V, A]):
    """An aggregate per key and window.

    A window closes when the watermark reaches its end plus the grace, and then accepts no further rows, unless
    lateness is allowed. Each row closes all windows that are due; a row far in the future closes all windows.
    """

    windows: TimeWindows
    aggregate: Aggregate[V, A]
    emit: Emit = Emit.ON_CLOSE
    grace_ms: int = 0
    """How long after its end a window stays open, in addition to the watermark's delay (Kafka Streams' grace)."""
    allowed_lateness_ms: int = 0
    """How long a closed window is kept: late rows update it, and each update is emitted (as in Flink)."""

    def __post_init__(self) -> None:
        if self.grace_ms < 0 or self.allowed_lateness_ms < 0:
            raise ValueError(f"below 0: grace {self.grace_ms} or lateness {self.allowed_lateness_ms} ms")

    def add(
        self,
        store: Store,
        keys: Sequence[bytes | None],
        times: Sequence[int],
        marks: Sequence[int],
        values: Sequence[V] | None = None,
    ) -> Results:
        """Return the results of windows that the rows updated or closed; the state goes to ``store``.

        ``keys``, ``times`` (milliseconds), ``marks`` (of `Watermark.advance`) and ``values`` have one item per row,
        in order. A row without a key is in no window: it only advances time. Without ``values``, the aggregate gets
        None for each row. Raises `ValueError` for lists that do not match, or a store that other windows use.
        """
        check_rows(keys, times, marks, values)
        if not keys:
            return _Batch(self, store, ()).go_on() if CLOSING in store else Results()
        batch = _Batch(self, store, marks)
        batch.place(keys, times)
        batch.load()
        batch.run(keys, [None] * len(keys) if values is None else values)
        batch.write()
        return batch.found


class _Batch(Generic[V, A]):
    """One call of `WindowAggregation.add`: one read, then row by row, then one write."""

    def __init__(self, spec: WindowAggregation[V, A], store: Store, marks: Sequence[int]) -> None:
        self._spec = spec
        self._store = store
        self._size = spec.windows.size_ms
        #: Time from a window's start until it is closed, and until it is removed.
        self._open_ms = self._size + spec.grace_ms
        self._kept_ms = self._open_ms + spec.allowed_lateness_ms
        head = store.get_many((_FLOOR, CLOSING))
        self._floor = head.get(_FLOOR)
        self._was_closed, self._was_removed = self._read_floor()
        closing = head.get(CLOSING)
        #: The watermark up to which windows are being closed, and the last key that was processed.
        self._target, self._seen = _LOWEST, b""
        if closing is not None:
            self._target, self._seen = INT.load(closing[:8]), closing[8:]
        lowest = max(self._was_closed + self._open_ms, self._target)
        if not marks:
            marks = [lowest]
        elif marks[0] < lowest:
            # The watermark was replaced, for example by a new one: closed windows stay closed.
            marks = [max(each, lowest) for each in marks]
        self._marks = marks
        #: Windows that begin at or before these times are closed, or removed, by the end of the batch.
        self._closed = marks[-1] - self._open_ms
        self._removed = max(self._was_removed, marks[-1] - self._kept_ms)
        self._live: _Live[A] = {}
        #: The windows of the rows, by start, with their keys.
        self._touched: defaultdict[int, dict[bytes, None]] = defaultdict(dict)
        self._starts: list[Sequence[int]] = []
        self._expired: list[bytes] = []
        self.found = Results()

    def place(self, keys: Sequence[bytes | None], times: Sequence[int]) -> None:
        """Find the windows of each row that have not been removed by then."""
        windows, touched, append = self._spec.windows, self._touched, self._starts.append
        size, offset, kept, removed = self._size, windows.offset_ms, self._kept_ms, self._was_removed
        is_tumbling = windows.advance_ms == size
        starts: Sequence[int]
        for row, (key, time, mark) in enumerate(zip(keys, times, self._marks, strict=True)):
            if key is None:
                append(())
                continue
            starts = (time - (time - offset) % size,) if is_tumbling else windows.starts(time)
            # Removed windows stay removed even if windows are kept for longer now: their totals are lost.
            if starts[0] + kept <= mark or starts[0] <= removed:
                starts = self._without_late(row, starts, max(mark - kept, removed))
            append(starts)
            for start in starts:
                touched[start][key] = None

    def load(self) -> None:
        """Read the windows of the rows, and those that will close, in one look-up and one or two scans."""
        if self._target != _LOWEST:
            postpone(self._store, 0, INT.dump(self._target) + self._seen)
        live, load = self._live, self._spec.aggregate.serde.load
        for start in self._touched:
            live[start] = {}
        asked: Iterable[int] = self._touched
        if self._spec.emit is Emit.ON_CLOSE:
            for start, key, data in self._taken(self._closing(), self._open_ms):
                live.setdefault(start, {})[key] = load(data)
                if start <= self._removed:
                    self._expired.append(_full(start, key))
            asked = (each for each in self._touched if not self._was_closed < each <= self._closed)
        self._expired += [_full(start, key) for start, key, _ in self._taken(self._expiring(), self._kept_ms)]
        places = {
            head + key: (start, key)
            for start in asked
            for head in (_DATA + INT.dump(start),)
            for key in self._touched[start]
        }
        if self._seen:
            # The scan goes on after these keys, which calls without rows have seen to.
            closing = (each for each in self._touched if self._was_closed < each <= self._closed)
            seen = ((_full(start, key), start, key) for start in closing for key in self._touched[start])
            places |= {full: (start, key) for full, start, key in seen if full <= self._seen}
        for full, data in self._store.get_many(places).items():
            start, key = places[full]
            live[start][key] = load(data)

    def run(self, keys: Sequence[bytes | None], values: Sequence[Any]) -> None:
        """Process row by row: first close what is due at the row's time, then add it."""
        aggregate, live, opened = self._spec.aggregate, self._live, self._open_ms
        init, add = aggregate.init, aggregate.add
        tells_updates = self._spec.emit is Emit.ON_UPDATE
        due = self._due()
        next_due = next(due)
        for key, starts, value, mark in zip(keys, self._starts, values, self._marks, strict=True):
            while next_due + opened <= mark:
                self._close(next_due)
                next_due = next(due)
            if key is None:
                continue
            for start in starts:
                window = live[start]
                total = add(window[key] if key in window else init(), value)
                window[key] = total
                if tells_updates or start + opened <= mark:
                    self._tell(key, start, total)

    def write(self) -> None:
        """Write the changes, and remove expired windows."""
        store, serde = self._store, self._spec.aggregate.serde
        store.delete_many(self._expired)
        for start, keys in self._touched.items():
            if start > self._removed:
                head, window = _DATA + INT.dump(start), self._live[start]
                store.put_many([(head + key, dump_value(serde, window[key], key)) for key in keys])
        floor = self._packed(self._closed, self._removed)
        if floor != self._floor:
            store.put(_FLOOR, floor)
        if self._target != _LOWEST:
            store.delete(CLOSING)

    def go_on(self) -> Results:
        """Close and remove the next windows that are due by the target; everything else is left for the rows."""
        store, load = self._store, self._spec.aggregate.serde.load
        tells = self._spec.emit is Emit.ON_CLOSE
        due = islice(chain(self._expiring(), self._closing()), MOST)
        last = b""
        for count, (start, key, data) in enumerate(due, 1):
            last = _full(start, key)
            if tells and start > self._was_closed:
                self._tell(key, start, load(data))
            if start <= self._removed:
                self._expired.append(last)
            if count == MOST:
                store.delete_many(self._expired)
                store.put(CLOSING, INT.dump(self._target) + last)
                return self.found
        self.write()
        return self.found

    def _taken(
        self, due: Iterator[tuple[int, bytes, bytes]], after_ms: int
    ) -> Iterable[tuple[int, bytes, bytes]]:
        """Return all of ``due``; postpones rows when that is more than one transaction should hold."""
        found = list(islice(due, MOST))
        one_more = next(due, None)
        if one_more is None:
            return found
        row = bisect_left(self._marks, one_more[0] + after_ms)
        postpone(self._store, row, INT.dump(self._marks[0]))
        return chain(found, (one_more,), due)

    def _closing(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the windows in the store that close now, and whose results are emitted then."""
        return self._scan(self._was_closed, self._closed) if self._spec.emit is Emit.ON_CLOSE else iter(())

    def _expiring(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the windows in the store that are removed without emitting a result."""
        closed = self._was_closed if self._spec.emit is Emit.ON_CLOSE else self._removed
        return self._scan(self._was_removed, min(closed, self._removed))

    def _without_late(self, row: int, starts: Sequence[int], removed: int) -> Sequence[int]:
        there = [each for each in starts if each > removed]
        self.found.dropped += len(starts) - len(there)
        if not there:
            self.found.late.append(row)
        return there

    def _due(self) -> Iterator[float]:
        """Yield the windows that close in this batch and emit their results then, in order; then infinity."""
        if self._spec.emit is Emit.ON_CLOSE:
            # A window without rows so far will be empty when it closes; its later rows are late.
            yield from sorted(each for each in self._live if self._was_closed < each <= self._closed)
        yield float("inf")

    def _close(self, start: float) -> None:
        """Emit the results of all keys in a window but those that calls without rows have emitted."""
        window, first = self._live[int(start)], int(start)
        for key in sorted(window):
            if not self._seen or _full(first, key) > self._seen:
                self._tell(key, first, window[key])

    def _tell(self, key: bytes, start: int, total: A) -> None:
        value = self._spec.aggregate.result(total)
        self.found.results.append(WindowResult(key, start, start + self._size, value))

    def _scan(self, after: int, last: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the windows in the store that begin after ``after``, and at or before ``last``."""
        # Continue after the last key that was processed.
        first = max(_full(after + 1, b""), self._seen + b"\x00")
        if after < last:
            head, start = b"", 0
            for full, data in self._store.range(first, _full(last + 1, b"")):
                if full[:9] != head:
                    head, start = full[:9], INT.load(full[1:9])
                yield start, full[9:], data

    def _read_floor(self) -> tuple[int, int]:
        if self._floor is None:
            return _LOWEST, _LOWEST
        if self._floor[16:] != self._packed(0, 0)[16:]:
            raise ValueError(
                "this store holds other windows: windows of another size, advance or offset need a store of their own"
            )
        closed, removed, *_ = _FLOOR_FORM.unpack(self._floor)
        return closed, removed

    def _packed(self, closed: int, removed: int) -> bytes:
        windows = self._spec.windows
        offset = windows.offset_ms % windows.advance_ms
        return _FLOOR_FORM.pack(closed, removed, windows.size_ms, windows.advance_ms, offset)


def _full(start: int, key: bytes) -> bytes:
    return _DATA + INT.dump(start) + key
