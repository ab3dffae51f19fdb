"""Tumbling and hopping windows. Pure.

A store that is used like this must be used like this only; a watermark may lie there, too. Its keys::

    d <start> <key>   → <accumulator>                        one open window of one key
    f                 → <closed> <removed> <size> <advance>  how far windows were closed, and removed
    c                 → <watermark> <last>                   while many are closed or removed: up to when, and the
                                                              last key that was seen to

All windows have the same size, so the order of their starts is the order of their ends: what is due is one scan from
where the last one ended, and needs no index of its own.
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
_FLOOR_FORM: Final = struct.Struct(">qqQQ")
_LOWEST: Final = -(1 << 63)

#: Accumulators by window and key.
_Live = dict[int, dict[bytes, A]]


@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size that begin every ``advance_ms``: tumbling when that is the size, else hopping.

    As Kafka Streams' TimeWindows, Spark's `window(time, size, slide, start)`, and Flink's Tumbling- and
    SlidingEventTimeWindows: they hold [start, start + size), and starts are multiples of the advance since 1970 UTC.
    """

    size_ms: int
    advance_ms: int
    offset_ms: int = 0
    """Moves all starts, for days of another time zone say."""

    def __post_init__(self) -> None:
        if not 0 < self.advance_ms <= self.size_ms:
            raise ValueError(f"not 0 < advance <= size: {self.advance_ms} and {self.size_ms} ms")

    @classmethod
    def tumbling(cls, size_ms: int, offset_ms: int = 0) -> TimeWindows:
        """Return windows that follow each other without gap or overlap."""
        return cls(size_ms, size_ms, offset_ms)

    @classmethod
    def hopping(cls, size_ms: int, advance_ms: int, offset_ms: int = 0) -> TimeWindows:
        """Return windows that overlap: each row is in about ``size_ms / advance_ms`` of them."""
        return cls(size_ms, advance_ms, offset_ms)

    def starts(self, time_ms: int) -> range:
        """Return the starts of the windows that hold ``time_ms``, in order."""
        before = time_ms - self.size_ms
        first = before + self.advance_ms - (before - self.offset_ms) % self.advance_ms
        return range(first, time_ms + 1, self.advance_ms)


class Emit(Enum):
    """When a window's result is told."""

    ON_UPDATE = "on-update"
    """After each row of it: Kafka Streams without a cache, Spark's update mode for a batch of one row."""
    ON_CLOSE = "on-close"
    """Once, when it has closed: Kafka Streams' `suppress(untilWindowCloses)`, Spark's append mode."""


