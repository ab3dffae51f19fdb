"""Decides what happens to the members when their feed ends, or cannot be started (rule `whole-batch`). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from standby.feeding import suspects
from standby.feeding.actions import AskInput, CommitPast, FeedingAction, LookAgain, TellGivenUp, WriteLog
from standby.feeding.events import CodeRefused, FailedInput, FeedEnded, TaskFailure
from standby.feeding.members import FeedingStep, current, end_task, note_error
from standby.feeding.state import (
    CheckingOffsets,
    FeedEndCause,
    FeedFailure,
    FeedingState,
    FeedMember,
    RunningFeed,
    Skipping,
)
from standby.replica.failing import FailureOf, back_off_seconds
from standby.replica.lifecycle import Signal
from standby.shared.model import Fault, GivenUp, LeftOut, Offsets, TaskId

#: Minimum time for which a task is not fed after its input could not be reached. By then the former end of the input
#: is stale (`standby.kernel.replay.ends`), so a known end is a new one.
_HELD_UP_SECONDS: Final = 5.0

#: Failures of the feed itself in a row, with no commit in between, after which its tasks have failed.
_FEED_FAILURES: Final = 5


def feed_ended(state: FeedingState, event: FeedEnded) -> FeedingStep:
    """Handle a feed that ended by itself; tasks that did not fail are to be fed again."""
    feed, failure = state.feed, event.failure
    if feed is None:
        return state, ()
    state = without_feed(state, feed)
    if event.failed:
        state, actions = drop_failed(state, feed, event.failed)
        return replace(state, retry_at=0.0), actions
    if failure.cause is FeedEndCause.AWAY:
        return _hold_up(state, feed, failure)
    apart = feed.apart
    member = None if apart is None else current(state, apart.task, feed.members[apart.task])
    has_moved = apart is not None and member is not None and member.committed != apart.start
    if apart is not None and has_moved and failure.cause is FeedEndCause.BY_ITSELF:
        return suspects.progressed(state, apart.task)
    if failure.cause is FeedEndCause.CODE:
        return _code_failed(state, feed, failure)
    return _feed_failed(state, feed.members, failure)


def start_failed(state: FeedingState, failure: FeedFailure) -> FeedingStep:
    """Handle a feed that could not be started."""
    feed = state.feed
    if feed is None:
        return state, ()
    state = replace(state, feed=None)
    if failure.cause is FeedEndCause.CALLED_OFF:
        # No failure. It starts again in the next turn, after the commands that wait.
        return state, ()
    if failure.cause is not FeedEndCause.AWAY:
        return _feed_failed(state, feed.members, failure)
    state, actions = _hold_up(state, feed, failure)
    # Start the others at once, not at the next check.
    return state, (*actions, LookAgain())


def without_feed(state: FeedingState, feed: RunningFeed) -> FeedingState:
    """Return the state after the end of a feed; one that has committed ends a row of failures."""
    return replace(state, feed=None, failures=state.failures if feed.commits == state.commits else 0)


def drop_failed(state: FeedingState, feed: RunningFeed, failed: Sequence[TaskFailure]) -> FeedingStep:
    """Remove the tasks whose batch failed from the feed.

    If the job's code failed, the task is run alone from now on; otherwise it ends.
    """
    actions: list[FeedingAction] = []
    for each in failed:
        number = feed.members.get(each.task)
        member = None if number is None else current(state, each.task, number)
        if member is not None:
            state, more = _failed(state, member, each)
            actions += more
    return state, tuple(actions)


def code_refused(state: FeedingState, event: CodeRefused) -> FeedingStep:
    """End all members: the job's code cannot be used here, or not now."""
    actions: list[FeedingAction] = []
    for task in tuple(state.members):
        failure = TaskFailure(task, Signal.FAILED, event.detail, event.traceback, event.fault)
        state, more = end_task(state, failure)
        actions += more
    return state, tuple(actions)


