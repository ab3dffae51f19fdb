"""Decides for which tasks the feed starts, and when one that delivers nothing is restarted. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from standby.feeding.actions import LookAgain, StartFeed, StopFeed, WriteLog
from standby.feeding.members import FeedingStep, together
from standby.feeding.state import (
    Apart,
    Beginning,
    FeedingState,
    FeedMember,
    RunningFeed,
    StoppingFeed,
    WaitingTask,
)
from standby.shared.model import TaskId

#: How long suspects may be run while the others wait, and how long the others are run afterwards.
_APART_SECONDS: Final = 2.0

#: How long a feed may deliver nothing of a partition that has input, before it is restarted: after a broker was
#: away librdkafka may never fetch from a partition again (its issue 4492). The time doubles
#: after each restart without effect, up to the maximum: if an open transaction hides the input, a restart does not
#: help.
_DEAF_SECONDS: Final = 15.0
_MOST_DEAF_SECONDS: Final = 300.0


def stop(state: FeedingState) -> FeedingStep:
    """End the feed, if there is one."""
    if state.feed is None:
        return state, ()
    return replace(state, doing=StoppingFeed()), (StopFeed(),)


def begin(state: FeedingState, beginning: Beginning) -> FeedingStep:
    """Start the feed, after it has ended if it is running."""
    if state.feed is not None:
        return replace(state, doing=beginning), (StopFeed(),)
    if beginning.apart is None:
        return _start(replace(state, apart_since=None), together(state), None)
    return _begin_apart(state, beginning.apart)


def started(state: FeedingState) -> FeedingState:
    """Return the state in which the feed is running: the input of all its tasks is available."""
    feed = state.feed
    if feed is None:
        return state
    return replace(
        state,
        held_up={task: until for task, until in state.held_up.items() if task not in feed.members},
        standing={
            task: replace(each, since=state.now) if task in feed.members else each
            for task, each in state.standing.items()
        },
    )


def watched(state: FeedingState) -> FeedingStep:
    """Stop a feed that has delivered nothing of a task for a long time, although there is input."""
    feed = state.feed
    if feed is None:
        return state, ()
    deaf: list[TaskId] = []
    standing = dict(state.standing)
    for task in feed.members:
        member = state.members.get(task)
        if member is None:
            continue
        found, is_deaf = _stands(state, member)
        if found is None:
            standing.pop(task, None)
        else:
            standing[task] = found
        if is_deaf:
            deaf.append(task)
    state = replace(state, standing=standing)
    if not deaf:
        return state, ()
    state, actions = stop(state)
    listed = ", ".join(map(str, deaf))
    return state, (
        WriteLog(f"the feed delivers nothing of {listed}, which has input: restarting it"),
        *actions,
    )


def _begin_apart(state: FeedingState, apart: Apart) -> FeedingStep:
    since, rest_until = state.apart_since or state.now, state.rest_until
    is_last = state.now - since > _APART_SECONDS
    if is_last:
        # This is the last one before the others' turn.
        rest_until = state.now + _APART_SECONDS
    state = replace(state, apart_since=None if is_last else since, rest_until=rest_until)
    state, actions = _start(state, {apart.task: state.members[apart.task]}, apart)
    # There may be more to do afterwards.
    return state, (LookAgain(), *actions)


def _start(state: FeedingState, members: dict[TaskId, FeedMember], apart: Apart | None) -> FeedingStep:
    numbers = {task: member.number for task, member in members.items()}
    begun = replace(
        state,
        feed=RunningFeed(numbers, state.commits, apart),
        is_too_long=False,
    )
    positions = {task: member.committed for task, member in members.items()}
    until = {apart.task: apart.until} if apart is not None else None
    return begun, (StartFeed(positions, until, is_smaller=state.is_too_long),)


def _stands(state: FeedingState, member: FeedMember) -> tuple[WaitingTask | None, bool]:
    """Return the task's standstill (None when it has no pending input), and whether it lasts too long."""
    position, end = member.position, state.input_ends.get(member.task.partition)
    if end is None or end <= position:
        return None, False
    standing = state.standing.get(member.task)
    if standing is None or standing.position != position:
        standing = WaitingTask(position, state.now, _DEAF_SECONDS)
    elif state.is_delivering:
        standing = replace(standing, since=state.now)
    if state.now - standing.since < standing.patience_seconds:
        return standing, False
    patience_seconds = min(2 * standing.patience_seconds, _MOST_DEAF_SECONDS)
    return replace(standing, since=state.now, patience_seconds=patience_seconds), True
