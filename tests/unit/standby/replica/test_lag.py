"""How far behind a replica is, in time: never reported too short, and known from few looks however many there were."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from standby.replica.lag import LagClock, mean_bytes
from standby.shared.model import Phase, ReplicaId, ReplicaStatus, Role, TaskId

LOOKS = 1_000

#: So many are all kept.
FEW = 64


def test_behind_counts_from_the_last_time_at_the_end() -> None:
    clock = LagClock()
    clock.end_seen(10, 100)
    assert clock.lag_ms(10, 110) == 0
    clock.end_seen(20, 200)
    clock.end_seen(30, 300)
    assert clock.lag_ms(10, 350) == 250
    # It has what there was at 200, whatever came since.
    assert clock.lag_ms(25, 350) == 150
    assert clock.lag_ms(30, 350) == 0


def test_a_clock_that_was_set_back_does_not_hide_for_how_long_it_is_behind() -> None:
    clock = LagClock()
    clock.end_seen(10, 5_000)
    clock.end_seen(20, 5_100)
    assert clock.applied(10) == 5_000
    clock.end_seen(30, 1_000)
    assert clock.lag_ms(10, 1_700) == 700
    # Nor is what was noted before it taken for later than it was.
    assert clock.lag_ms(20, 1_700) == 700
    assert clock.lag_ms(30, 1_700) == 0
    clock.end_seen(40, 1_800)
    assert clock.lag_ms(30, 2_000) == 1_000
    # Set back between two looks: the later one is no younger than it is.
    clock = LagClock()
    for end, at_ms in ((10, 5_000), (20, 5_100), (30, 5_050)):
        clock.end_seen(end, at_ms)
    assert clock.lag_ms(20, 5_150) == 100


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


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=300))
def test_lag_never_says_less_than_the_truth(steps: list[tuple[int, int]]) -> None:
    """And of few looks exactly the truth, against a model that remembers every look.

    Who was never at the end is behind since the first one.
    """
    clock, looks = LagClock(), list[tuple[int, int]]()
    assert clock.lag_ms(0, 0) is None, "nothing is known before the first look"
    end = position = 0
    for now, (growth, progress) in enumerate(steps):
        end += growth
        clock.end_seen(end, now)
        looks.append((end, now))
        position = min(end, position + progress)
        truth = max((at for seen, at in looks if seen <= position), default=None)
        applied = clock.applied(position)
        if truth is None:
            assert applied is None
        else:
            assert applied is not None
            assert applied <= truth
        for pause in (0, 900_000):
            lag = clock.lag_ms(position, now + pause)
            exact = 0 if position >= end else now + pause - (truth or 0)
            assert lag is not None
            assert lag == exact if position >= end or len(looks) <= FEW else lag >= exact


def test_record_s_size_is_that_of_key_and_value_and_a_tombstone_has_only_a_key() -> None:
    assert mean_bytes([(b"key", b"value"), (b"gone", None)], None) == 6
    assert mean_bytes([], 6.0) == 6.0, "nothing read says nothing new"
    assert mean_bytes([], None) is None


def test_lag_in_bytes_is_known_when_records_and_their_size_are() -> None:
    status = ReplicaStatus(ReplicaId(TaskId("j", "main", 0), 1), Role.STANDBY, Phase.TAILING, 1)
    for applied, end, record_bytes, expected in (
        (3, 13, 20.0, 200),
        (13, 13, None, 0),
        (3, 13, None, None),
        (3, None, 20.0, None),
    ):
        told = replace(status, applied=applied, end=end, record_bytes=record_bytes)
        assert told.lag_bytes == expected, told
