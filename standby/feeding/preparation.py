"""What is done ahead for standbys: for those that are about to become active as planned, and for hot ones. Pure.

A planned promotion is told beforehand (`Wanted.is_next`). For any other there is no time, so the query of a *hot*
standby (`job.hotstandby.query`) runs all the time, behind its gate: what the present active has committed is let go
now and then, and as soon as the promotion is ordered, while its tasks are on their way to active.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from standby.feeding import state as feeding
from standby.feeding.actions import AskPositions, Level, Note, Prepare, StopPrepared, Warm
from standby.feeding.members import Step
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

#: The present active moves on meanwhile: so often is looked how far, and what is prepared follows.
_RENEW_SECONDS: Final = 0.1

_RETRY_SECONDS: Final = 0.5

#: The same once the tasks are on their way to active: the next batch is computed while they are.
_HURRY_SECONDS: Final = 0.02

#: A hot query that ended, or was of no use, is begun again after this, then later and later.
_FIRST_RESTART_SECONDS: Final = 2.0
_RESTART_SECONDS: Final = 60.0

#: Standbys come one after the other: a hot query is begun when none has come or gone for so long.
_SETTLE_SECONDS: Final = 1.0

#: A hot query at whose gate nothing has moved for so long is begun anew: brokers close connections that nobody uses.
_REFRESH_SECONDS: Final = 240.0

#: A hot query goes on seldom (`standby.feeding.state.SLOWEST_SECONDS`), but before more has come than one batch
#: should have.
QUICKEST_SECONDS: Final = 0.5

#: So many records between two looks are worth none sooner, and none later.
_FEW_RECORDS: Final = 4_000
_MANY_RECORDS: Final = 10_000

#: How often the feed may do something for its warmth; it knows itself when that is due.
_WARM_SECONDS: Final = 2.0

#: For so long after a task set out to become active nothing is warmed up: as a rule it has arrived by then.
#: One that has to restore first takes longer, and had better find the pipeline warm.
_QUIET_SECONDS: Final = 2.0


# ---- what is announced ----


def expecting(outlook: Outlook, tasks: frozenset[TaskId], now: float) -> Outlook:
    """Return the outlook in which these tasks are all that have joined or are on their way."""
    is_news = bool(tasks - outlook.expected)
    quiet_until = now + _QUIET_SECONDS if is_news else outlook.quiet_until
    return replace(outlook, expected=tasks, quiet_until=quiet_until)


def keeping_hot(outlook: Outlook, tasks: frozenset[TaskId], now: float) -> Outlook:
    """Return the outlook in which these standbys are to be hot."""
    is_news = tasks != outlook.hot and not outlook.next
    return replace(outlook, hot=tasks, settled_at=now + _SETTLE_SECONDS if is_news else outlook.settled_at)


# ---- how it stands ----


def is_wanted(preparation: Preparation, outlook: Outlook) -> bool:
    """Return whether a planned start is ahead, or a query waits for any start; not one that failed again and again."""
    return bool(outlook.next) or (bool(preparation.prepared) and preparation.begins <= 1)


def is_pending(preparation: Preparation, outlook: Outlook, *, is_prepared: bool) -> bool:
    """Return whether a hot query is about to wait at its gate; not when that has failed before."""
    return bool(outlook.hot) and preparation.is_known and preparation.begins <= 1 and not is_prepared


def may_warm(
    preparation: Preparation, outlook: Outlook, now: float, *, is_warm: bool, is_awaited: bool
) -> bool:
    """Return whether nobody waits for the pipeline: no task that is about to come, no command."""
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


# ---- what is done ----


def attend(state: FeedingState) -> Step:
    """Prepare, renew or drop what is due, while no query runs.

    What is prepared for tasks that are expected, on their way to active now, only moves on until their start.
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


def near(state: FeedingState, positions: Mapping[TaskId, Offsets]) -> Step:
    """Let what is prepared go on for tasks that are on their way to active, if all of it is of use."""
    preparation = state.preparation
    if len(positions) < len(preparation.prepared) or not state.is_prepared:
        return state, ()
    preparation = replace(preparation, positions=positions)
    return replace(state, preparation=preparation, doing=Hurrying()), (Prepare(positions, is_near=True),)


def not_hurried(state: FeedingState, told: str) -> Step:
    """Leave it at that: the start itself will tell."""
    return state, (Note(f"what was prepared does not go on: {told}", Level.INFO),)


def found(state: FeedingState, doing: Finding, positions: Mapping[TaskId, Offsets]) -> Step:
    """Begin a query at the positions of the present actives, or let it follow them."""
    before = state.preparation
    is_known = len(positions) == len(doing.tasks)
    preparation = replace(before, is_known=is_known)
    if not is_known:
        # There was no active yet: where it will begin is not known.
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
        (Prepare(positions, is_near=doing.is_planned, is_anew=is_anew),),
    )


def followed(state: FeedingState, doing: Following, *, has_begun: bool) -> FeedingState:
    """Return the state in which a query was begun, or let go on."""
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


def not_prepared(state: FeedingState, told: str, *, is_planned: bool) -> Step:
    """Try it again, later and later."""
    preparation = replace(state.preparation, begins=state.preparation.begins + 1)
    seconds = _RETRY_SECONDS if is_planned else _restart_seconds(preparation)
    preparation = replace(preparation, due_at=state.now + seconds)
    note = Note(f"nothing can be prepared now: {told}", Level.INFO)
    return replace(state, preparation=preparation), (note,)


def keep_warm(state: FeedingState) -> Step:
    """Do something for the feed's warmth, now and then, while nobody waits."""
    if state.now < state.warm_at:
        return state, ()
    preparation, outlook = state.preparation, state.outlook
    if may_warm(preparation, outlook, state.now, is_warm=state.is_warm, is_awaited=state.is_awaited):
        return state, (Warm(),)
    if _does_without(preparation, outlook, is_warm=state.is_warm):
        # Looked at again later, not at once and all the time.
        return warmed(state), ()
    return state, ()


def warmed(state: FeedingState) -> FeedingState:
    """Return the state in which nothing is to be done for the feed's warmth for a while."""
    return replace(state, warm_at=state.now + _WARM_SECONDS)


def next_pace_seconds(seconds: float, records: int) -> float:
    """Return until when a hot query may go on next, after the active has committed so many since the look before."""
    if records > _MANY_RECORDS:
        return max(QUICKEST_SECONDS, seconds / 2)
    if records < _FEW_RECORDS:
        return min(feeding.SLOWEST_SECONDS, seconds * 1.5)
    return seconds


def _does_without(preparation: Preparation, outlook: Outlook, *, is_warm: bool) -> bool:
    """Return whether the feed is warm, and a query that runs ahead keeps it so."""
    return is_wanted(preparation, outlook) and is_warm


def _hurry(state: FeedingState) -> Step:
    preparation = state.preparation
    if state.now < preparation.due_at and preparation.due_at - state.now <= _HURRY_SECONDS:
        return state, ()
    preparation = replace(preparation, due_at=state.now + _HURRY_SECONDS)
    return replace(state, preparation=preparation, doing=Nearing()), (AskPositions(preparation.prepared),)


def _prepare(state: FeedingState, tasks: frozenset[TaskId]) -> Step:
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
