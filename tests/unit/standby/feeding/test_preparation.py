"""When a hot query is begun, goes on and is begun again: by a clock and a feed that the test moves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from standby.feeding import core, preparation
from standby.feeding.actions import AskPositions, Prepare, StopPrepared, Warm
from standby.feeding.events import FeedPrepared, Turned, Unanswered
from standby.feeding.preparation import (
    _FIRST_RESTART_SECONDS,
    _REFRESH_SECONDS,
    _RENEW_SECONDS,
    _RESTART_SECONDS,
    _SETTLE_SECONDS,
    QUICKEST_SECONDS,
    expecting,
    is_pending,
    is_wanted,
    keeping_hot,
    next_pace_seconds,
)
from standby.feeding.state import SLOWEST_SECONDS
from standby.shared.model import TaskId
from tests.fakes.feeding import FeedingWorld

ONE, TWO = TaskId("job", "main", 0), TaskId("job", "main", 1)


class ScriptedFeed:
    """Tells what it was asked to prepare; ``has_ended`` makes the next time begin anew."""

    def __init__(self) -> None:
        self.nears: list[bool] = []
        self.begun: list[dict[TaskId, int]] = []
        self.followed: list[dict[TaskId, int]] = []
        self.has_ended = False
        self.is_failing = False

    def prepare(self, action: Prepare, *, is_prepared: bool) -> FeedPrepared | Unanswered:
        self.nears.append(action.is_near)
        if self.is_failing:
            return Unanswered("no broker")
        told = {task: offsets.total for task, offsets in action.positions.items()}
        is_same = is_prepared and not action.is_anew and not self.has_ended
        if is_same and self.begun[-1].keys() == told.keys():
            self.followed.append(told)
            return FeedPrepared(has_begun=False)
        self.begun.append(told)
        self.has_ended = False
        return FeedPrepared(has_begun=True)


class World(FeedingWorld):
    """One whose feed is scripted."""

    scripted: ScriptedFeed

    def prepared(self, action: Prepare) -> FeedPrepared | Unanswered:
        answer = self.scripted.prepare(action, is_prepared=self.is_prepared)
        self.is_prepared = self.is_prepared or isinstance(answer, FeedPrepared)
        return answer


class Played:
    """A preparation with its clock, its feed, and how far the actives are."""

    def __init__(self) -> None:
        self.scripted = ScriptedFeed()
        self.world = World(positions={ONE: 10, TWO: 20})
        self.world.scripted = self.scripted
        self.at = self.world.positions

    @property
    def asked(self) -> int:
        """How often Kafka was asked."""
        return sum(isinstance(each, AskPositions) and each.is_exact for each in self.world.done)

    @property
    def stops(self) -> int:
        return sum(
            isinstance(each, StopPrepared) or (isinstance(each, Prepare) and each.is_anew)
            for each in self.world.done
        )

    def is_pending(self) -> bool:
        state = self.world.state
        return is_pending(state.preparation, self.world.outlook, is_prepared=self.world.is_prepared)

    def keep(self, *tasks: TaskId) -> None:
        self.world.outlook = keeping_hot(self.world.outlook, frozenset(tasks), self.world.now)

    def attend(self, *expected: TaskId) -> None:
        self.world.announce(expected=frozenset(expected))
        self.world.fold(Turned())

    def patience(self) -> float:
        self.world._observe()
        return preparation.patience(self.world.state)

    def wait(self, *expected: TaskId) -> float:
        """Wait as long as the preparation has patience, and attend; return for how long that was."""
        seconds = self.patience()
        assert seconds < math.inf
        self.world.now += seconds
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
    played.world.now += _SETTLE_SECONDS / 2
    played.keep(ONE, TWO)
    played.attend()
    assert played.scripted.begun == []
    assert played.wait() == _SETTLE_SECONDS
    assert played.scripted.begun == [{ONE: 10, TWO: 20}]
    assert played.asked == 0, "Kafka is not asked for what the standbys know"


def test_nothing_begins_in_a_feed_that_is_not_warm_or_before_an_active_ever_was() -> None:
    played = Played()
    played.world.is_warm = False
    played.keep(ONE, TWO)
    assert played.patience() == math.inf
    played.world.is_warm = True
    played.at[TWO] = None
    assert played.is_pending()
    played.wait()
    played.wait()
    assert played.scripted.begun == []
    assert not played.is_pending(), "nobody knows when there will be one"
    played.at[TWO] = 1
    played.wait()
    assert played.scripted.begun == [{ONE: 10, TWO: 1}]


def test_it_follows_at_a_slow_pace_and_hurries_once_its_tasks_are_on_their_way_to_active() -> None:
    played = Played().made_hot()
    played.at[ONE] = 15
    assert played.wait() == SLOWEST_SECONDS
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
    assert played.stops == 0
    assert len(played.scripted.begun) == 1


def test_a_hot_query_is_near_while_an_active_is_silent_and_far_again_afterwards() -> None:
    played = Played().made_hot()
    played.at[ONE] = 15
    for is_silent in (True, False):
        played.world.outlook = replace(played.world.outlook, is_silent=is_silent)
        played.attend()
        assert played.scripted.nears[-1] is is_silent, "at once"
        assert played.scripted.followed[-1] == {ONE: 15, TWO: 20}
        asked = len(played.scripted.nears)
        played.attend()
        assert len(played.scripted.nears) == asked, "otherwise it keeps its pace"
    played.scripted.has_ended = True
    played.wait()
    due_at = played.world.state.preparation.due_at
    played.world.outlook = replace(played.world.outlook, is_silent=True)
    played.attend()
    assert played.world.state.preparation.due_at == due_at, "a query that is begun again is not hurried"


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
    assert played.wait() <= SLOWEST_SECONDS, "it was of use"
    played.scripted.has_ended = True
    played.wait()
    played.scripted.has_ended = True
    assert played.wait() == _FIRST_RESTART_SECONDS


def test_what_cannot_be_begun_is_tried_again_later_and_later_and_hurts_nobody() -> None:
    played = Played()
    played.scripted.is_failing = True
    played.keep(ONE, TWO)
    waits = [played.wait()]
    assert played.is_pending()
    waits += [played.wait() for _ in range(7)]
    assert not played.is_pending(), "it is only warm, then"
    assert waits[1:3] == [_FIRST_RESTART_SECONDS, 2 * _FIRST_RESTART_SECONDS]
    assert waits[-1] == _RESTART_SECONDS
    assert not core.is_prepared_for(played.world.state, ONE, is_prepared=played.world.is_prepared)
    played.scripted.is_failing = False
    played.wait()
    assert core.is_prepared_for(played.world.state, ONE, is_prepared=played.world.is_prepared)


def test_other_standbys_are_another_query_and_none_are_no_query() -> None:
    played = Played().made_hot()
    played.keep(ONE)
    assert played.wait() == _SETTLE_SECONDS
    assert played.scripted.begun[-1] == {ONE: 10}
    played.keep()
    played.attend()
    assert played.stops == 1
    assert not is_wanted(played.world.state.preparation, played.world.outlook)
    assert played.patience() == math.inf


def test_a_planned_start_takes_the_hot_query_over_and_renews_it_often() -> None:
    played = Played().made_hot()
    played.world.announce(planned=frozenset((ONE, TWO)))
    played.world.now += SLOWEST_SECONDS
    played.attend()
    assert played.asked == 1, "a planned one knows it exactly"
    assert played.scripted.nears[-1]
    assert played.wait() == pytest.approx(_RENEW_SECONDS)
    assert len(played.scripted.begun) == 1


def test_a_query_that_stands_still_for_long_is_begun_anew() -> None:
    played = Played().made_hot()
    began = played.world.now
    while len(played.scripted.begun) == 1:
        played.wait()
        assert played.world.now < began + 2 * _REFRESH_SECONDS
    assert played.world.now > began + _REFRESH_SECONDS - _SETTLE_SECONDS - 2 * SLOWEST_SECONDS
    assert played.stops == 1


def test_the_pace_keeps_to_about_a_batch_for_each_look() -> None:
    seconds = SLOWEST_SECONDS
    for _ in range(10):
        seconds = next_pace_seconds(seconds, records=int(20_000 * seconds))
    assert seconds == QUICKEST_SECONDS
    for _ in range(10):
        seconds = next_pace_seconds(seconds, records=int(2_000 * seconds))
    assert 1 <= seconds <= SLOWEST_SECONDS
    seconds = next_pace_seconds(next_pace_seconds(seconds, records=0), records=0)
    assert seconds == SLOWEST_SECONDS


def test_a_start_ends_what_was_prepared_and_makes_use_of_it() -> None:
    played = Played().made_hot()
    played.world.join(ONE, at=10)
    played.world.announce(expected=frozenset((ONE,)))
    played.world.turn()
    assert played.world.fed.keys() == {ONE}
    assert played.world.state.preparation.prepared == frozenset()


def test_nothing_is_warmed_while_somebody_is_on_the_way_to_active_or_waits() -> None:
    world = FeedingWorld()
    world.outlook = expecting(world.outlook, frozenset((ONE,)), world.now)
    world.turn()
    assert world.took(Warm) == []
    world.is_awaited = True
    world.turn(preparation._QUIET_SECONDS)
    assert world.took(Warm) == []
    world.is_awaited = False
    world.turn()
    assert len(world.took(Warm)) == 1
    world.turn(preparation._WARM_SECONDS / 2)
    assert world.took(Warm) == [], (
        "the feed itself knows when there is something to do, but it is not asked so often"
    )
