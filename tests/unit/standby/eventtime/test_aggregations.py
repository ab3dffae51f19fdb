"""Windows, sessions and de-duplication by example.

Which rows make a result, or are late, is in tests/property/test_eventtime.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from standby.eventtime import (
    COUNT,
    MAX,
    MIN,
    SUM,
    Aggregate,
    Deduplicated,
    Deduplication,
    Results,
    SessionAggregation,
    TimeWindows,
    Watermark,
    WindowAggregation,
)
from standby.eventtime.bounded import CLOSING
from standby.state import INT, ValueRefused
from tests.fakes.task_state import TaskState

TEN = TimeWindows.tumbling(10)

Row = tuple[bytes | None, int]


def add(
    state: TaskState,
    spec: WindowAggregation[Any, int] | SessionAggregation[Any, int],
    *rows: Row,
    delay: int = 0,
) -> Results:
    """One batch."""
    with state.batch() as stores:
        times = [time for _, time in rows]
        marks = Watermark(delay).advance(stores["s"], times)
        return spec.add(stores["s"], [key for key, _ in rows], times, marks)


def apply(state: TaskState, spec: Deduplication, *rows: Row) -> Deduplicated:
    """One batch."""
    with state.batch() as stores:
        times = [time for _, time in rows]
        marks = Watermark(0).advance(stores["s"], times)
        return spec.apply(stores["s"], [key for key, _ in rows], times, marks)


# ---- windows ----


def windows_of(state: TaskState) -> int:
    return sum(key[:1] == b"d" for key in state.of("s"))


def test_a_key_is_read_and_written_once_per_window_and_batch() -> None:
    state, spec = TaskState("s"), WindowAggregation(TEN, COUNT)
    add(state, spec, *((b"k%d" % (each % 5), each % 10) for each in range(1_000)))
    # Five keys, the watermark, and how far windows were closed.
    assert state.written == 7


def test_what_was_closed_stays_closed_when_the_settings_change() -> None:
    """A job's new version may have more grace, less, or another watermark that begins anew."""
    state = TaskState("s")
    add(state, WindowAggregation(TEN, COUNT), (b"a", 1), (b"a", 12))
    longer = WindowAggregation(TEN, COUNT, grace_ms=50)
    assert add(state, longer, (b"a", 13)).results == []
    shorter = WindowAggregation(TEN, COUNT)
    assert add(state, shorter, (b"a", 20)).results == [(b"a", 10, 20, 2)]
    with state.batch() as stores:
        marks = Watermark(0, "anew").advance(stores["s"], [5, 25, 30])
        found = shorter.add(stores["s"], [b"a", b"a", b"a"], [5, 25, 30], marks)
    assert found.late == [0], "it was closed under the other watermark"
    assert found.results == [(b"a", 20, 30, 2)]
    assert windows_of(state) == 1


def test_what_was_removed_is_not_emitted_again_when_more_lateness_is_allowed() -> None:
    """Its total is gone: a new result would be one of the late rows alone."""
    state = TaskState("s")
    add(state, WindowAggregation(TEN, COUNT), (b"a", 1), (b"a", 2), (b"a", 12))
    later = WindowAggregation(TEN, COUNT, allowed_lateness_ms=100)
    found = add(state, later, (b"a", 3), (b"a", 13))
    assert (found.results, found.late) == ([], [0])
    # What closes from now on is kept.
    assert add(state, later, (b"a", 20), (b"a", 14)).results == [(b"a", 10, 20, 2), (b"a", 10, 20, 3)]


def test_a_closing_that_was_interrupted_is_completed_with_late_rows() -> None:
    """The result of a has been emitted by a call without rows; the next such call raised."""
    state = TaskState("s")
    spec = WindowAggregation(TEN, COUNT, allowed_lateness_ms=100)
    add(state, spec, (b"a", 1), (b"b", 1))
    with state.batch() as stores:
        stores["s"].put(CLOSING, INT.dump(12) + b"d" + INT.dump(0) + b"a")
    assert add(state, spec, (b"c", 12), (b"a", 2)).results == [(b"b", 0, 10, 1), (b"a", 0, 10, 2)]
    assert add(state, spec, (b"a", 3)).results == [(b"a", 0, 10, 3)]


