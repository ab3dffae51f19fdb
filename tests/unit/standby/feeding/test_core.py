"""Which tasks are fed together, what becomes of them when their feed ends, what may wait, and when it warms up."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import pytest

from standby.feeding import actions, core, events, state
from standby.feeding.actions import (
    AskInput,
    CommitPast,
    EndTask,
    LookAgain,
    Reclaim,
    StartFeed,
    StopFeed,
    TellGivenUp,
    Warm,
)
from standby.feeding.core import ANSWERS, RULES
from standby.feeding.events import (
    BoundsFound,
    Closed,
    CodeRefused,
    InputChanged,
    Left,
    PastFailed,
    StartFailed,
    TaskFailure,
    Unanswered,
)
from standby.feeding.failures import _FEED_FAILURES, _HELD_UP_SECONDS
from standby.feeding.feeds import _DEAF_SECONDS, _MOST_DEAF_SECONDS
from standby.feeding.state import RECLAIM_MS, FeedEndCause, FeedFailure
from standby.feeding.warming import _QUIET_SECONDS, _WARM_SECONDS
from standby.replica.lifecycle import Signal
from standby.shared.model import Fault, LeftOut, Offsets, TaskId
from tests.fakes.feeding import FeedingWorld, feeding, policy_of

ONE, TWO, THREE = (TaskId("job", "main", each) for each in range(3))

AWAY = FeedFailure(FeedEndCause.AWAY, "no leader", partitions=frozenset((1,)))
TRANSIENT = FeedFailure(FeedEndCause.TRANSIENT, "not now")
OTHER = FeedFailure(FeedEndCause.OTHER, "a bug", "RuntimeError: a bug", "where", "story")
OUTSIDE = FeedFailure(FeedEndCause.OUTSIDE, "outside", "outside")
REFUSED = FeedFailure(FeedEndCause.REFUSED, "no such level", "Spark refuses its settings")

#: What each question may be answered with; every answer is decided on wherever the question is asked.
POSSIBLE: Mapping[type, set[type]] = {
    state.StoppingFeed: {events.FeedStopped},
    state.Beginning: {events.FeedStopped},
    state.Routing: {events.BoundsFound, events.Unanswered},
    state.ReadingRecord: {events.RecordRead, events.Unanswered},
    state.GivingUp: {events.PastCommitted, events.PastFailed, events.Unanswered},
    state.CheckingOffsets: {events.BoundsFound, events.InputChanged, events.Unanswered},
    state.Skipping: {events.PastCommitted, events.PastFailed, events.Unanswered},
}


def lost(task: TaskId) -> TaskFailure:
    """Return that a task's producer is lost."""
    return TaskFailure(task, Signal.WRITER_LOST, "fenced")


def test_every_event_has_a_rule_and_every_answer_one_wherever_it_is_waited_for() -> None:
    answers = set(get_args(events.FeedingAnswer))
    assert RULES.keys() == set(get_args(events.FeedingEvent)) - answers
    assert ANSWERS.keys() == {(doing, each) for doing, possible in POSSIBLE.items() for each in possible}
    assert POSSIBLE.keys() == set(get_args(state.Doing))
    assert set(get_args(actions.FeedingQuestion)) <= set(get_args(actions.FeedingAction))


def test_those_that_have_joined_wait_a_moment_for_those_on_their_way() -> None:
    world = FeedingWorld()
    world.expect(ONE, TWO)
    world.join(ONE)
    world.turn()
    assert world.fed == {}
    world.turn(core._GATHER_SECONDS)
    assert world.fed.keys() == {ONE}
    world.join(TWO)
    world.done.clear()
    world.turn()
    assert [type(each) for each in world.done] == [StopFeed, StartFeed], "no task is waited for any more"
    assert world.fed.keys() == {ONE, TWO}


def test_a_task_that_came_back_is_another_one() -> None:
    world = feeding(ONE, TWO)
    world.fold(Left(ONE))
    assert [type(each) for each in world.done] == [StopFeed]
    world.join(ONE, at=9)
    world.turn()
    (start,) = world.took(StartFeed)
    assert start.positions[ONE] == Offsets.of(9)


def test_a_task_that_leaves_while_it_is_not_fed_disturbs_no_other() -> None:
    world = feeding(ONE)
    world.join(TWO)
    world.fold(Left(TWO))
    world.fold(Left(THREE))
    assert world.done == []
    assert world.fed.keys() == {ONE}


