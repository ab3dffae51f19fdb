"""The edges of a bound on bytes: the lowest rate is one, and after a rest nobody waits, nor less than nothing."""

from __future__ import annotations

from standby.replica.throttle import Throttle


def test_one_byte_a_second_is_a_bound() -> None:
    assert Throttle().take(3, 1, now=0.0) == 3.0


def test_who_takes_little_after_a_rest_does_not_wait() -> None:
    assert Throttle().take(1, 1_000, now=100.0) == 0.0
