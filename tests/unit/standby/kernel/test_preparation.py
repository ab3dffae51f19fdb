"""When a hot query is begun, goes on and is begun again: by a clock and a feed that the test moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from standby.errors import Transient
from standby.kernel.preparation import (
    _FIRST_RESTART_SECONDS,
    _REFRESH_SECONDS,
    _RENEW_SECONDS,
    _RESTART_SECONDS,
    _SETTLE_SECONDS,
    Pace,
    Preparation,
)
from standby.model import Offsets, TaskId
from standby.ports import Feed
from standby.replica.claim import Committed

ONE, TWO = TaskId("job", "main", 0), TaskId("job", "main", 1)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class ScriptedFeed:
    """Tells what it was asked to prepare; ``has_ended`` makes the next time begin anew."""

    def __init__(self) -> None:
        self.is_warm = True
        self.is_prepared = False
        self.nears: list[bool] = []
        self.begun: list[dict[TaskId, int]] = []
        self.followed: list[dict[TaskId, int]] = []
        self.stops = 0
        self.has_ended = False
        self.fails_with: Transient | None = None

    def prepare(self, positions: Mapping[TaskId, Offsets], *, is_near: bool) -> bool:
        self.nears.append(is_near)
        if self.fails_with is not None:
            raise self.fails_with
        told = {task: offsets.total for task, offsets in positions.items()}
        if self.is_prepared and not self.has_ended and self.begun[-1].keys() == told.keys():
            self.followed.append(told)
            return False
        self.begun.append(told)
        self.is_prepared, self.has_ended = True, False
        return True

    def stop(self) -> None:
        self.stops += 1
        self.is_prepared = False


class Played:
    """A preparation with its clock, its feed, and how far the actives are."""

    def __init__(self) -> None:
        self.clock, self.scripted = Clock(), ScriptedFeed()
        self.feed = cast("Feed", self.scripted)
        self.at: dict[TaskId, int | None] = {ONE: 10, TWO: 20}
        self.asked = 0
        self.preparation = Preparation(self._committed, self.clock)

    def _committed(self, partitions: Any) -> dict[int, Sequence[Committed | None]]:
        self.asked += 1
        return {each: (Committed(self.at[TaskId("job", "main", each)] or 0),) for each in partitions}

    def _reached(self, task: TaskId) -> Callable[[], Offsets | None]:
        def reached() -> Offsets | None:
            at = self.at[task]
            return None if at is None else Offsets.of(at)

        return reached

    def keep(self, *tasks: TaskId) -> None:
        self.preparation.keep(frozenset(tasks), {each: self._reached(each) for each in self.at})

    def attend(self, *expected: TaskId) -> None:
        self.preparation.attend(self.feed, expected)

    def wait(self, *expected: TaskId) -> float:
        """Wait as long as the preparation has patience, and attend; return for how long that was."""
        seconds = self.preparation.patience(self.feed)
        assert seconds < math.inf
        self.clock.now += seconds
        self.attend(*expected)
        return seconds

    def made_hot(self) -> Played:
        self.keep(ONE, TWO)
        self.wait()
        self.wait()
        return self


def test_a_hot_query_begins_when_the_standbys_have_settled() -> None:
    played = Played()
    played.keep(ONE)
    played.clock.now += _SETTLE_SECONDS / 2
    played.keep(ONE, TWO)
    played.attend()
    assert played.scripted.begun == []
    assert played.wait() == _SETTLE_SECONDS
    assert played.scripted.begun == [{ONE: 10, TWO: 20}]
    assert played.asked == 0, "Kafka is not asked for what the standbys know"


def test_nothing_begins_in_a_feed_that_is_not_warm_or_before_an_active_ever_was() -> None:
    played = Played()
    played.scripted.is_warm = False
    played.keep(ONE, TWO)
    assert played.preparation.patience(played.feed) == math.inf
    played.scripted.is_warm = True
    played.at[TWO] = None
    assert played.preparation.is_pending(played.feed)
    played.wait()
    played.wait()
    assert played.scripted.begun == []
    assert not played.preparation.is_pending(played.feed), "nobody knows when there will be one"
    played.at[TWO] = 1
    played.wait()
    assert played.scripted.begun == [{ONE: 10, TWO: 1}]


def test_it_follows_at_a_slow_pace_and_hurries_once_its_tasks_are_on_their_way_to_active() -> None:
    played = Played().made_hot()
    played.at[ONE] = 15
    assert played.wait() == Pace.SLOWEST_SECONDS
    assert played.scripted.followed[-1] == {ONE: 15, TWO: 20}
    assert not any(played.scripted.nears)
    played.at[ONE] = 16
    played.keep()
    played.attend(ONE, TWO)
    assert played.scripted.followed[-1] == {ONE: 16, TWO: 20}, "at once"
    assert played.scripted.nears[-1]
    played.at[TWO] = 21
    assert played.wait(ONE, TWO) < _RENEW_SECONDS
    assert played.scripted.followed[-1] == {ONE: 16, TWO: 21}
    assert played.scripted.stops == 0
    assert len(played.scripted.begun) == 1


def test_a_query_that_ended_is_begun_again_later_and_later() -> None:
    played = Played().made_hot()
    waits: list[float] = []
    for _ in range(8):
        played.scripted.has_ended = True
        played.at[ONE] = len(waits)
        waits.append(played.wait())
    assert waits[1] == _FIRST_RESTART_SECONDS
    assert waits[1:] == sorted(waits[1:])
    assert waits[-1] == _RESTART_SECONDS
    assert played.wait() == _RESTART_SECONDS
    assert played.wait() <= Pace.SLOWEST_SECONDS, "it was of use"
    played.scripted.has_ended = True
    played.wait()
    played.scripted.has_ended = True
    assert played.wait() == _FIRST_RESTART_SECONDS


def test_what_cannot_be_begun_is_tried_again_later_and_later_and_hurts_nobody() -> None:
    played = Played()
    played.scripted.fails_with = Transient("no broker")
    played.keep(ONE, TWO)
    waits = [played.wait()]
    assert played.preparation.is_pending(played.feed)
    waits += [played.wait() for _ in range(7)]
    assert not played.preparation.is_pending(played.feed), "it is only warm, then"
    assert waits[1:3] == [_FIRST_RESTART_SECONDS, 2 * _FIRST_RESTART_SECONDS]
    assert waits[-1] == _RESTART_SECONDS
    assert not played.preparation.has(ONE, played.feed)
    played.scripted.fails_with = None
    played.wait()
    assert played.preparation.has(ONE, played.feed)


def test_other_standbys_are_another_query_and_none_are_no_query() -> None:
    played = Played().made_hot()
    played.keep(ONE)
    assert played.wait() == _SETTLE_SECONDS
    assert played.scripted.begun[-1] == {ONE: 10}
    played.keep()
    played.attend()
    assert played.scripted.stops == 1
    assert not played.preparation.is_wanted
    assert played.preparation.patience(played.feed) == math.inf


def test_a_planned_start_takes_the_hot_query_over_and_renews_it_often() -> None:
    played = Played().made_hot()
    played.preparation.want(frozenset((ONE, TWO)))
    played.clock.now += Pace.SLOWEST_SECONDS
    played.attend()
    assert played.asked == 1, "a planned one knows it exactly"
    assert played.scripted.nears[-1]
    assert played.wait() == pytest.approx(_RENEW_SECONDS)
    assert len(played.scripted.begun) == 1


def test_a_query_that_stands_still_for_long_is_begun_anew() -> None:
    played = Played().made_hot()
    began = played.clock.now
    while len(played.scripted.begun) == 1:
        played.wait()
        assert played.clock.now < began + 2 * _REFRESH_SECONDS
    assert played.clock.now > began + _REFRESH_SECONDS - _SETTLE_SECONDS - 2 * Pace.SLOWEST_SECONDS
    assert played.scripted.stops == 1


def test_the_pace_keeps_to_about_a_batch_for_each_look() -> None:
    pace = Pace()
    for _ in range(10):
        pace.note(records=int(20_000 * pace.seconds))
    assert pace.seconds == Pace.QUICKEST_SECONDS
    for _ in range(10):
        pace.note(records=int(2_000 * pace.seconds))
    assert 1 <= pace.seconds <= Pace.SLOWEST_SECONDS
    pace.note(records=0)
    pace.note(records=0)
    assert pace.seconds == Pace.SLOWEST_SECONDS
