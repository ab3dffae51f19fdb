"""Gaps are measured between the right two records, and against the right ones."""

from __future__ import annotations

from demo.gaps import Disturbance, gaps, longest_before_ms

LOSS = Disturbance(
    tasks=(0, 1), calm_from_ms=200, begun_ms=1_000, done_ms=1_010, restored_ms=3_000, settled_ms=5_000
)


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
    planned = Disturbance((0, 1), 200, 1_000, 900, 3_000, 5_000, fenced_ms={0: 1_040, 1: 1_060})
    found = gaps(planned, {0: [950, 1_030, 1_100, 1_200], 1: [1_010, 1_055, 1_080]})
    assert [(each.partition, each.last_ms, each.first_ms) for each in found] == [
        (0, 1_030, 1_100),
        (1, 1_055, 1_080),
    ]


def test_a_loss_that_takes_longer_than_its_failover_is_measured_at_the_fence() -> None:
    # The ports of a host are still being silenced while the successor works.
    late = Disturbance((0,), 200, 1_000, 3_000, 4_000, 5_000, fenced_ms={0: 2_100})
    (gap,) = gaps(late, {0: [900, 1_005, 2_400, 2_900, 3_100]})
    assert (gap.last_ms, gap.first_ms) == (1_005, 2_400)


def test_a_task_without_output_on_both_sides_has_no_gap() -> None:
    assert gaps(LOSS, {0: [900], 1: [1_500]}) == ()
    assert gaps(LOSS, {}) == ()


def test_a_gap_is_compared_with_the_same_task_in_the_calm_before_the_failure() -> None:
    # 100→900 began before the calm, 990→1_700 is the gap, and what comes later had another rate.
    one = [100, 900, 950, 990, 1_700, 9_000]
    assert longest_before_ms(LOSS, {0: one, 1: [300, 310, 650, 999], 2: [0, 900]}) == {0: 50, 1: 349}


def test_a_task_without_two_outputs_in_the_calm_has_nothing_to_be_compared_with() -> None:
    assert longest_before_ms(LOSS, {0: [199, 999, 1_000], 1: []}) == {}
