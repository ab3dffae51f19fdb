"""A lag at its edges: never negative, never told too short, and known from few looks however many there were."""

from __future__ import annotations

from standby.replica.lag import LagClock

LOOKS = 1_000


def test_a_clock_set_back_between_two_looks_makes_the_later_one_no_younger_than_it_is() -> None:
    clock = LagClock()
    for end, at_ms in ((10, 5_000), (20, 5_100), (30, 5_050)):
        clock.end_seen(end, at_ms)
    assert clock.lag_ms(20, 5_150) == 100


def test_a_replica_that_was_never_at_the_end_is_behind_since_the_first_look() -> None:
    clock = LagClock()
    clock.end_seen(1_000, 100)
    clock.end_seen(2_000, 5_000)
    assert clock.lag_ms(999, 5_100) == 5_000


def test_who_is_behind_since_this_moment_or_since_a_later_one_has_no_lag() -> None:
    for position in (0, 10):
        clock = LagClock()
        clock.end_seen(10, 100)
        clock.end_seen(20, 100)
        assert [clock.lag_ms(position, now_ms) for now_ms in (100, 98)] == [0, 0]


def test_few_of_many_looks_are_kept_and_tell_every_lag_well_and_none_too_short() -> None:
    for applied in range(1, LOOKS, 7):
        clock = LagClock()
        for look in range(LOOKS):
            clock.end_seen(10 * look, 10 * look)
        assert len(clock._ends) <= LOOKS / 10
        told, real = clock.lag_ms(10 * applied, 10 * LOOKS), 10 * (LOOKS - applied)
        assert told is not None
        # Of what it had to keep in mind, a thirtieth at most.
        assert real <= told <= real + 10 * LOOKS / 30, applied


def test_who_has_caught_up_tells_a_short_lag_exactly_again() -> None:
    clock = LagClock()
    for look in range(LOOKS):
        clock.end_seen(look, look)
    assert clock.lag_ms(LOOKS, LOOKS) == 0
    for look in range(LOOKS, LOOKS + 10):
        clock.end_seen(look, look)
    assert clock.lag_ms(LOOKS + 4, LOOKS + 10) == 6