def test_other_windows_do_not_mix() -> None:
    state = TaskState("s")
    add(state, WindowAggregation(TEN, COUNT), (b"a", 1))
    for other in (TimeWindows.tumbling(20), TimeWindows.hopping(10, 5), TimeWindows.tumbling(10, 5)):
        with pytest.raises(ValueError, match="another size, advance or offset"):
            add(state, WindowAggregation(other, COUNT), (b"a", 2))
    assert add(state, WindowAggregation(TimeWindows.tumbling(10, 20), COUNT), (b"a", 2)).late == []


def test_lists_and_spans_that_do_not_fit_are_refused() -> None:
    spec = WindowAggregation(TEN, COUNT)
    with TaskState("s").batch() as stores:
        with pytest.raises(ValueError, match="different lengths: 2, 1, 1"):
            spec.add(stores["s"], [b"a", b"b"], [1], [1])
        with pytest.raises(ValueError, match="different lengths: 1, 1, 1, 0"):
            spec.add(stores["s"], [b"a"], [1], [1], [])
        with pytest.raises(ValueError, match="marks decrease"):
            spec.add(stores["s"], [b"a", b"b"], [1, 1], [1, 0])
        assert spec.add(stores["s"], [], [], []) == Results()
    with pytest.raises(ValueError, match="below 0"):
        WindowAggregation(TEN, COUNT, grace_ms=-1)
    with pytest.raises(ValueError, match="advance"):
        TimeWindows.hopping(5, 10)


def test_the_lowest_and_the_highest_pass_over_what_is_missing() -> None:
    for aggregate, expected in ((MIN, -4), (MAX, 3)):
        total = aggregate.init()
        assert aggregate.serde.load(aggregate.serde.dump(total)) is None
        for value in (None, 3, -4, None):
            total = aggregate.add(total, value)
        assert total == expected
        assert aggregate.serde.load(aggregate.serde.dump(total)) == expected


@pytest.mark.parametrize(
    ("aggregate", "values"),
    {
        "no whole numbers": (SUM, [0.5, 0.5]),
        "nor these": (MIN, [0.5, 0.5]),
        "beyond 64 bits in between": (SUM, [2**63 - 1, 1, -1]),
        "beyond 64 bits": (MAX, [2**63]),
        "wrapping": (SUM, np.array([2**31 - 1, 1], np.int32)),
    }.values(),
)
def test_a_window_within_one_batch_has_the_result_of_one_over_several(
    aggregate: Aggregate[Any, Any], values: Any
) -> None:
    """Its total is never stored, where it would be refused."""
    spec = WindowAggregation(TEN, aggregate)

    def results(size: int) -> Any:
        state, found = TaskState("s"), []
        rows = [*((b"a", 1, value) for value in values), (None, 20, None)]
        try:
            for at in range(0, len(rows), size):
                keys, times, _ = zip(*rows[at : at + size], strict=True)
                with state.batch() as stores:
                    found += spec.add(
                        stores["s"], keys, times, times, [*values, None][at : at + size]
                    ).results
        except ValueRefused as error:
            return type(error)
        return found

    assert results(100) == results(1)


# ---- sessions ----


def test_a_row_in_an_open_session_costs_one_write() -> None:
    state, spec = TaskState("s"), SessionAggregation(10, COUNT)
    add(state, spec, (b"a", 0))
    before = state.written
    for time in range(1, 11):
        add(state, spec, (b"a", time))
    # The session and the watermark; its place in the order is left where it was.
    assert state.written - before == 20
    assert b"x" + INT.dump(0) + b"a" in state.of("s")
    assert add(state, spec, (None, 20)).results == []
    assert b"x" + INT.dump(10) + b"a" in state.of("s"), "it was looked at, and put where it belongs"
    assert add(state, spec, (None, 21)).results == [(b"a", 0, 10, 11)]


