"""Queries: for whom one begins, and when one that brings nothing is begun anew. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from standby.feeding.actions import LookAgain, Note, StartFeed, StopFeed
from standby.feeding.members import Step, together
from standby.feeding.state import (
    Apart,
    Beginning,
    Ending,
    FeedingState,
    Member,
    Preparation,
    Query,
    Standing,
)
from standby.shared.model import TaskId

#: For so long suspected tasks may be run while the others wait, and for so long the others are run then.
_APART_SECONDS: Final = 2.0

#: For so long a feed may bring nothing of a partition that has input before it is held to have gone deaf, and at most,
#: as it is twice as long each time in vain: where an open transaction hides the input, beginning anew gains nothing.
_DEAF_SECONDS: Final = 15.0
_MOST_DEAF_SECONDS: Final = 300.0


def stop(state: FeedingState) -> Step:
    """End the query, if there is one."""
    if state.query is None:
        return state, ()
    return replace(state, doing=Ending()), (StopFeed(),)


def begin(state: FeedingState, beginning: Beginning) -> Step:
    """Begin a query, once the present one, if there is one, has ended."""
    if state.query is not None:
        return replace(state, doing=beginning), (StopFeed(),)
    if beginning.apart is None:
        return _start(replace(state, apart_since=None), together(state), None)
    return _begin_apart(state, beginning.apart)


def started(state: FeedingState) -> FeedingState:
    """Return the state in which the query runs: there is input for each of its tasks."""
    query = state.query
    if query is None:
        return state
    return replace(
        state,
        held_up={task: until for task, until in state.held_up.items() if task not in query.members},
        standing={
            task: replace(each, since=state.now) if task in query.members else each
            for task, each in state.standing.items()
        },
    )


def watched(state: FeedingState) -> Step:
    """Stop a query that has brought nothing of some task for long, although there is input of it."""
    query = state.query
    if query is None:
        return state, ()
    deaf: list[TaskId] = []
    standing = dict(state.standing)
    for task in query.members:
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
        Note(f"the feed brings nothing of {listed}, which has input: it is begun anew"),
        *actions,
    )


def _begin_apart(state: FeedingState, apart: Apart) -> Step:
    since, rest_until = state.apart_since or state.now, state.rest_until
    is_last = state.now - since > _APART_SECONDS
    if is_last:
        # One more, and then it is the others' turn.
        rest_until = state.now + _APART_SECONDS
    state = replace(state, apart_since=None if is_last else since, rest_until=rest_until)
    state, actions = _start(state, {apart.task: state.members[apart.task]}, apart)
    # There may be more to do, then.
    return state, (LookAgain(), *actions)


def _start(state: FeedingState, members: dict[TaskId, Member], apart: Apart | None) -> Step:
    numbers = {task: member.number for task, member in members.items()}
    begun = replace(
        state,
        query=Query(numbers, state.commits, apart),
        is_too_long=False,
        preparation=spent(state.preparation),
    )
    positions = {task: member.committed for task, member in members.items()}
    until = {apart.task: apart.until} if apart is not None else None
    return begun, (StartFeed(positions, until, is_smaller=state.is_too_long),)


def spent(preparation: Preparation) -> Preparation:
    """Return the preparation after the feed was started or stopped: nothing is prepared any more."""
    return replace(preparation, prepared=frozenset(), positions={}, begins=0)


def _stands(state: FeedingState, member: Member) -> tuple[Standing | None, bool]:
    """Return where a task stands, None when it has no input, and whether that is for too long."""
    position, end = member.position, state.input_ends.get(member.task.partition)
    if end is None or end <= position:
        return None, False
    standing = state.standing.get(member.task)
    if standing is None or standing.position != position:
        standing = Standing(position, state.now, _DEAF_SECONDS)
    elif state.is_delivering:
        standing = replace(standing, since=state.now)
    if state.now - standing.since < standing.patience_seconds:
        return standing, False
    patience_seconds = min(2 * standing.patience_seconds, _MOST_DEAF_SECONDS)
    return replace(standing, since=state.now, patience_seconds=patience_seconds), True
