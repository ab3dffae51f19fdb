"""Waiting: looked at once and then again, reported, ended by what is seen, by time or by somebody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.waiting import PollResult, until, until_leader_says
from standby.errors import StandfastError, Unavailable
from tests.fakes.clock import WaitClock

NOT_YET = PollResult(False, "not yet")


def looks(*seen: PollResult[str]) -> Callable[[], PollResult[str]]:
    """Return what sees one after the other, and the last one ever after."""
    left = iter(seen)
    return lambda: next(left, seen[-1])


def test_what_is_so_already_is_seen_without_waiting_even_when_there_is_no_time() -> None:
    clock = WaitClock()
    for seconds in (60.0, 0.0):
        assert until(Deadline(seconds, clock), looks(PollResult(True, "there"))).what == "there"
    assert clock.waits == 0


def test_it_is_looked_again_and_reported_until_it_is_so() -> None:
    clock, said = WaitClock(), list[str]()
    look = looks(PollResult(False, "1", "one"), NOT_YET, PollResult(True, "3", "three"))
    assert until(Deadline(60.0, clock), look, said.append) == PollResult(True, "3", "three")
    assert said == ["one", "three"], "where there is nothing to be said, nothing is"
    assert clock.waits == 2


def test_when_the_time_is_over_the_last_look_counts() -> None:
    clock = WaitClock()
    deadline, seen = Deadline(1.0, clock), list[float]()

    def look() -> PollResult[str]:
        seen.append(deadline.left_seconds)
        return NOT_YET

    assert until(deadline, look) is NOT_YET
    assert seen[-2] > 0 == seen[-1], "nothing that came in time is missed"


def test_a_failure_ends_it_at_once_and_before_it_is_reported() -> None:
    clock, said = WaitClock(), list[str]()
    failed = PollResult(False, "", "on the way", "never: why")
    with pytest.raises(StandfastError, match="never: why"):
        until(Deadline(60.0, clock), looks(NOT_YET, failed), said.append)
    assert (clock.waits, said) == (1, [])


def test_a_step_takes_no_longer_than_the_whole_unless_it_has_to() -> None:
    clock = WaitClock()
    whole = Deadline(10.0, clock)
    assert (whole.within(4.0).left_seconds, whole.within(40.0).left_seconds) == (4.0, 10.0)
    clock.advance(10.0)
    assert whole.is_over
    assert whole.within(4.0).is_over
    assert whole.beyond(4.0).left_seconds == 4.0
    assert Deadline(float("inf"), clock).within(4.0).left_seconds == 4.0


def leader(*answers: dict[str, Any] | None) -> Callable[[], dict[str, Any]]:
    """Return what answers one after the other, and the last one ever after; None: no leader."""
    left: Iterator[dict[str, Any] | None] = iter(answers)

    def status() -> dict[str, Any]:
        found = next(left, answers[-1])
        if found is None:
            raise Unavailable("no leader")
        return found

    return status


def judge(status: dict[str, Any]) -> PollResult[int]:
    return PollResult(status["n"] > 2, status["n"], f"n is {status['n']}")


def test_a_leader_is_waited_for_and_then_believed() -> None:
    said: list[str] = []
    ask = leader(None, {"n": 1}, None, {"n": 3})
    assert until_leader_says(Deadline(60.0, WaitClock()), ask, judge, said.append) == PollResult(
        True, 3, "n is 3"
    )
    waiting = "waiting for the application master"
    assert said == [waiting, "n is 1", waiting, "n is 3"]


def test_what_the_last_leader_said_stands_and_nothing_where_there_was_none() -> None:
    for answers, found in (((None, {"n": 1}, None), PollResult(False, 1, "n is 1")), ((None,), None)):
        assert (
            until_leader_says(Deadline(60.0, WaitClock()), leader(*answers), judge, lambda _: None) == found
        )


def test_what_is_looked_at_meanwhile_is_no_leader_that_is_away() -> None:
    def meanwhile() -> None:
        raise Unavailable("ZooKeeper is away")

    with pytest.raises(Unavailable, match="ZooKeeper"):
        until_leader_says(
            Deadline(60.0, WaitClock()), leader({"n": 3}), judge, lambda _: None, meanwhile=meanwhile
        )
