"""De-duplication by key. Pure.

The store must not be used in any other way, except for a watermark. Its keys::

    d <key>             → <expiry>     keys that were seen; without an expiry they stay for ever
    x <expiry> <key>    →              what expires when, in order
    f                   → <expiry>     nothing in the order lies before this
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from standby.api import Store
from standby.eventtime.results import check_rows
from standby.state.serdes import INT

_DATA: Final = b"d"
_ORDER: Final = b"x"
_FLOOR: Final = b"f"
_LOWEST: Final = -(1 << 63)

#: Number of expired keys that are removed per row: twice as many as rows can add, yet no batch becomes large after a
#: jump in time, such as after a weekend. Per row and not per batch, because otherwise the state would depend on
#: where a batch ends.
_REMOVED_PER_ROW: Final = 2

#: The expiry of keys that never expire.
_NEVER: Final = (1 << 63) - 1

#: Comes after everything that expires.
_NOTHING: Final = (_NEVER, b"")


@dataclass(slots=True)
class Deduplicated:
    """The classification of a batch's rows, by their positions."""

    kept: list[int] = field(default_factory=list)
    """The first rows of their keys."""
    duplicates: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    """Rows behind the watermark, so it is not known whether they are the first."""

    def only(self, keys: Sequence[bytes | None]) -> list[bytes | None]:
        """Return ``keys`` with None for the rows that are not kept: in a window, they only advance time."""
        chosen: list[bytes | None] = [None] * len(keys)
        for row in self.kept:
            chosen[row] = keys[row]
        return chosen


@dataclass(frozen=True)
class Deduplication:
    """Keeps the first row of each key; created by `within_watermark` or `by_key`."""

    kept_ms: int | None
    drops_late: bool

    def __post_init__(self) -> None:
        if self.kept_ms is not None and self.kept_ms <= 0:
            raise ValueError(f"keys must be kept for more than 0 ms, not {self.kept_ms}")

    @classmethod
    def within_watermark(cls, span_ms: int) -> Deduplication:
        """Return a de-duplication like Spark's `dropDuplicatesWithinWatermark`, for duplicates within ``span_ms``.

        A key is kept until the watermark reaches the time of its first row plus the span; rows behind the watermark
        are dropped as late. In Spark, the span and the watermark's delay are the same number.
        """
        return cls(span_ms, drops_late=True)

    @classmethod
    def by_key(cls, ttl_ms: int | None = None) -> Deduplication:
        """Return a de-duplication without limit, or until the task's time has advanced by ``ttl_ms``.

        No row is late, however old. The time to live starts at the later of the first row's time and the watermark.
        Without a time to live, the state grows with the number of keys, like that of Spark's `dropDuplicates`.
        """
        return cls(ttl_ms, drops_late=False)

    def apply(
        self, store: Store, keys: Sequence[bytes | None], times: Sequence[int], marks: Sequence[int]
    ) -> Deduplicated:
        """Return which rows are the first of their key; the state goes to ``store``.

        Each sequence has one item per row, in order: the keys that identify duplicates, the event times in
        milliseconds, and the results of `Watermark.advance`. A row with None as key only advances time and is in
        none of the lists. Raises `ValueError` when the sequences do not match.
        """
        check_rows(keys, times, marks)
        if not keys:
            return Deduplicated()
        batch = _Batch(self, store, keys, marks)
        found = batch.run(keys, times, marks)
        batch.write()
        return found


class _Batch:
    """One call of `Deduplication.apply`: one read, then row by row, then one write."""

    def __init__(
        self, spec: Deduplication, store: Store, keys: Sequence[bytes | None], marks: Sequence[int]
    ) -> None:
        self._spec = spec
        self._store = store
        seen = store.get_many(dict.fromkeys(_DATA + key for key in keys if key is not None))
        self._old = {full[1:]: INT.load(data) if data else _NEVER for full, data in seen.items()}
        #: The expiry of the rows' keys; None: removed.
        self._expiry: dict[bytes, int | None] = dict(self._old)
        floor = store.get(_FLOOR)
        self._old_floor = self._floor = _LOWEST if floor is None else INT.load(floor)
        self._last = marks[-1]
        #: What expires in this batch, in order: entries of the store, read as needed, and those added by rows.
        self._stored: Iterator[tuple[bytes, bytes]] = iter(())
        if self._floor <= self._last:
            self._stored = store.range(_ORDER + INT.dump(self._floor), _ORDER + INT.dump(self._last + 1))
        self._head = self._following()
        self._added: list[tuple[int, bytes]] = []
        self._next = self._head[0]
        #: Removed keys that are not of a row of the batch, with their entries in the order.
        self._removed: list[tuple[int, bytes]] = []

    def run(self, keys: Sequence[bytes | None], times: Sequence[int], marks: Sequence[int]) -> Deduplicated:
        """Process row by row: first remove some expired keys, then look up the row's key."""
        found = Deduplicated()
        kept, duplicates, late = found.kept.append, found.duplicates.append, found.late.append
        expiries, drops_late, kept_ms = self._expiry, self._spec.drops_late, self._spec.kept_ms
        for row, (key, time, mark) in enumerate(zip(keys, times, marks, strict=True)):
            if self._next <= mark:
                self._remove(mark)
            if key is None:
                continue
            if drops_late and time < mark:
                late(row)
                continue
            expiry = expiries.get(key)
            if expiry is not None and expiry > mark:
                duplicates(row)
                continue
            kept(row)
            if kept_ms is None:
                expiries[key] = _NEVER
            else:
                expiries[key] = until = max(time, mark) + kept_ms
                self._add(until, key)
        return found

    def write(self) -> None:
        """Write the new keys, and remove the expired ones."""
        store, old = self._store, self._old
        store.delete_many(_DATA + key for _, key in self._removed)
        store.delete_many(_ORDER + INT.dump(expiry) + key for expiry, key in self._removed)
        for key, expiry in self._expiry.items():
            before = old.get(key)
            if expiry == before:
                continue
            if before is not None and before != _NEVER:
                store.delete(_ORDER + INT.dump(before) + key)
            if expiry is None:
                store.delete(_DATA + key)
            elif expiry == _NEVER:
                store.put(_DATA + key, b"")
            else:
                at = INT.dump(expiry)
                store.put(_DATA + key, at)
                store.put(_ORDER + at + key, b"")
        if self._floor != self._old_floor:
            store.put(_FLOOR, INT.dump(self._floor))

    def _add(self, expiry: int, key: bytes) -> None:
        self._floor = min(self._floor, expiry)
        if expiry <= self._last:
            heapq.heappush(self._added, (expiry, key))
            self._next = min(self._next, expiry)

    def _remove(self, mark: int) -> None:
        """Remove the first expired keys, up to the limit per row."""
        left = _REMOVED_PER_ROW
        while left and self._next <= mark:
            if self._added and self._added[0] < self._head:
                first = heapq.heappop(self._added)
            else:
                first, self._head = self._head, self._following()
            self._next = min(self._head[0], self._added[0][0]) if self._added else self._head[0]
            expiry, key = first
            if self._expiry.get(key, expiry) != expiry:
                # The key has occurred again before it was removed, and has another entry.
                continue
            if key in self._expiry:
                self._expiry[key] = None
            else:
                self._removed.append(first)
            self._floor = expiry
            left -= 1

    def _following(self) -> tuple[int, bytes]:
        """Return the store's next expiring entry; `_NOTHING` when there is none."""
        for order, _ in self._stored:
            return INT.load(order[1:9]), order[9:]
        return _NOTHING
