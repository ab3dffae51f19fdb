"""Event time goes by the rows: where batches end changes neither results nor a byte of state.

Each helper is run over the same rows in one batch, in batches cut at random, and against a model that knows no
batches, looks at everything it has at each row, and keeps the rows themselves instead of accumulators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from standby.api import State
from standby.eventtime import (
    Aggregate,
    Deduplication,
    Emit,
    SessionAggregation,
    TimeWindows,
    Watermark,
    WindowAggregation,
)
from standby.state import JSON
from standby.state.serdes import INT
from tests.examples import examples
from tests.fakes.task_state import TaskState

PROPERTY = settings(max_examples=examples(120))


def _append(total: list[int], value: int) -> list[int]:
    total.append(value)
    return total


#: Order matters, and accumulators are changed in place: what is added where is seen.
LISTED: Aggregate[int, list[int]] = Aggregate(
    init=list, add=_append, serde=JSON, merge=operator.iadd, result=tuple
)


@dataclass(frozen=True)
class Row:
    key: bytes | None
    time: int


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    """Return rows that move on in time, out of order by a little or a lot, before 1970 too."""
    now, rows = draw(st.integers(-40, 40)), []
    for _ in range(draw(st.integers(0, 40))):
        now += draw(st.sampled_from([0, 0, 1, 2, 3, 5, 11, 60]))
        behind = draw(st.sampled_from([0, 0, 1, 2, 4, 8, 15, 40]))
        rows.append(Row(draw(st.sampled_from([b"", b"a", b"b", b"\x00c", None])), now - behind))
    return rows


CUTS = st.lists(st.integers(0, 40), max_size=12)

#: Rows in, what they led to out: by kind of output, in order, with rows by their place in the whole stream.
Found = dict[str, list[Any]]
Step = Callable[[State, Sequence[Row], int], Found]


def run(step: Step, rows: Sequence[Row], cuts: Sequence[int]) -> tuple[Found, TaskState]:
    """Return all outputs and the state after ``rows``, in batches that end at ``cuts``."""
    state, outputs = TaskState("s"), Found()
    ends = sorted({0, len(rows), *(each for each in cuts if each < len(rows))})
    for start, end in pairwise(ends):
        with state.batch() as stores:
            for kind, found in step(stores, rows[start:end], start).items():
                outputs.setdefault(kind, []).extend(found)
    return outputs, state


def marks_of(rows: Sequence[Row], delay: int) -> list[int]:
    highest, marks = -(10**9), []
    for row in rows:
        highest = max(highest, row.time)
        marks.append(highest - delay)
    return marks


def check(step: Step, rows: Sequence[Row], cuts: Sequence[int], expected: Found) -> TaskState:
    """Assert that all three ways agree; return the state after them."""
    whole, state = run(step, rows, ())
    pieces, same = run(step, rows, cuts)
    singly, again = run(step, rows, range(len(rows)))
    assert whole == pieces == singly
    assert state.content == same.content == again.content
    assert whole == (expected if rows else {})
    return state


@dataclass
class WindowModel:
    spec: WindowAggregation[int, list[int]]
    windows: dict[tuple[int, bytes], list[int]] = field(default_factory=dict)
    told: set[tuple[int, bytes]] = field(default_factory=set)

    def run(self, rows: Sequence[Row], marks: Sequence[int]) -> Found:
        found: Found = {"results": [], "late": [], "dropped": []}
        spec, size = self.spec, self.spec.windows.size_ms
        opened = size + spec.grace_ms
        kept = opened + spec.allowed_lateness_ms
        for place, (row, mark) in enumerate(zip(rows, marks, strict=True)):
            for start, key in sorted(set(self.windows) - self.told):
                if spec.emit is Emit.ON_CLOSE and start + opened <= mark:
                    self.tell(found, start, key)
            self.windows = {each: values for each, values in self.windows.items() if each[0] + kept > mark}
            if row.key is None:
                continue
            # All windows that hold the row, the slow way.
            starts = [
                each
                for each in range(row.time - size + 1, row.time + 1)
                if (each - spec.windows.offset_ms) % spec.windows.advance_ms == 0
            ]
            there = [each for each in starts if each + kept > mark]
            found["dropped"] += [place] * (len(starts) - len(there))
            if not there:
                found["late"].append(place)
            for start in there:
                self.windows.setdefault((start, row.key), []).append(place)
                if spec.emit is Emit.ON_UPDATE or start + opened <= mark:
                    self.tell(found, start, row.key)
        return found

    def tell(self, found: Found, start: int, key: bytes) -> None:
        self.told.add((start, key))
        end = start + self.spec.windows.size_ms
        found["results"].append((key, start, end, tuple(self.windows[start, key])))


@st.composite
def window_aggregations(draw: st.DrawFn) -> WindowAggregation[int, list[int]]:
    size = draw(st.integers(1, 12))
    windows = TimeWindows(size, draw(st.integers(1, size)), draw(st.integers(-5, 5)))
    return WindowAggregation(
        draw(st.sampled_from([windows, TimeWindows.tumbling(size)])),
        LISTED,
        draw(st.sampled_from(Emit)),
        draw(st.sampled_from([0, 0, 3, 10])),
        draw(st.sampled_from([0, 0, 2, 20])),
    )


@PROPERTY
@given(rows=streams(), cuts=CUTS, delay=st.sampled_from([0, 2, 9]), spec=window_aggregations())
def test_windows_do_not_depend_on_batches(
    rows: list[Row], cuts: list[int], delay: int, spec: WindowAggregation[int, list[int]]
) -> None:
    def step(state: State, batch: Sequence[Row], first: int) -> Found:
        times = [each.time for each in batch]
        values = range(first, first + len(batch))
        marks = Watermark(delay).advance(state["s"], times)
        found = spec.add(state["s"], [each.key for each in batch], times, marks, values)
        late = [first + each for each in found.late]
        return {"results": [tuple(each) for each in found.results], "late": late, "dropped": [found.dropped]}

    model = WindowModel(spec)
    expected = model.run(rows, marks_of(rows, delay))
    dropped = expected.pop("dropped")

    def counted(state: State, batch: Sequence[Row], first: int) -> Found:
        found = step(state, batch, first)
        # A number per batch: only the sum is the same.
        found["dropped"] = [None] * found["dropped"][0]
        return found

    state = check(counted, rows, cuts, {**expected, "dropped": [None] * len(dropped)})
    held = {
        (INT.load(key[1:9]), key[9:]): JSON.load(value)
        for key, value in state.of("s").items()
        if key[:1] == b"d"
    }
    assert held == model.windows, "just the windows that are not over are in the state"


@dataclass
class SessionModel:
    spec: SessionAggregation[int, list[int]]
    #: (key, times, places) of what is open.
    sessions: list[tuple[bytes, list[int], list[int]]] = field(default_factory=list)

    def run(self, rows: Sequence[Row], marks: Sequence[int]) -> Found:
        found: Found = {"results": [], "late": []}
        gap, closes = self.spec.gap_ms, self.spec.gap_ms + self.spec.grace_ms
        for place, (row, mark) in enumerate(zip(rows, marks, strict=True)):
            ended = [each for each in self.sessions if max(each[1]) + closes < mark]
            self.sessions = [each for each in self.sessions if each not in ended]
            for key, times, places in sorted(ended, key=lambda each: (max(each[1]), each[0])):
                found["results"].append((key, min(times), max(times), tuple(places)))
            if row.key is None:
                continue
            near = [
                each
                for each in self.sessions
                if each[0] == row.key and min(each[1]) - gap <= row.time <= max(each[1]) + gap
            ]
            if not near and row.time + closes < mark:
                found["late"].append(place)
                continue
            near.sort(key=lambda each: min(each[1]))
            self.sessions = [each for each in self.sessions if each not in near]
            times = [*(time for each in near for time in each[1]), row.time]
            self.sessions.append((row.key, times, [*(at for each in near for at in each[2]), place]))
        return found


@PROPERTY
@given(
    rows=streams(),
    cuts=CUTS,
    delay=st.sampled_from([0, 2, 9, 30]),
    gap=st.sampled_from([1, 3, 8]),
    grace=st.sampled_from([0, 4]),
)
def test_sessions_do_not_depend_on_batches(
    rows: list[Row], cuts: list[int], delay: int, gap: int, grace: int
) -> None:
    spec = SessionAggregation(gap, LISTED, grace)

    def step(state: State, batch: Sequence[Row], first: int) -> Found:
        times = [each.time for each in batch]
        marks = Watermark(delay).advance(state["s"], times)
        keys = [each.key for each in batch]
        found = spec.add(state["s"], keys, times, marks, range(first, first + len(batch)))
        assert found.dropped == len(found.late)
        late = [first + each for each in found.late]
        return {"results": [tuple(each) for each in found.results], "late": late}

    model = SessionModel(spec)
    state = check(step, rows, cuts, model.run(rows, marks_of(rows, delay)))
    content = state.of("s")
    kinds = [key[:1] for key in content]
    open_keys = {each[0] for each in model.sessions}
    assert {key[1:] for key in content if key[:1] == b"s"} == open_keys
    assert kinds.count(b"x") == len(open_keys), "one place in the order for each key, and none for others"
    assert set(kinds) <= {b"f", b"s", b"w", b"x"}


@PROPERTY
@given(
    rows=streams(),
    cuts=CUTS,
    delay=st.sampled_from([0, 2, 9]),
    kept=st.sampled_from([1, 5, 20]),
    drops_late=st.booleans(),
)
def test_deduplication_does_not_depend_on_batches(
    rows: list[Row], cuts: list[int], delay: int, kept: int, drops_late: bool
) -> None:
    spec = Deduplication.within_watermark(kept) if drops_late else Deduplication.by_key(kept)

    def step(state: State, batch: Sequence[Row], first: int) -> Found:
        times = [each.time for each in batch]
        marks = Watermark(delay).advance(state["s"], times)
        found = spec.apply(state["s"], [each.key for each in batch], times, marks)
        lists = {"kept": found.kept, "duplicates": found.duplicates, "late": found.late}
        return {kind: [first + each for each in places] for kind, places in lists.items()}

    expected: Found = {"kept": [], "duplicates": [], "late": []}
    expiries: dict[bytes, int] = {}
    for place, (row, mark) in enumerate(zip(rows, marks_of(rows, delay), strict=True)):
        for expiry, key in sorted((expiry, key) for key, expiry in expiries.items())[:2]:
            if expiry <= mark:
                del expiries[key]
        if row.key is None:
            continue
        if drops_late and row.time < mark:
            expected["late"].append(place)
        elif expiries.get(row.key, mark) > mark:
            expected["duplicates"].append(place)
        else:
            expected["kept"].append(place)
            expiries[row.key] = max(row.time, mark) + kept

    content = check(step, rows, cuts, expected).of("s")
    if drops_late:
        # What Spark promises, too: no two rows of a key that are kept are less than the span apart.
        for of in {each.key for each in rows}:
            times = sorted(rows[each].time for each in expected["kept"] if rows[each].key == of)
            assert all(later - earlier >= kept for earlier, later in pairwise(times))
    assert {key[1:]: INT.load(value) for key, value in content.items() if key[:1] == b"d"} == expiries
    assert {key[9:]: INT.load(key[1:9]) for key in content if key[:1] == b"x"} == expiries
