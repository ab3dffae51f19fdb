"""De-duplication by example; which rows are kept or late is in tests/property/test_eventtime.py."""

from __future__ import annotations

import pytest

from standby.eventtime import Deduplicated, Deduplication, Watermark
from standby.state import INT
from tests.fakes.task_state import TaskState


def apply(
    state: TaskState, spec: Deduplication, *rows: tuple[bytes | None, int], delay: int = 0
) -> Deduplicated:
    """One batch."""
    with state.batch() as stores:
        times = [time for _, time in rows]
        marks = Watermark(delay).advance(stores["s"], times)
        return spec.apply(stores["s"], [key for key, _ in rows], times, marks)


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
