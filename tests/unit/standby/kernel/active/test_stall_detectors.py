"""Whether a replica on its way to active gets on, and for how long an active has been behind."""

from __future__ import annotations

from standby.kernel.active.stall_detectors import InputLag, PromotionStallDetector
from standby.kernel.replay.ends import EndOffset


def test_a_way_is_stuck_when_it_has_not_got_beyond_one_point_for_too_long() -> None:
    way = PromotionStallDetector()
    assert not way.is_stuck("here", 100.0, 5.0)
    assert not way.is_stuck("here", 105.0, 5.0)
    assert way.is_stuck("here", 105.1, 5.0)
    assert not way.is_stuck("further", 106.0, 5.0)
    assert way.is_stuck("further", 111.1, 5.0)


def test_a_rest_begins_it_anew() -> None:
    way = PromotionStallDetector()
    assert not way.is_stuck("here", 100.0, 5.0)
    way.rest()
    assert not way.is_stuck("here", 106.0, 5.0)
    assert way.is_stuck("here", 111.1, 5.0)


def lags(*looks: tuple[int | None, EndOffset | None, int]) -> list[int | None]:
    """Return what a lag is after each of some looks."""
    lag = InputLag()
    found = []
    for look in looks:
        lag.look(*look)
        found.append(lag.ms)
    return found


def test_lag_counts_from_when_the_active_last_had_everything() -> None:
    assert lags((10, EndOffset(10, 1_000), 1_100), (10, EndOffset(20, 3_000), 5_000)) == [0, 4_000]


def test_lag_goes_on_while_the_task_is_claimed_anew_and_while_the_broker_answers_too_late() -> None:
    """A machine that is too busy brings about both."""
    looks = [
        (10, EndOffset(10, 1_000), 1_000),
        (10, EndOffset(20, 2_000), 2_000),
        (None, None, 61_000),
        (15, None, 62_000),
        (20, None, 63_000),
        (20, EndOffset(20, 64_000), 64_000),
    ]
    # At the last answer's end it may be behind or not: what came meanwhile is not known.
    assert lags(*looks) == [0, 1_000, 60_000, 61_000, None, 0]
