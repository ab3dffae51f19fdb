"""Session windows: rows of a key that follow each other within a gap. Pure.

The store must not be used in any other way, except for a watermark. Its keys::

    s <key>          → <at> (<first> <last> <length> <accumulator>)*   the open sessions of a key, in order
    x <at> <key>     →                                                  when to look at the key, in order
    f                → <at>                                             nothing in the order lies before this
    c                → <watermark>                                      while many are closed: up to when

The order has one entry per key, at or before the last row of its first session to close. It is not updated with each
row: when it is due and the session has grown meanwhile, the entry is moved then. So a row in an open session costs
one write per key and batch.
"""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from standby.api import Store
from standby.eventtime.aggregates import Aggregate
from standby.eventtime.bounded import CLOSING, MOST, postpone
from standby.eventtime.results import Results, WindowResult, check_rows
from standby.state.serdes import INT, Serde, dump_value

V = TypeVar("V")
A = TypeVar("A")

_DATA: Final = b"s"
_ORDER: Final = b"x"
_FLOOR: Final = b"f"
_HEAD: Final = struct.Struct(">qqI")
_LOWEST: Final = -(1 << 63)


@dataclass(slots=True)
class _Session(Generic[A]):
    first: int
    last: int
    total: A


@dataclass(slots=True)
class _Key(Generic[A]):
    """The open sessions of one key; ``at`` is its entry in the order."""

    at: int
    sessions: list[_Session[A]]


@dataclass(frozen=True)
class SessionAggregation(Generic[V, A]):
    """An aggregate per key and session; its result is emitted once, when the session has closed.

    Like SessionWindows of Kafka Streams: rows of a key that are not further apart than the gap are in one session,
    which extends from its first row to its last; a row between two sessions merges them. A session closes when the
    watermark has passed its last row by more than the gap and the grace. A row is late when it belongs to no open
    session and a session of its own would have closed already. (In Spark and Flink, a session ends a gap after its
    last row.)
    """

    gap_ms: int
    aggregate: Aggregate[V, A]
    """It must have `Aggregate.merge`."""
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.gap_ms <= 0 or self.grace_ms < 0:
            raise ValueError(f"a gap of {self.gap_ms} ms, or a grace of {self.grace_ms} ms")
        if self.aggregate.merge is None:
            raise ValueError("the aggregate of sessions needs merge: a row may make two sessions one")

    def add(
        self,
        store: Store,
        keys: Sequence[bytes | None],
        times: Sequence[int],
        marks: Sequence[int],
        values: Sequence[V] | None = None,
    ) -> Results:
        """Return the results of the sessions that closed; the state goes to ``store``.

        Parameters as in `standby.eventtime.WindowAggregation.add`. Among the results of one row, the session that
        ended first comes first.
        """
        check_rows(keys, times, marks, values)
        if not keys:
            closing = store.get(CLOSING)
            return Results() if closing is None else _Batch(self, store, (), [INT.load(closing)]).go_on()
        batch = _Batch(self, store, keys, marks)
        batch.run(keys, times, marks, [None] * len(keys) if values is None else values)
        batch.write()
        return batch.found


