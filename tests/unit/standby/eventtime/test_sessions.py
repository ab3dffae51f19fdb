"""Sessions by example; which rows make one, or are late, is in tests/property/test_eventtime.py."""

from __future__ import annotations

from typing import Any

import pytest

from standby.eventtime import COUNT, Aggregate, Results, SessionAggregation, Watermark
from standby.state import INT
from tests.fakes.task_state import TaskState


def add(
    state: TaskState, spec: SessionAggregation[Any, int], *rows: tuple[bytes | None, int], delay: int = 0
) -> Results:
    """One batch."""
    with state.batch() as stores:
        times = [time for _, time in rows]
        marks = Watermark(delay).advance(stores["s"], times)
        return spec.add(stores["s"], [key for key, _ in rows], times, marks)


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