def test_a_place_in_the_order_that_was_left_counts_for_nothing() -> None:
    """The row at 5 has its key looked at earlier; where it was to be looked at before, nothing happens."""
    rows = [(b"a", 20), (b"a", 5), (b"a", 28), (b"a", 36), (None, 57), (None, 72)]
    spec, whole, pieces = SessionAggregation(10, COUNT), TaskState("s"), TaskState("s")
    results = add(whole, spec, *rows, delay=40).results
    assert results == [(b"a", 5, 5, 1)]
    assert [each for row in rows for each in add(pieces, spec, row, delay=40).results] == results
    assert whole.content == pieces.content


def test_nothing_is_forgotten_when_a_new_version_has_more_grace() -> None:
    state = TaskState("s")
    add(state, SessionAggregation(10, COUNT), (b"a", 0), (b"a", 50))
    longer = SessionAggregation(10, COUNT, grace_ms=100)
    # Late a moment ago, and below where the order was read up to.
    assert add(state, longer, (b"b", -20), (None, 51)).late == []
    assert add(state, longer, (None, 91)).results == [(b"b", -20, -20, 1)]
    assert add(state, longer, (None, 161)).results == [(b"a", 50, 50, 1)]


def test_sessions_need_to_merge() -> None:
    with pytest.raises(ValueError, match="merge"):
        SessionAggregation(10, Aggregate(lambda: 0, lambda total, _: total, INT))
    with pytest.raises(ValueError, match="gap"):
        SessionAggregation(0, COUNT)


# ---- de-duplication ----


def test_of_columns_beside_the_keys_only_what_is_kept_stays() -> None:
    state, spec = TaskState("s"), Deduplication.within_watermark(10)
    found = apply(state, spec, (b"a", 0), (b"b", 0), (b"a", 9), (b"", 9))
    assert (found.kept, found.duplicates, found.late) == ([0, 1, 3], [2], [])
    assert found.only([b"w", None, b"x", b"y"]) == [b"w", None, None, b"y"]


def test_without_a_time_to_live_keys_stay() -> None:
    state, spec = TaskState("s"), Deduplication.by_key()
    apply(state, spec, (b"a", 0))
    assert apply(state, spec, (b"a", 10**12)).duplicates == [0]
    assert state.of("s").keys() == {b"da", b"w"}


def test_a_leap_in_time_is_not_paid_for_by_one_batch() -> None:
    state, spec = TaskState("s"), Deduplication.within_watermark(10)
    apply(state, spec, *((b"%03d" % each, 0) for each in range(500)))
    before = state.written
    apply(state, spec, (b"a", 10_000))
    # Two old keys with their places, a new one with its own, the watermark, and how far the order is empty.
    assert state.written - before == 8
    assert apply(state, spec, (b"000", 10_000), (b"499", 10_000)).kept == [0, 1], (
        "expired, though still there"
    )
    apply(state, spec, *([(None, 10_001)] * 250))
    content = state.of("s")
    assert sorted(key for key in content if key[:1] == b"d") == [b"d000", b"d499", b"da"]
    assert sum(key[:1] == b"x" for key in content) == 3


def test_the_order_is_read_from_where_it_was_emptied_to() -> None:
    state, spec = TaskState("s"), Deduplication.within_watermark(10)
    for time in range(0, 100, 5):
        apply(state, spec, (b"%d" % time, time))
    assert INT.load(state.of("s")[b"f"]) == 95, "the last one removed was that of 85"
    # Another watermark, which begins anew: what expires before that place must be found, too.
    with state.batch() as stores:
        marks = Watermark(0, "anew").advance(stores["s"], [1, 12])
        assert spec.apply(stores["s"], [b"early", None], [1, 12], marks).kept == [0]
    assert b"dearly" not in state.of("s")


def test_keys_must_be_kept_for_some_time() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Deduplication.by_key(0)
    with TaskState("s").batch() as stores:
        with pytest.raises(ValueError, match="lengths"):
            Deduplication.by_key().apply(stores["s"], [b"a"], [], [])
        assert Deduplication.by_key().apply(stores["s"], [], [], []) == Deduplicated()