@dataclass(frozen=True)
class WindowAggregation(Generic[V, A]):
    """An aggregate per key and window.

    A window closes when the watermark reaches its end plus the grace, and takes no further rows then, unless
    lateness is allowed. Of one row all that is due is closed at once; a row far in the future closes everything.
    """

    windows: TimeWindows
    aggregate: Aggregate[V, A]
    emit: Emit = Emit.ON_CLOSE
    grace_ms: int = 0
    """How long after its end a window stays open, on top of the watermark's delay (Kafka Streams' grace)."""
    allowed_lateness_ms: int = 0
    """How long a closed window is kept: late rows update it, and each has its new result told (Flink's word)."""

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

        ``keys``, ``times`` (milliseconds), ``marks`` (of `Watermark.advance`) and ``values`` have one item per
        row, in order. A row without a key is in no window: it only moves time. Without ``values`` the aggregate
        gets None for each row. Raises `ValueError` for lists that do not fit, or a store that other windows use.
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
    """One call of `WindowAggregation.add`: read at once, gone through row by row, written at once."""

    def __init__(self, spec: WindowAggregation[V, A], store: Store, marks: Sequence[int]) -> None:
        self._spec = spec
        self._store = store
        self._size = spec.windows.size_ms
        #: From its start on, when a window is closed, and when it is removed.
        self._open_ms = self._size + spec.grace_ms
        self._kept_ms = self._open_ms + spec.allowed_lateness_ms
        head = store.get_many((_FLOOR, CLOSING))
        self._floor = head.get(_FLOOR)
        self._was_closed, self._was_removed = self._read_floor()
        closing = head.get(CLOSING)
        #: Up to when windows are being closed, and the last key that was seen to.
        self._target, self._seen = _LOWEST, b""
        if closing is not None:
            self._target, self._seen = INT.load(closing[:8]), closing[8:]
        lowest = max(self._was_closed + self._open_ms, self._target)
        if not marks:
            marks = [lowest]
        elif marks[0] < lowest:
            # Another watermark than before, a new one say: what was closed stays closed.
            marks = [max(each, lowest) for each in marks]
        self._marks = marks
        #: Windows that begin at or before these are closed, or removed, by the end of the batch.
        self._closed = marks[-1] - self._open_ms
        self._removed = max(self._was_removed, marks[-1] - self._kept_ms)
        self._live: _Live[A] = {}
        #: The windows that rows are in, by start, with their keys.
        self._touched: defaultdict[int, dict[bytes, None]] = defaultdict(dict)
        self._starts: list[Sequence[int]] = []
        self._expired: list[bytes] = []
        self.found = Results()

    def place(self, keys: Sequence[bytes | None], times: Sequence[int]) -> None:
        """Find the windows of each row that are not removed when it comes."""
        windows, touched, append = self._spec.windows, self._touched, self._starts.append
        size, offset, kept, removed = self._size, windows.offset_ms, self._kept_ms, self._was_removed
        is_tumbling = windows.advance_ms == size
        starts: Sequence[int]
        for row, (key, time, mark) in enumerate(zip(keys, times, self._marks, strict=True)):
            if key is None:
                append(())
                continue
            starts = (time - (time - offset) % size,) if is_tumbling else windows.starts(time)
            # What was removed stays so when windows are kept for longer now: its total is not known any more.
            if starts[0] + kept <= mark or starts[0] <= removed:
                starts = self._without_late(row, starts, max(mark - kept, removed))
            append(starts)
            for start in starts:
                touched[start][key] = None

    def load(self) -> None:
        """Read what rows go into and what will close, in one look-up and one or two scans."""
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
        for full, data in self._store.get_many(places).items():
            start, key = places[full]
            live[start][key] = load(data)

    def run(self, keys: Sequence[bytes | None], values: Sequence[Any]) -> None:
        """Take one row after the other: first close what is due at its time, then add it."""
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
        """Write what rows changed, and remove what has expired."""
        store, serde = self._store, self._spec.aggregate.serde
        store.delete_many(self._expired)
        for start, keys in self._touched.items():
            if start > self._removed:
                head, window = _DATA + INT.dump(start), self._live[start]
                store.put_many([(head + key, dump_value(serde, window[key], key)) for key in keys])
        windows = self._spec.windows
        floor = _FLOOR_FORM.pack(self._closed, self._removed, windows.size_ms, windows.advance_ms)
        if floor != self._floor:
            store.put(_FLOOR, floor)
        if self._target != _LOWEST:
            store.delete(CLOSING)

    def go_on(self) -> Results:
        """Close, and remove, the next ones of those that are due by the target; all but that is for the rows."""
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
        """Return all of ``due``; has rows postponed when that is more than one transaction should have."""
        found = list(islice(due, MOST))
        one_more = next(due, None)
        if one_more is None:
            return found
        row = bisect_left(self._marks, one_more[0] + after_ms)
        postpone(self._store, row, INT.dump(self._marks[0]))
        return chain(found, (one_more,), due)

    def _closing(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the windows in the store that close and have their results told then."""
        return self._scan(self._was_closed, self._closed) if self._spec.emit is Emit.ON_CLOSE else iter(())

    def _expiring(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the windows in the store that are removed, and have no result told."""
        closed = self._was_closed if self._spec.emit is Emit.ON_CLOSE else self._removed
        return self._scan(self._was_removed, min(closed, self._removed))

    def _without_late(self, row: int, starts: Sequence[int], removed: int) -> Sequence[int]:
        there = [each for each in starts if each > removed]
        self.found.dropped += len(starts) - len(there)
        if not there:
            self.found.late.append(row)
        return there

    def _due(self) -> Iterator[float]:
        """Yield the windows that close in this batch and have their results told then, in order; then never."""
        if self._spec.emit is Emit.ON_CLOSE:
            # A window that no row has come to yet will be empty when it closes, and come up as late.
            yield from sorted(each for each in self._live if self._was_closed < each <= self._closed)
        yield float("inf")

    def _close(self, start: float) -> None:
        """Tell the results of all keys in a window."""
        window = self._live[int(start)]
        for key in sorted(window):
            self._tell(key, int(start), window[key])

    def _tell(self, key: bytes, start: int, total: A) -> None:
        value = self._spec.aggregate.result(total)
        self.found.results.append(WindowResult(key, start, start + self._size, value))

    def _scan(self, after: int, last: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the windows in the store that begin behind ``after`` and not behind ``last``."""
        # What follows the last key that was seen to.
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
        windows = self._spec.windows
        if self._floor[16:] != _FLOOR_FORM.pack(0, 0, windows.size_ms, windows.advance_ms)[16:]:
            raise ValueError(
                "this store holds other windows: those of another size or advance need one of their own"
            )
        closed, removed, _, _ = _FLOOR_FORM.unpack(self._floor)
        return closed, removed


def _full(start: int, key: bytes) -> bytes:
    return _DATA + INT.dump(start) + key