def test_a_failure_that_comes_to_light_while_the_feed_is_stopped_counts_unless_the_task_has_left() -> None:
    world = feeding(ONE, TWO)
    world.join(THREE)
    world.answers[StopFeed] = deque([events.FeedStopped((lost(ONE),))])
    world.turn()
    (ended,) = [each for each in world.done if isinstance(each, EndTask)]
    assert ended == EndTask(ONE, Signal.WRITER_LOST, "fenced")
    assert world.fed.keys() == {TWO, THREE}
    left = feeding(ONE)
    left.answers[StopFeed] = deque([events.FeedStopped((lost(ONE),))])
    left.fold(Left(ONE))
    assert [type(each) for each in left.done] == [StopFeed]


def test_a_start_that_was_called_off_is_no_failure_and_is_made_again_at_once() -> None:
    world = feeding(ONE)
    world.answers[StartFeed] = deque([StartFailed(FeedFailure(FeedEndCause.CALLED_OFF, "ONE is to leave"))])
    world.join(TWO)
    world.turn()
    assert (dict(world.fed), world.state.failures) == ({}, 0)
    world.fold(Left(ONE))
    world.turn()
    assert world.fed.keys() == {TWO}


def test_the_feed_is_tried_again_later_and_later_and_a_passing_fault_never_ends_anybody() -> None:
    world = feeding(ONE)
    world.answers[StartFeed] = deque(StartFailed(TRANSIENT) for _ in range(20))
    pauses: list[float] = []
    while world.answers[StartFeed]:
        pause = 0.0
        left = len(world.answers[StartFeed])
        while len(world.answers[StartFeed]) == left:
            world.turn(0.05)
            if world.fed:
                world.feed_ends(TRANSIENT)
            pause += 0.05
        pauses.append(pause)
    assert pauses[1:] == sorted(pauses[1:])
    assert pauses[-1] == pytest.approx(5.0, abs=0.1)
    assert world.took(EndTask) == []


@pytest.mark.parametrize(
    ("failure", "detail", "fault"),
    [(OTHER, "RuntimeError: a bug", Fault.OTHER), (REFUSED, "Spark refuses its settings", Fault.REFUSED)],
)
def test_a_feed_that_fails_again_and_again_ends_its_tasks_but_not_when_it_got_on(
    failure: FeedFailure, detail: str, fault: Fault
) -> None:
    world = feeding(ONE, TWO)
    for _ in range(2 * _FEED_FAILURES):
        world.commit(ONE, 1)
        world.feed_ends(failure)
        world.turn(10)
    assert world.took(EndTask) == []
    world.answers[StartFeed] = deque(StartFailed(failure) for _ in range(_FEED_FAILURES - 2))
    world.feed_ends(failure)
    for _ in range(_FEED_FAILURES - 2):
        assert world.took(EndTask) == []
        world.turn(10)
    told = f"the feed failed {_FEED_FAILURES} times in a row: {detail}"
    assert world.took(EndTask) == [
        EndTask(each, Signal.FAILED, told, failure.traceback, fault) for each in (ONE, TWO)
    ]


def test_failures_are_not_in_a_row_where_a_feed_has_committed_that_was_stopped_for_a_task_that_joined() -> (
    None
):
    world = feeding(ONE, TWO)
    world.answers[StartFeed] = deque(StartFailed(TRANSIENT) for _ in range(_FEED_FAILURES))
    world.feed_ends(TRANSIENT)
    for _ in range(_FEED_FAILURES + 1):
        world.turn(10)
    for _ in range(_FEED_FAILURES):
        world.commit(ONE, 1)
        world.fold(Left(TWO))
        world.join(TWO)
        world.answers[StartFeed] = deque([StartFailed(OTHER)])
        world.turn(10)
        world.turn(10)
        assert world.took(EndTask) == []
        assert world.fed.keys() == {ONE, TWO}