def bounds_answered(
    state: FeedingState, settling: CheckingOffsets, bounds: Sequence[tuple[int, int]]
) -> FeedingStep:
    """Compare a task's committed offsets with the bounds of its input.

    Each input is handled separately: skipping input of one does not change the others. Input is never skipped
    silently. An offset beyond the end means that the topic is another one.
    """
    task = settling.todo[0]
    committed, inputs = state.members[task].committed, state.policy.inputs
    messages: list[str] = []
    lost: list[GivenUp] = []
    for topic, offset, (first, end) in zip(inputs, committed.each, bounds, strict=True):
        if first <= offset <= end:
            continue
        where = f" {topic}" if len(inputs) > 1 else ""
        outside = f"the committed input offset {offset} is outside of the partition{where} [{first}, {end}]"
        if offset > end or not state.policy.may_skip_lost:
            why = "" if offset > end else ": input was deleted before it was processed (task.input.lost)"
            return _settled_by_end(state, settling, TaskFailure(task, Signal.FAILED, outside + why))
        messages.append(outside)
        lost.append(GivenUp(topic, offset, LeftOut.LOST, "", offsets=first - offset, at_ms=state.now_ms))
    if not messages:
        return _settle(state, settling)
    inside = committed.at_least(Offsets(tuple(first for first, _ in bounds)))
    skipped = inside.total - committed.total
    text = f"{task}: {' and '.join(messages)}: {skipped} input offsets are skipped (task.input.lost)"
    return (
        replace(state, doing=Skipping(settling, inside, tuple(lost), text)),
        (CommitPast(task, committed, inside),),
    )


def input_changed(state: FeedingState, settling: CheckingOffsets, detail: str) -> FeedingStep:
    """End a task whose topics are not those of the run any more."""
    failure = TaskFailure(settling.todo[0], Signal.FAILED, detail, fault=Fault.CHANGED_TOPIC)
    return _settled_by_end(state, settling, failure)


def bounds_unanswered(state: FeedingState, settling: CheckingOffsets, reason: str) -> FeedingStep:
    """Keep a task unchanged when the bounds of its input are unknown."""
    note = WriteLog(f"{settling.todo[0]}: the bounds of its input are not known: {reason}")
    state, actions = _settle(state, settling)
    return state, (note, *actions)


def skipped(state: FeedingState, doing: Skipping) -> FeedingStep:
    """Report skipped input."""
    task = doing.settling.todo[0]
    reports: list[FeedingAction] = [
        note_error(doing.message),
        *(TellGivenUp(task, each) for each in doing.lost),
    ]
    state, actions = _settle(state, replace(doing.settling, found=True))
    return state, (*reports, *actions)


def not_skipped(state: FeedingState, doing: Skipping, failure: TaskFailure) -> FeedingStep:
    """End a task whose commit after lost input has failed."""
    return _settled_by_end(state, doing.settling, failure)


def _failed(state: FeedingState, member: FeedMember, failure: TaskFailure) -> FeedingStep:
    of = failure.of
    if of is None:
        return end_task(state, failure)
    if of.is_code:
        return suspects.failed(state, member, of.end, of.error)
    actions: tuple[FeedingAction, ...] = ()
    state, is_again = _is_tried_again(state, member, of)
    if not is_again:
        state = replace(state, is_too_long=state.is_too_long or of.error.of is FailureOf.TIME)
        state, actions = suspects.failed_of_too_much(state, member, of.end, of.error)
    state, more = end_task(state, failure)
    return state, (*actions, *more)


def _is_tried_again(
    state: FeedingState, member: FeedMember, failed: FailedInput
) -> tuple[FeedingState, bool]:
    """Return whether to retry the same input once: a stalled broker makes any transaction late."""
    is_first = state.late_at.get(member.task) != member.position
    state = replace(state, late_at={**state.late_at, member.task: member.position})
    return state, failed.may_pass and is_first


