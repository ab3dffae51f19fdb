"""What the benchmarks read from two notes of writes, and between which looks a throughput counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lags import Sample, Written, delays, steady


def notes(*pairs: tuple[float, int]) -> list[Written]:
    return [Written(*pair) for pair in pairs]


def test_a_commit_is_had_with_the_first_write_at_or_past_it() -> None:
    active = notes((1.0, 10), (2.0, 20), (3.0, 30))
    standby = notes((1.5, 12), (3.5, 31))
    assert delays(active, standby, 0, 10) == pytest.approx([0.5, 1.5, 0.5])


def test_only_commits_of_the_window_count() -> None:
    active = notes((1.0, 10), (2.0, 20), (3.0, 30))
    assert delays(active, active, 2.0, 3.0) == [0.0]


def test_a_position_that_is_written_again_is_no_commit() -> None:
    assert delays(notes((1.0, 10), (5.0, 10)), notes((1.25, 10)), 0, 10) == [0.25]


def test_what_the_standby_never_had_is_left_out() -> None:
    assert delays(notes((1.0, 10), (2.0, 20)), notes((1.5, 10)), 0, 10) == [0.5]
    assert delays(notes((1.0, 10)), [], 0, 10) == []


@given(st.lists(st.tuples(st.floats(0.001, 1), st.integers(1, 5)), max_size=30), st.floats(0, 2))
def test_a_standby_that_writes_the_same_later_is_that_much_behind(
    steps: list[tuple[float, int]], late: float
) -> None:
    active: list[Written] = []
    at, offset = 0.0, 0
    for seconds, count in steps:
        at, offset = at + seconds, offset + count
        active.append(Written(at, offset))
    standby = [Written(each.at + late, each.offset) for each in active]
    assert delays(active, standby, 0, at + 1) == pytest.approx([late] * len(active))


def looks(*ends: int) -> list[Sample]:
    return [Sample(float(second), (end,), second / 2) for second, end in enumerate(ends)]


def test_throughput_counts_between_two_looks_with_news() -> None:
    samples = looks(0, 0, 5, 5, 10, 10, 15, 15, 15, 20)
    found = steady(samples, warm_seconds=1, seconds=4)
    assert found == (samples[4], samples[6])


def test_a_backlog_that_is_used_up_ends_the_window() -> None:
    samples = looks(0, 1, 2, 3, 4, 4, 4, 4)
    found = steady(samples, warm_seconds=0, seconds=100)
    assert found == (samples[1], samples[4])


def test_batches_that_take_longer_than_the_window_are_measured_whole() -> None:
    samples = looks(0, 1, 1, 1, 1, 2, 2, 2, 2, 3)
    assert steady(samples, warm_seconds=1, seconds=2) == (samples[5], samples[9])


@pytest.mark.parametrize("ends", [(), (0,), (0, 0, 0), (0, 1, 1, 1), (0, 1, 2)])
def test_too_little_to_judge(ends: tuple[int, ...]) -> None:
    assert steady(looks(*ends), warm_seconds=1, seconds=10) is None
