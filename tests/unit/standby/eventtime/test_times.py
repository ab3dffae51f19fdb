"""The watermark, and times from Arrow columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standby.api import RowError
from standby.errors import BadConfiguration
from standby.eventtime import Watermark, emit_rows, event_times
from standby.replica.outbox import Emitted, Outbox
from tests.fakes.task_state import TaskState


def test_the_watermark_moves_with_each_row_and_never_falls() -> None:
    state = TaskState("s")
    with state.batch() as stores:
        assert Watermark(10).at(stores["s"]) is None
        assert Watermark(10).advance(stores["s"], [5, 20, 7, 21]) == [-5, 10, 10, 11]
    with state.batch() as stores:
        assert Watermark(10).at(stores["s"]) == 11
        assert Watermark(10).advance(stores["s"], [3]) == [11]
        assert Watermark(10).advance(stores["s"], []) == []
        assert not stores.changes, "nothing moved, nothing is written"
        # A new version of the job waits longer, or not at all.
        assert Watermark(50).advance(stores["s"], [60, 62]) == [11, 12]
        assert Watermark(0).advance(stores["s"], [11, 30]) == [12, 30]
        assert Watermark(0, "other").advance(stores["s"], [1]) == [1]
        assert Watermark(0).at(stores["s"]) == 30
    with pytest.raises(ValueError, match="delay_ms"):
        Watermark(-1)


def test_whole_numbers_are_milliseconds_and_there_may_be_none() -> None:
    assert event_times(pa.chunked_array([[1], [], [2, 3]], pa.int64())) == [1, 2, 3]
    assert event_times(pa.chunked_array([pa.array([], pa.timestamp("us"))])) == []


#: In units of each kind of timestamp: how many a second has.
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

#: With daylight saving of an hour and of half of one, with changes by a day, with offsets of seconds long ago.
ZONES = [
    None,
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Europe/Dublin",
    "Africa/Monrovia",
]

#: Hours that come twice: New York 2013 and 1969, Lord Howe 2024, Dublin 1968; and Apia's day that was left out.
TWICE = [1_383_454_800, -5_767_200, 1_712_415_600, -37_242_000, 1_325_239_200]


@settings(derandomize=True)
@given(
    unit=st.sampled_from(list(PER_SECOND)),
    zone=st.sampled_from(ZONES),
    near=st.lists(
        st.tuples(st.sampled_from(TWICE), st.integers(-14_400, 14_400), st.integers(0, 999_999_999)),
        max_size=5,
    ),
    anywhere=st.lists(st.integers(-(1 << 63) + 1, (1 << 63) - 1), max_size=3),
)
def test_an_instant_is_the_same_in_every_time_zone_and_unit(
    unit: str, zone: str | None, near: list[tuple[int, int, int]], anywhere: list[int]
) -> None:
    """Cut downwards to milliseconds, before 1970, too, and not towards it."""
    per_second = PER_SECOND[unit]
    most = ((1 << 63) - 1) // 1_000 if unit == "s" else (1 << 63) - 1
    counts = [(at + more) * per_second + nanos * per_second // 1_000_000_000 for at, more, nanos in near]
    counts += [max(-most, min(each, most)) for each in anywhere]
    column = pa.chunked_array([pa.array(counts, pa.int64()).cast(pa.timestamp(unit, zone))])
    assert event_times(column) == [each * 1_000 // per_second for each in counts]


def test_a_time_that_no_64_bits_hold_is_refused_by_its_row() -> None:
    beyond = pa.chunked_array([pa.array([0, 1 << 62], pa.int64()).cast(pa.timestamp("s", "Europe/Dublin"))])
    for column in (beyond, pa.chunked_array([pa.array([0, 1 << 63], pa.uint64())])):
        with pytest.raises(RowError, match=r"row 1 of the batch has an event time of .* ms, beyond 64 bits"):
            event_times(column)


def test_what_has_no_time_is_refused_by_its_row() -> None:
    with pytest.raises(RowError, match="row 2 of the batch has no event time") as refused:
        event_times(pa.chunked_array([[1, 2], [None]], pa.int64()))
    assert refused.value.row == 2, "of which the kernel makes topic and offset"
    with pytest.raises(ValueError, match="not string"):
        event_times(pa.chunked_array([["2024-01-01"]]))


def test_chosen_rows_are_sent_as_they_are() -> None:
    rows = pa.table({"key": pa.array([b"a", None, b"c"]), "value": pa.array([b"1", b"2", None])})
    out = Outbox(["main", "late"])
    assert emit_rows(rows, [2, 1], out, "late") == 2
    assert list(out.records) == [Emitted("late", b"c", None), Emitted("late", None, b"2")]
    assert emit_rows(rows, [], out, "late") == 0
    with pytest.raises(BadConfiguration):
        emit_rows(rows, [0], out, "elsewhere")