def _code_failed(state: FeedingState, feed: RunningFeed, failure: FeedFailure) -> FeedingStep:
    """Find out on which task's input the transform fails: its error names neither task nor record."""
    error = failure.error
    assert error is not None
    note = note_error(f"the job's transform failed: {error}\n{failure.story}")
    actions: tuple[FeedingAction, ...]
    if feed.apart is not None or len(feed.members) == 1:
        (task,) = feed.members
        member = current(state, task, feed.members[task])
        if feed.apart is not None:
            state = replace(state, failures=0)
        if member is None:
            return state, (note,)
        until = None if feed.apart is None else feed.apart.until
        state, actions = suspects.failed(state, member, until, error)
        return state, (note, *actions)
    state = replace(state, failures=state.failures + 1)
    if state.failures < _FEED_FAILURES:
        return suspects.accused(state, tuple(feed.members)), (note,)
    # Each of them succeeded alone, repeatedly.
    state, actions = _feed_failed(state, feed.members, failure)
    return state, (note, *actions)


def _hold_up(state: FeedingState, feed: RunningFeed, away: FeedFailure) -> FeedingStep:
    """Exclude tasks whose input is unavailable until it is back, so that the others can be fed at once."""
    held = [task for task in feed.members if task.partition in away.partitions]
    if len(held) == len(feed.members):
        return _feed_failed(state, feed.members, away)
    note = WriteLog(
        f"{', '.join(map(str, held))}: not fed until their input is available again: {away.message}"
    )
    until = state.now + _HELD_UP_SECONDS
    return replace(state, held_up={**state.held_up, **dict.fromkeys(held, until)}), (note,)


def _feed_failed(state: FeedingState, members: Mapping[TaskId, int], failure: FeedFailure) -> FeedingStep:
    """Handle a failure that belongs to no task: retry with back-off, or give up."""
    count = state.failures + 1
    state = replace(state, failures=count, retry_at=state.now + back_off_seconds(count + 1))
    note = WriteLog(f"the feed ended ({count}. time in a row): {failure.story}")
    if failure.cause is FeedEndCause.OUTSIDE:
        state, actions = _ask_next(state, CheckingOffsets(tuple(members), members, failure))
    else:
        state, actions = _give_up(state, members, failure)
    return state, (note, *actions)


def _give_up(state: FeedingState, members: Mapping[TaskId, int], failure: FeedFailure) -> FeedingStep:
    """End the tasks of a feed that has failed too often."""
    if failure.may_pass or state.failures < _FEED_FAILURES:
        return state, ()
    detail = f"the feed failed {state.failures} times in a row: {failure.detail}"
    fault = Fault.REFUSED if failure.cause is FeedEndCause.REFUSED else Fault.OTHER
    actions: list[FeedingAction] = []
    for task, number in members.items():
        if current(state, task, number) is not None:
            state, more = end_task(state, TaskFailure(task, Signal.FAILED, detail, failure.traceback, fault))
            actions += more
    return replace(state, failures=0), tuple(actions)


def _settled_by_end(state: FeedingState, settling: CheckingOffsets, failure: TaskFailure) -> FeedingStep:
    state, ended = end_task(state, failure)
    state, actions = _settle(state, replace(settling, found=True))
    return state, (*ended, *actions)


def _settle(state: FeedingState, settling: CheckingOffsets) -> FeedingStep:
    """Continue with the next task whose committed offsets may be outside of its input."""
    return _ask_next(state, replace(settling, todo=settling.todo[1:]))


def _ask_next(state: FeedingState, settling: CheckingOffsets) -> FeedingStep:
    todo = tuple(each for each in settling.todo if current(state, each, settling.members[each]))
    if todo:
        return replace(state, doing=replace(settling, todo=todo)), (AskInput(todo[0], checks_topics=True),)
    if settling.found:
        return state, ()
    return _give_up(state, settling.members, settling.failure)
