"""The members, which are the active tasks to feed: which are fed together, and how one ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from standby.feeding.actions import EndTask, FeedingAction, Level, WriteLog
from standby.feeding.events import Observed, TaskFailure
from standby.feeding.state import FeedingState, FeedMember
from standby.shared.model import TaskId

V = TypeVar("V")

FeedingStep = tuple[FeedingState, tuple[FeedingAction, ...]]


def observed(state: FeedingState, event: Observed) -> FeedingState:
    """Return the state, updated with the observation."""
    members = {
        task: member
        if (seen := event.members.get(task)) is None
        else replace(
            member,
            committed=seen.committed,
            last_commit_ms=seen.last_commit_ms,
            is_reported=seen.is_reported,
        )
        for task, member in state.members.items()
    }
    return replace(
        state,
        now=event.now,
        now_ms=event.now_ms,
        commits=event.commits,
        is_delivering=event.is_delivering,
        is_awaited=event.is_awaited,
        input_ends=event.input_ends,
        outlook=event.outlook,
        members=members,
    )


def together(state: FeedingState) -> dict[TaskId, FeedMember]:
    """Return the tasks that are fed together: those that are neither suspects nor held up."""
    return {
        task: member
        for task, member in state.members.items()
        if task not in state.suspects and not _is_held_up(state, task)
    }


def is_any_left_out(state: FeedingState) -> bool:
    """Return whether a task that should be fed together with others is not."""
    running = state.feed.members if state.feed is not None else {}
    return any(running.get(task) != member.number for task, member in together(state).items())


def start_at(state: FeedingState) -> float:
    """Return the earliest time of a start that is due."""
    waiting = state.outlook.expected - state.members.keys()
    return max(state.retry_at, state.gather_until if waiting else 0.0)


def current(state: FeedingState, task: TaskId, number: int | None) -> FeedMember | None:
    """Return the member with this number; None when it is no longer a member."""
    member = state.members.get(task)
    return member if member is not None and member.number == number else None


def with_member(state: FeedingState, member: FeedMember) -> FeedingState:
    """Return the state with the given member added or replaced."""
    return replace(state, members={**state.members, member.task: member})


def drop(state: FeedingState, task: TaskId) -> FeedingState:
    """Return the state without the task; it is not fed from the next start on."""
    return replace(
        state,
        members=without(state.members, task),
        suspects=without(state.suspects, task),
        held_up=without(state.held_up, task),
        standing=without(state.standing, task),
    )


def end_task(state: FeedingState, failure: TaskFailure) -> FeedingStep:
    """Stop feeding the task, and signal the reason."""
    task = failure.task
    note = WriteLog(f"{task}: {failure.detail}")
    end = EndTask(task, failure.signal, failure.detail, failure.traceback, failure.fault)
    return drop(state, task), (note, end)


def reclaimed(state: FeedingState, task: TaskId) -> FeedingState:
    """Return the state in which the task's offsets count as committed again.

    So they are committed once, not at each check: the outcome shows at the next batch, or the next time.
    """
    return with_member(state, replace(state.members[task], last_commit_ms=state.now_ms))


def without(mapping: Mapping[TaskId, V], task: TaskId) -> Mapping[TaskId, V]:
    """Return the mapping without a task."""
    if task not in mapping:
        return mapping
    return {each: value for each, value in mapping.items() if each != task}


def note_error(text: str) -> WriteLog:
    """Return a log line at error level."""
    return WriteLog(text, Level.ERROR)


def _is_held_up(state: FeedingState, task: TaskId) -> bool:
    until = state.held_up.get(task)
    return until is not None and (state.now < until or state.input_ends.get(task.partition) is None)
