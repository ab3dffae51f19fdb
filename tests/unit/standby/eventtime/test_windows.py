"""Windows by example; what closes, is late or is emitted again by which row is in tests/property/test_eventtime.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from standby.eventtime import (
    COUNT,
    MAX,
    MIN,
    Results,
    TimeWindows,
    Watermark,
    WindowAggregation,
)
from tests.fakes.task_state import TaskState

TEN = TimeWindows.tumbling(10)


def add(
    state: TaskState,
    spec: WindowAggregation[int, int],
    *rows: tuple[bytes | None, int],
    delay: int = 0,
    values: Sequence[int] | None = None,
) -> Results:
    """One batch."""
    with state.batch() as stores:
        times = [time for _, time in rows]
        marks = Watermark(delay).advance(stores["s"], times)
        return spec.add(stores["s"], [key for key, _ in rows], times, marks, values)


def windows_of(state: TaskState) -> int:
    return sum(key[:1] == b"d" for key in state.of("s"))


def test_a_row_is_in_each_hopping_window_that_holds_its_time() -> None:
    hopping = TimeWindows.hopping(10, 5)
    assert list(hopping.starts(0)) == [-5, 0]
    assert list(hopping.starts(4)) == [-5, 0]
    assert list(hopping.starts(5)) == [0, 5]
    assert list(TimeWindows.hopping(10, 4).starts(9)) == [0, 4, 8]
    assert list(TimeWindows.tumbling(10, 3).starts(2)) == [-7]
    assert list(TimeWindows.tumbling(10, 3).starts(3)) == [3]
    with pytest.raises(ValueError, match="advance"):
        TimeWindows.hopping(5, 10)


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


def test_windows_of_another_size_do_not_mix() -> None:
    state = TaskState("s")
    add(state, WindowAggregation(TEN, COUNT), (b"a", 1))
    with pytest.raises(ValueError, match="another size"):
        add(state, WindowAggregation(TimeWindows.tumbling(20), COUNT), (b"a", 2))


def test_lists_that_do_not_fit_are_refused() -> None:
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


def test_the_lowest_and_the_highest_pass_over_what_is_missing() -> None:
    for aggregate, expected in ((MIN, -4), (MAX, 3)):
        total = aggregate.init()
        assert aggregate.serde.load(aggregate.serde.dump(total)) is None
        for value in (None, 3, -4, None):
            total = aggregate.add(total, value)
        assert total == expected
        assert aggregate.serde.load(aggregate.serde.dump(total)) == expected