@pytest.mark.parametrize("is_running", [False, True])
def test_a_task_without_a_broker_is_left_out_until_one_answers(is_running: bool) -> None:
    """Whether the feed cannot be started for it, or ends because of it: then no try is needed."""
    world = feeding(ONE, TWO) if is_running else FeedingWorld()
    if is_running:
        world.feed_ends(AWAY)
    else:
        world.join(ONE)
        world.join(TWO)
        world.answers[StartFeed] = deque([StartFailed(AWAY)])
        world.turn()
        assert world.took(LookAgain) == [LookAgain()]
    world.turn()
    assert world.fed.keys() == {ONE}
    world.turn(_HELD_UP_SECONDS / 2)
    assert world.fed.keys() == {ONE}
    world.turn(_HELD_UP_SECONDS)
    assert world.fed.keys() == {ONE, TWO}
    assert world.state.held_up == {}


def test_where_no_broker_answers_for_any_task_it_is_a_failure_of_the_feed() -> None:
    world = FeedingWorld()
    world.join(TWO)
    world.answers[StartFeed] = deque([StartFailed(AWAY)])
    world.turn()
    assert (world.state.held_up, world.state.failures) == ({}, 1)


def test_a_feed_that_brings_nothing_is_begun_anew_later_and_later() -> None:
    world = feeding(ONE)
    pauses: list[float] = []
    pause = 0.0
    while len(pauses) < 8:
        world.turn(1.0)
        pause += 1.0
        if world.took(StopFeed):
            assert world.fed.keys() == {ONE}
            pauses.append(pause)
            pause = 0.0
    assert pauses[0] == pytest.approx(_DEAF_SECONDS, abs=1.1)
    assert pauses[-1] == pytest.approx(_MOST_DEAF_SECONDS, abs=1.1)
    world.commit(ONE, 1)
    world.turn(_DEAF_SECONDS)
    world.is_delivering = True
    world.turn(_DEAF_SECONDS)
    world.is_delivering = False
    world.end = 1
    world.turn(_DEAF_SECONDS)
    assert world.took(StopFeed) == [], "it got on, is at work, has no input"


def outside(first: int = 0, end: int = 1_000, *, may_skip: bool = False, also: bool = False) -> FeedingWorld:
    """Return a world with a task at 10, perhaps one at 50, and a feed that finds one of them outside of its input."""
    world = FeedingWorld(may_skip_lost=may_skip, first=first, end=end)
    world.join(ONE, at=10)
    if also:
        world.join(TWO, at=50)
    world.answers[StartFeed] = deque([StartFailed(OUTSIDE)])
    return world


def test_an_offset_outside_of_the_input_ends_its_task() -> None:
    deleted = ": input was deleted before it was processed (task.input.lost)"
    for first, end, may_skip, told in ((30, 40, False, deleted), (0, 4, False, ""), (0, 4, True, "")):
        world = outside(first, end, may_skip=may_skip)
        world.turn()
        (ended,) = [each for each in world.done if isinstance(each, EndTask)]
        bounds = f"[{first}, {end}]"
        assert ended.detail == f"the committed input offset 10 is outside of the partition {bounds}{told}"
        assert world.took(CommitPast) == []


def test_input_that_was_deleted_is_left_out_aloud_where_that_is_allowed() -> None:
    world = outside(30, may_skip=True, also=True)
    world.turn()
    start, ask, past, told, ask_again = world.done
    assert [type(each) for each in (start, ask, ask_again)] == [StartFeed, AskInput, AskInput]
    assert past == CommitPast(ONE, Offsets.of(10), Offsets.of(30))
    assert isinstance(told, TellGivenUp)
    lost_input = told.given_up
    assert (lost_input.how, lost_input.offset, lost_input.offsets) == (LeftOut.LOST, 10, 20)


def test_of_several_inputs_only_what_one_has_lost_is_left_out() -> None:
    world = FeedingWorld(policy_of(task__inputs="in,also"), may_skip_lost=True)
    world.join(ONE, at=3)
    world.answers[StartFeed] = deque([StartFailed(OUTSIDE)])
    world.answers[AskInput] = deque([BoundsFound([(0, 10), (7, 10)])])
    world.turn()
    (past,) = [each for each in world.done if isinstance(each, CommitPast)]
    assert (past.start, past.end) == (Offsets.of(3, 3), Offsets.of(3, 7))
    (told,) = world.took(TellGivenUp)
    assert (told.given_up.topic, told.given_up.offset, told.given_up.offsets) == ("also", 3, 4)


