"""Gaps are measured between the right two records, and against the right ones."""

from __future__ import annotations

from demo.gaps import Disturbance, gaps, longest_undisturbed_ms

LOSS = Disturbance(tasks=(0, 1), begun_ms=1_000, done_ms=1_010, restored_ms=3_000, settled_ms=5_000)


def test_the_gap_lies_between_the_last_output_before_and_the_first_after() -> None:
    found = gaps(LOSS, {0: [800, 950, 1_700, 1_800], 1: [900, 990, 1_500], 2: [1, 10_000]})
    assert [(each.partition, each.last_ms, each.first_ms, each.length_ms) for each in found] == [
        (0, 950, 1_700, 750),
        (1, 990, 1_500, 510),
    ]


def test_what_was_appended_while_the_signals_went_out_is_the_old_active_s() -> None:
    (gap,) = gaps(LOSS, {0: [900, 1_005, 1_010, 1_600]})
    assert (gap.last_ms, gap.first_ms) == (1_010, 1_600)


def test_the_former_active_of_a_hand_over_works_until_it_is_fenced() -> None:
    planned = Disturbance((0, 1), 1_000, 900, 3_000, 5_000, fenced_ms={0: 1_040, 1: 1_060})
    found = gaps(planned, {0: [950, 1_030, 1_100, 1_200], 1: [1_010, 1_055, 1_080]})
    assert [(each.partition, each.last_ms, each.first_ms) for each in found] == [
        (0, 1_030, 1_100),
        (1, 1_055, 1_080),
    ]


def test_a_task_without_output_on_both_sides_has_no_gap() -> None:
    assert gaps(LOSS, {0: [900], 1: [1_500]}) == ()
    assert gaps(LOSS, {}) == ()


def test_the_longest_interval_without_failure_touches_no_disturbance() -> None:
    times = [0, 100, 900, 1_800, 4_900, 5_300, 5_400, 5_700]
    # 0→100 and what follows 5_300; 900→1_800 is the gap, 4_900→5_300 began before all had settled.
    assert longest_undisturbed_ms(times, [LOSS], 0, 10_000) == 800
    assert longest_undisturbed_ms(times, [LOSS], 1_000, 10_000) == 300
    assert longest_undisturbed_ms(times, [LOSS], 5_300, 5_400) == 100
    assert longest_undisturbed_ms(times, [], 0, 10_000) == 3_100
    assert longest_undisturbed_ms([], [LOSS], 0, 10_000) == 0