class _Batch(Generic[V, A]):
    """One call of `SessionAggregation.add`: one read, then row by row, then one write."""

    def __init__(
        self,
        spec: SessionAggregation[V, A],
        store: Store,
        keys: Sequence[bytes | None],
        marks: Sequence[int],
    ) -> None:
        self._spec = spec
        self._store = store
        self._closes_ms = spec.gap_ms + spec.grace_ms
        #: Sessions whose last row is before this are closed by the end of the batch.
        self._end = marks[-1] - self._closes_ms
        head = store.get_many((_FLOOR, CLOSING))
        floor = head.get(_FLOOR)
        #: Whether a closing was in progress; it ends with the next rows, or the last call without rows.
        self._was_closing = CLOSING in head
        self._old_floor = self._floor = _LOWEST if floor is None else INT.load(floor)
        #: The entries of the order that are due in this batch, as a heap. Entries that are no longer their key's are
        #: ignored.
        self._due: list[tuple[int, bytes]] = []
        #: The first entry that is left for another call.
        self._beyond: tuple[int, bytes] | None = None
        if self._floor < self._end:
            due = (
                (INT.load(each[1:9]), each[9:])
                for each, _ in store.range(_ORDER + INT.dump(self._floor), _ORDER + INT.dump(self._end))
            )
            # In order, so a heap.
            self._due = list(islice(due, MOST))
            self._beyond = next(due, None)
            if keys and self._beyond is not None:
                postpone(store, bisect_right(marks, self._beyond[0] + self._closes_ms), INT.dump(marks[0]))
                self._due += [self._beyond, *due]
                self._beyond = None
        asked = dict.fromkeys(_DATA + key for key in keys if key is not None)
        asked.update(dict.fromkeys(_DATA + key for _, key in self._due))
        self._old: Mapping[bytes, bytes] = store.get_many(asked)
        load = spec.aggregate.serde
        self._open = {full[1:]: _load(data, load) for full, data in self._old.items()}
        #: All keys that may have changed.
        self._touched = asked
        self.found = Results()

    def run(
        self,
        keys: Sequence[bytes | None],
        times: Sequence[int],
        marks: Sequence[int],
        values: Sequence[Any],
    ) -> None:
        """Process row by row: first close what is due at the row's time, then add it."""
        open_, due, closes, gap = self._open, self._due, self._closes_ms, self._spec.gap_ms
        add = self._spec.aggregate.add
        for row, (key, time, mark, value) in enumerate(zip(keys, times, marks, values, strict=True)):
            if due and due[0][0] < mark - closes:
                self._close(mark - closes)
            if key is None:
                continue
            there = open_.get(key)
            if there is not None and len(there.sessions) == 1:
                session = there.sessions[0]
                if session.first - gap <= time <= session.last + gap:
                    session.total = add(session.total, value)
                    if time > session.last:
                        session.last = time
                    elif time < session.first:
                        session.first = time
                    continue
            if not self._join(key, there, time, mark - closes, value):
                self.found.late.append(row)
        self.found.dropped = len(self.found.late)

    def go_on(self) -> Results:
        """Close the next due sessions; everything else is left for the rows."""
        self._close(self._end)
        self.write()
        return self.found

    def write(self) -> None:
        """Write the changes, and remove keys without sessions."""
        store, serde = self._store, self._spec.aggregate.serde
        for full in self._touched:
            key, old = full[1:], self._old.get(full)
            there = self._open.get(key)
            new = None if there is None else _dump(there, serde, key)
            if new == old:
                continue
            # Both begin with the key's entry in the order.
            if old is not None and (new is None or new[:8] != old[:8]):
                store.delete(_ORDER + old[:8] + key)
            if there is None or new is None:
                store.delete(full)
                continue
            store.put(full, new)
            if old is None or new[:8] != old[:8]:
                store.put(_ORDER + new[:8] + key, b"")
        if self._floor != self._old_floor:
            store.put(_FLOOR, INT.dump(self._floor))
        if self._was_closing and self._beyond is None:
            store.delete(CLOSING)

    def _join(self, key: bytes, there: _Key[A] | None, time: int, closed: int, value: Any) -> bool:
        """Add a row to the sessions that it touches, which are merged, or to a new one; return False if it is late."""
        aggregate, gap = self._spec.aggregate, self._spec.gap_ms
        sessions = [] if there is None else there.sessions
        near = [each for each in sessions if each.first - gap <= time <= each.last + gap]
        if not near and time < closed:
            return False
        total = near[0].total if near else aggregate.init()
        for each in near[1:]:
            assert aggregate.merge is not None, "checked when it was made"
            total = aggregate.merge(total, each.total)
        joined = _Session(
            min([time, *(each.first for each in near)]),
            max([time, *(each.last for each in near)]),
            aggregate.add(total, value),
        )
        if there is None:
            there = self._open[key] = _Key(joined.last, [joined])
            self._place(key, there)
        else:
            there.sessions = sorted([*(each for each in sessions if each not in near), joined], key=_first)
            if joined.last < there.at:
                there.at = joined.last
                self._place(key, there)
        return True

    def _place(self, key: bytes, there: _Key[A]) -> None:
        """Record a key's new entry in the order."""
        self._floor = min(self._floor, there.at)
        if there.at < self._end:
            heapq.heappush(self._due, (there.at, key))

    def _close(self, closed: int) -> None:
        """Emit the results of the sessions whose last row is before ``closed``, ordered by last row, then key."""
        result = self._spec.aggregate.result
        beyond = self._beyond or (closed, b"")
        while self._due and self._due[0][0] < closed and self._due[0] < beyond:
            at, key = heapq.heappop(self._due)
            there = self._open.get(key)
            if there is None or there.at != at:
                continue
            self._floor = at
            first = min(there.sessions, key=_last)
            if first.last == at:
                # Two sessions of a key never have the same last row.
                self.found.results.append(WindowResult(key, first.first, first.last, result(first.total)))
                there.sessions.remove(first)
            if there.sessions:
                there.at = min(each.last for each in there.sessions)
                self._place(key, there)
            else:
                del self._open[key]


def _first(session: _Session[Any]) -> int:
    return session.first


def _last(session: _Session[Any]) -> int:
    return session.last


def _dump(there: _Key[A], serde: Serde[A], key: bytes) -> bytes:
    parts = [INT.dump(there.at)]
    for each in there.sessions:
        total = dump_value(serde, each.total, key)
        parts += (_HEAD.pack(each.first, each.last, len(total)), total)
    return b"".join(parts)


def _load(data: bytes, serde: Serde[A]) -> _Key[A]:
    sessions, place = [], 8
    while place < len(data):
        first, last, length = _HEAD.unpack_from(data, place)
        place += _HEAD.size + length
        sessions.append(_Session(first, last, serde.load(data[place - length : place])))
    return _Key(INT.load(data[:8]), sessions)
