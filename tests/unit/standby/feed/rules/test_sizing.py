"""Micro-batches are bounded in time: output goes on in smaller batches where a container does not keep up."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pytest

from standby.feed.rules.sizing import LEAST_RECORDS, TARGET_SECONDS, BatchSize

MOST = 40_000


@dataclass
class Machine:
    """What a batch takes: something for itself, and something for each record; records come all the time."""

    batch_seconds: float
    seconds_per_record: float
    arriving_per_second: float
    waiting: float = 0.0

    def run(self, size: BatchSize, batches: int) -> list[tuple[int, float]]:
        """Run so many batches over what waits; return records and seconds of each."""
        done = []
        for _ in range(batches):
            records = min(size.records, int(self.waiting))
            seconds = self.batch_seconds + records * self.seconds_per_record
            self.waiting += seconds * self.arriving_per_second - records
            size.note(records, seconds)
            done.append((records, seconds))
        return done


def backlogged(batch_seconds: float, seconds_per_record: float) -> Machine:
    return Machine(batch_seconds, seconds_per_record, 0, waiting=10**9)


def test_a_container_that_does_not_keep_up_goes_on_in_batches_of_about_a_second() -> None:
    # 3,300 records a second at most, of 4,000 that come.
    machine = Machine(0.1, 0.0003, 4_000)
    seconds = [each for _, each in machine.run(BatchSize(MOST), 200)]
    assert machine.waiting > MOST
    assert max(seconds) < 1.25 * TARGET_SECONDS
    assert sum(each > TARGET_SECONDS for each in seconds) <= len(seconds) / 10


def test_a_quick_container_soon_takes_all_that_it_may() -> None:
    found = backlogged(0.05, 0.000_01).run(BatchSize(MOST), 6)
    assert [records for records, _ in found] == [2_500, 5_000, 10_000, 20_000, MOST, MOST]


def test_a_bound_that_fits_does_not_swing() -> None:
    size, machine = BatchSize(MOST), backlogged(0.2, 0.000_05)
    machine.run(size, 20)
    for records, seconds in machine.run(size, 20):
        assert records == size.records
        assert TARGET_SECONDS / 2 < seconds <= TARGET_SECONDS


def test_a_container_that_has_become_slow_comes_down_at_once() -> None:
    size = BatchSize(MOST)
    backlogged(0.05, 0.000_01).run(size, 5)
    found = backlogged(0.05, 0.000_2).run(size, 6)
    assert [records for records, _ in found[:2]] == [MOST, 4_968]
    assert all(seconds == pytest.approx(TARGET_SECONDS, rel=0.01) for _, seconds in found[2:])


def test_where_a_batch_costs_much_by_itself_larger_ones_keep_up_with_what_comes() -> None:
    # 435 records a second in batches of 2,500, and 500 come.
    machine, size = Machine(5.0, 0.0003, 500), BatchSize(MOST)
    machine.run(size, 500)
    assert machine.waiting < 3 * LEAST_RECORDS
    # Not as large as can be: twice the records have to be worth the longer batch.
    assert size.records == 2 * LEAST_RECORDS


@pytest.mark.parametrize("batch_seconds", [0.45, 0.55, 0.75, 0.95])
def test_where_a_batch_in_time_costs_much_by_itself_larger_ones_are_tried(batch_seconds: float) -> None:
    """They stayed at the smallest size, with a tenth of the records a second."""
    found = backlogged(batch_seconds, 0.000_01).run(BatchSize(MOST), 20)
    records, seconds = found[-1]
    assert records / seconds > 10_000
    assert seconds < 2 * TARGET_SECONDS


def test_a_probe_that_was_slow_only_then_is_made_again() -> None:
    """As the first batches of a JVM are."""
    size = BatchSize(MOST)
    backlogged(0.1, 0.000_3).run(size, 2)
    assert size.records == LEAST_RECORDS
    records, _ = backlogged(0.6, 0.000_005).run(size, 25)[-1]
    assert records == MOST


def test_a_slow_size_tries_larger_ones_where_smaller_ones_are_no_better() -> None:
    """One that has become slow at a size in between was compared with smaller ones only."""
    size = BatchSize(MOST)
    backlogged(0.05, 0.000_01).run(size, 1)
    assert size.records == 2 * LEAST_RECORDS
    found = backlogged(2.0, 0.000_01).run(size, 40)
    assert statistics.median(records for records, _ in found[20:]) == MOST


def test_a_size_that_is_not_worth_it_is_left_again_and_not_tried_at_every_batch() -> None:
    found = backlogged(0.0, 0.001).run(BatchSize(MOST), 40)
    larger = [number for number, (records, _) in enumerate(found) if records > LEAST_RECORDS]
    assert len(larger) == 3
    assert max(records for records, _ in found) == 2 * LEAST_RECORDS


def test_a_smaller_size_that_costs_too_much_is_left_again() -> None:
    size = BatchSize(MOST)
    backlogged(0.05, 0.000_01).run(size, 5)
    found = backlogged(3.0, 0.000_01).run(size, 10)
    assert [records for records, _ in found] == [MOST, 11_764, *[MOST] * 8]


def test_a_hiccup_costs_a_few_batches_and_no_more() -> None:
    size, machine = BatchSize(MOST), backlogged(0.05, 0.000_01)
    machine.run(size, 5)
    size.note(MOST, 20.0)
    assert size.records == LEAST_RECORDS
    machine.run(size, 4)
    assert size.records == MOST


def test_batches_that_are_not_full_say_nothing_of_other_sizes() -> None:
    for seconds in (0.001, 30.0):
        size = BatchSize(MOST)
        size.note(2_000, seconds)
        assert size.records == LEAST_RECORDS, seconds


def test_batches_whose_bytes_are_the_limit_come_down_when_they_are_slow_and_only_then() -> None:
    for records, seconds, expected in ((16_000, 4.0, 4_000), (16_000, 0.1, MOST), (2_000, 4.0, MOST)):
        size = BatchSize(MOST)
        backlogged(0.05, 0.000_01).run(size, 5)
        size.note(records, seconds, is_cut=True)
        assert size.records == expected, (records, seconds)


def test_a_small_bound_of_the_job_holds_as_it_is() -> None:
    for most in (1, 10, LEAST_RECORDS):
        size = BatchSize(most)
        for seconds in [30.0] * 40 + [0.001] * 5:
            size.note(most, seconds)
            assert size.records == most


def test_what_is_far_too_large_is_made_much_smaller_down_to_one_record_and_grows_again() -> None:
    size = BatchSize(MOST)
    found = []
    for _ in range(6):
        size.shrink()
        found.append(size.records)
    assert found == [312, 39, 4, 1, 1, 1]
    # Where a batch takes more than half of the target by itself, the size stayed at one.
    for batch_seconds in (0.01, 0.9 * TARGET_SECONDS):
        size.shrink()
        grown = backlogged(batch_seconds, 0.000_01).run(size, 12)
        assert [records for records, _ in grown] == [2**each for each in range(12)], batch_seconds
        for _ in range(4):
            size.shrink()


def test_a_batch_that_was_smaller_than_it_might_have_been_is_the_one_that_was_far_too_large() -> None:
    size = BatchSize(MOST)
    backlogged(0.05, 0.000_01).run(size, 5)
    size.shrink(800)
    assert size.records == 100