def test_a_commit_past_lost_input_that_fails_ends_that_task_alone() -> None:
    world = outside(30, may_skip=True, also=True)
    world.answers[CommitPast] = deque([PastFailed(lost(ONE))])
    world.turn()
    assert [type(each) for each in world.done] == [StartFeed, AskInput, CommitPast, EndTask, AskInput]
    world.turn(1)
    assert world.fed.keys() == {TWO}


def test_a_topic_that_is_another_one_ends_its_task_with_that_fault_and_no_input_is_left_out() -> None:
    world = outside(30, may_skip=True)
    world.answers[AskInput] = deque([InputChanged("in is another topic")])
    world.turn()
    assert not any(isinstance(each, CommitPast) for each in world.done)
    fault = Fault.CHANGED_TOPIC
    assert world.took(EndTask) == [EndTask(ONE, Signal.FAILED, "in is another topic", fault=fault)]


def test_while_the_bounds_of_the_input_are_unknown_no_task_ends_for_them_alone_and_no_input_is_left_out() -> (
    None
):
    world = FeedingWorld(may_skip_lost=True, first=30)
    world.join(ONE)
    world.answers[StartFeed] = deque(StartFailed(OUTSIDE) for _ in range(_FEED_FAILURES))
    world.answers[AskInput] = deque(Unanswered("no broker") for _ in range(_FEED_FAILURES - 1))
    for _ in range(_FEED_FAILURES - 1):
        world.turn(10)
    assert not any(isinstance(each, EndTask | CommitPast) for each in world.done)
    world.answers[AskInput].append(BoundsFound([(0, 100)]))
    world.turn(10)
    assert len(world.took(EndTask)) == 1, "the feed has failed too often, whatever it is"


def test_code_of_which_no_feed_can_be_made_ends_every_task_that_joins() -> None:
    world = FeedingWorld()
    world.join(ONE)
    world.fold(CodeRefused("no such module", "where"))
    fault = Fault.REFUSED
    assert world.took(EndTask) == [EndTask(ONE, Signal.FAILED, "no such module", "where", fault)]


def test_an_idle_task_commits_its_offsets_again_every_hour_and_once() -> None:
    world = feeding(ONE)
    world.end = 0
    world.turn(RECLAIM_MS / 1000 - 1)
    assert world.took(Reclaim) == []
    world.turn(2)
    assert world.took(Reclaim) == [Reclaim(ONE, world.now_ms)]
    world.turn(2)
    assert world.took(Reclaim) == []


def test_the_end_is_the_end() -> None:
    world = feeding(ONE)
    world.fold(Closed())
    assert [type(each) for each in world.done] == [StopFeed]
    world.fold(Closed())
    assert len(world.took(StopFeed)) == 1


def test_it_looks_seldom_while_nothing_is_due() -> None:
    world = FeedingWorld()
    world.state = replace(world.state, warm_at=world.now + 1.5)
    assert world.wait() == 1.5
    world.join(ONE)
    assert world.wait() == core._LOOK_SECONDS
    assert world.fed.keys() == {ONE}


def test_nothing_is_warmed_while_a_task_is_becoming_active_or_a_command_waits() -> None:
    world = FeedingWorld()
    world.expect(ONE)
    world.turn()
    assert world.took(Warm) == []
    world.is_awaited = True
    world.turn(_QUIET_SECONDS)
    assert world.took(Warm) == []
    world.is_awaited = False
    world.turn()
    assert len(world.took(Warm)) == 1, "a task that takes longer has to restore first"
    world.expect(ONE, TWO)
    world.turn(_WARM_SECONDS)
    assert len(world.took(Warm)) == 1, "the quiet time of the second task has just passed"


def test_an_idle_feed_is_asked_to_warm_up_from_time_to_time_and_is_looked_at_only_then() -> None:
    world = FeedingWorld()
    world.turn()
    assert [world.wait() for _ in range(5)] == [_WARM_SECONDS] * 5
    assert len(world.took(Warm)) == 6


def test_a_feed_that_feeds_is_not_warmed_until_its_last_task_has_left() -> None:
    world = feeding(ONE)
    world.commit(ONE, world.end)
    world.turn(10 * _WARM_SECONDS)
    assert world.took(Warm) == []
    world.fold(Left(ONE))
    world.turn()
    assert len(world.took(Warm)) == 1
    assert core.patience(world.state) == _WARM_SECONDS
