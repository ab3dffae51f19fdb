"""Prepares queries for standbys: before a planned promotion, and permanently for hot ones. Pure.

A planned promotion is announced (`Wanted.is_next`). Other promotions are not, so the query of a *hot* standby
(`job.hotstandby.query`) runs all the time, and is held at a gate. Batches that the current active has committed pass
the gate from time to time, and as soon as the promotion is ordered, while the tasks are becoming active.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from standby.feeding import state as feeding
from standby.feeding.actions import AskPositions, Level, Prepare, StopPrepared, Warm, WriteLog
from standby.feeding.members import FeedingStep
from standby.feeding.queries import spent
from standby.feeding.state import (
    FeedingState,
    Finding,
    Following,
    Hurrying,
    Nearing,
    Outlook,
    Preparation,
)
from standby.replica.failing import doubled_seconds
from standby.shared.model import Offsets, TaskId

#: How often the position of the current active is checked, and the prepared query follows it.
_RENEW_SECONDS: Final = 0.1

_RETRY_SECONDS: Final = 0.5

#: The same while the tasks are becoming active: the next batch is computed meanwhile.
_HURRY_SECONDS: Final = 0.02

#: Back-off before a hot query that ended, or was of no use, is restarted.
_FIRST_RESTART_SECONDS: Final = 2.0
_RESTART_SECONDS: Final = 60.0

#: Standbys arrive one after the other: a hot query is started when the set has not changed for this long.
_SETTLE_SECONDS: Final = 1.0

#: A hot query without movement at its gate for this long is restarted: brokers close idle connections.
_REFRESH_SECONDS: Final = 240.0

#: A hot query advances rarely (`standby.feeding.state.SLOWEST_SECONDS`), but before more input has arrived than one
#: batch should have.
QUICKEST_SECONDS: Final = 0.5

#: The pace slows down with fewer records per step, and speeds up with more.
_FEW_RECORDS: Final = 4_000
_MANY_RECORDS: Final = 10_000

#: How often the feed may warm up; the feed decides whether a warm-up is due.
_WARM_SECONDS: Final = 2.0

#: No warm-up starts for this long after a task has begun to become active; it has usually finished by then. A task
#: that must restore first takes longer, and benefits from a warm pipeline.
_QUIET_SECONDS: Final = 2.0


# ---- announcements ----


def expecting(outlook: Outlook, tasks: frozenset[TaskId], now: float) -> Outlook:
    """Return the outlook in which these are all tasks that have joined or are becoming active."""
    is_news = bool(tasks - outlook.expected)
    quiet_until = now + _QUIET_SECONDS if is_news else outlook.quiet_until
    return replace(outlook, expected=tasks, quiet_until=quiet_until)


def keeping_hot(outlook: Outlook, tasks: frozenset[TaskId], now: float) -> Outlook:
    """Return the outlook in which these standbys are to be hot."""
    is_news = tasks != outlook.hot and not outlook.next
    return replace(outlook, hot=tasks, settled_at=now + _SETTLE_SECONDS if is_news else outlook.settled_at)


# ---- queries on the state ----


def is_wanted(preparation: Preparation, outlook: Outlook) -> bool:
    """Return whether a planned start is ahead, or a prepared query is waiting that has not failed repeatedly."""
    return bool(outlook.next) or (bool(preparation.prepared) and preparation.begins <= 1)


def is_pending(preparation: Preparation, outlook: Outlook, *, is_prepared: bool) -> bool:
    """Return whether a hot query will soon be waiting at its gate; not if that has failed before."""
    return bool(outlook.hot) and preparation.is_known and preparation.begins <= 1 and not is_prepared


def may_warm(
    preparation: Preparation, outlook: Outlook, now: float, *, is_warm: bool, is_awaited: bool
) -> bool:
    """Return whether nothing is waiting for the pipeline: neither an expected task nor a command."""
    if _does_without(preparation, outlook, is_warm=is_warm):
        return False
    return now >= outlook.quiet_until and not is_awaited


def patience(state: FeedingState) -> float:
    """Return for how many seconds nothing is due."""
    preparation, outlook = state.preparation, state.outlook
    if not state.is_warm or not (outlook.next or outlook.hot or preparation.prepared):
        return math.inf
    if outlook.next and outlook.next != preparation.prepared:
        return 0.0
    return max(0.0, preparation.due_at - state.now)


# ---- steps ----


def attend(state: FeedingState) -> FeedingStep:
    """Prepare, renew or drop a prepared query as due, while no query is running.

    A query prepared for tasks that are becoming active now only advances until their start.
    """
    preparation, outlook = state.preparation, state.outlook
    tasks = outlook.next or outlook.hot
    if preparation.prepared & outlook.expected:
        return _hurry(state)
    if preparation.prepared and not tasks:
        return replace(state, preparation=spent(preparation)), (StopPrepared(),)
    if patience(state) > 0:
        return state, ()
    return _prepare(state, tasks)


def near(state: FeedingState, positions: Mapping[TaskId, Offsets]) -> FeedingStep:
    """Let the prepared query advance for tasks that are becoming active, if all of it is usable."""
    preparation = state.preparation
    if len(positions) < len(preparation.prepared) or not state.is_prepared:
        return state, ()
    preparation = replace(preparation, positions=positions)
    return replace(state, preparation=preparation, doing=Hurrying()), (Prepare(positions, is_near=True),)


def not_hurried(state: FeedingState, told: str) -> FeedingStep:
    """Ignore it: the start itself will show whether the query is usable."""
    return state, (WriteLog(f"the prepared query cannot advance: {told}", Level.INFO),)


def found(state: FeedingState, doing: Finding, positions: Mapping[TaskId, Offsets]) -> FeedingStep:
    """Start a query at the positions of the current actives, or let it follow them."""
    before = state.preparation
    is_known = len(positions) == len(doing.tasks)
    preparation = replace(before, is_known=is_known)
    if not is_known:
        # There is no active yet, so the start position is not known.
        return replace(state, preparation=preparation), ()
    moved = sum(at.total for at in positions.values()) - sum(at.total for at in before.positions.values())
    is_new, is_anew = not before.positions, False
    if is_new or moved:
        preparation = replace(preparation, moved_at=state.now)
    elif not doing.is_planned and state.now - before.moved_at > _REFRESH_SECONDS:
        is_anew, preparation = True, replace(preparation, moved_at=state.now)
    preparation = replace(preparation, positions=positions)
    following = Following(doing.is_planned, is_new, moved)
    return (
        replace(state, preparation=preparation, doing=following),
        (Prepare(positions, is_near=doing.is_planned or state.outlook.is_silent, is_anew=is_anew),),
    )


def followed(state: FeedingState, doing: Following, *, has_begun: bool) -> FeedingState:
    """Return the state in which a query was started, or has advanced."""
    preparation = state.preparation
    if has_begun:
        preparation = replace(preparation, begins=preparation.begins + 1)
        if not doing.is_planned:
            preparation = replace(preparation, due_at=state.now + _restart_seconds(preparation))
    elif state.is_prepared:
        preparation = replace(preparation, begins=0)
        if not doing.is_planned and not doing.is_new:
            seconds = next_pace_seconds(preparation.pace_seconds, doing.moved)
            preparation = replace(preparation, pace_seconds=seconds)
    return replace(state, preparation=preparation)


def not_prepared(state: FeedingState, told: str, *, is_planned: bool) -> FeedingStep:
    """Retry with back-off."""
    preparation = replace(state.preparation, begins=state.preparation.begins + 1)
    seconds = _RETRY_SECONDS if is_planned else _restart_seconds(preparation)
    preparation = replace(preparation, due_at=state.now + seconds)
    note = WriteLog(f"no query can be prepared now: {told}", Level.INFO)
    return replace(state, preparation=preparation), (note,)


def keep_warm(state: FeedingState) -> FeedingStep:
    """Warm up the feed from time to time, while nothing is waiting for it."""
    if state.now < state.warm_at:
        return state, ()
    preparation, outlook = state.preparation, state.outlook
    if may_warm(preparation, outlook, state.now, is_warm=state.is_warm, is_awaited=state.is_awaited):
        return state, (Warm(),)
    if _does_without(preparation, outlook, is_warm=state.is_warm):
        # Check again later, not continuously.
        return warmed(state), ()
    return state, ()


def warmed(state: FeedingState) -> FeedingState:
    """Return the state in which no warm-up is due for a while."""
    return replace(state, warm_at=state.now + _WARM_SECONDS)


def next_pace_seconds(seconds: float, records: int) -> float:
    """Return the interval until a hot query advances again, given the records committed since the last check."""
    if records > _MANY_RECORDS:
        return max(QUICKEST_SECONDS, seconds / 2)
    if records < _FEW_RECORDS:
        return min(feeding.SLOWEST_SECONDS, seconds * 1.5)
    return seconds


def _does_without(preparation: Preparation, outlook: Outlook, *, is_warm: bool) -> bool:
    """Return whether the feed is warm, and a prepared query keeps it warm."""
    return is_wanted(preparation, outlook) and is_warm


def _hurry(state: FeedingState) -> FeedingStep:
    preparation = state.preparation
    if state.now < preparation.due_at and preparation.due_at - state.now <= _HURRY_SECONDS:
        return state, ()
    preparation = replace(preparation, due_at=state.now + _HURRY_SECONDS)
    return replace(state, preparation=preparation, doing=Nearing()), (AskPositions(preparation.prepared),)


def _prepare(state: FeedingState, tasks: frozenset[TaskId]) -> FeedingStep:
    preparation, is_planned = state.preparation, bool(state.outlook.next)
    if tasks != preparation.prepared:
        preparation = replace(preparation, begins=0, positions={})
    seconds = _RENEW_SECONDS if is_planned else preparation.pace_seconds
    preparation = replace(preparation, prepared=tasks, due_at=state.now + seconds)
    return (
        replace(state, preparation=preparation, doing=Finding(tasks, is_planned)),
        (AskPositions(tasks, is_exact=is_planned),),
    )


def _restart_seconds(preparation: Preparation) -> float:
    return doubled_seconds(preparation.begins, _FIRST_RESTART_SECONDS, _RESTART_SECONDS)
