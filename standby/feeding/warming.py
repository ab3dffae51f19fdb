"""Decides when the feed of a container that feeds nothing may warm up. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from standby.feeding.actions import Warm
from standby.feeding.members import FeedingStep
from standby.feeding.state import FeedingState, Outlook
from standby.shared.model import TaskId

#: How often the feed may warm up; the feed decides whether a warm-up is due.
_WARM_SECONDS: Final = 2.0

#: No warm-up starts for this long after a task has begun to become active; it has usually finished by then. A task
#: that must restore first takes longer, and benefits from a warm pipeline.
_QUIET_SECONDS: Final = 2.0


def expecting(outlook: Outlook, tasks: frozenset[TaskId], now: float) -> Outlook:
    """Return the outlook in which these are all tasks that have joined or are becoming active."""
    is_news = bool(tasks - outlook.expected)
    return Outlook(tasks, now + _QUIET_SECONDS if is_news else outlook.quiet_until)


def may_warm(outlook: Outlook, now: float, *, is_awaited: bool) -> bool:
    """Return whether nothing is waiting for the pipeline: neither an expected task nor a command."""
    return now >= outlook.quiet_until and not is_awaited


def keep_warm(state: FeedingState) -> FeedingStep:
    """Warm up the feed from time to time, while nothing is waiting for it."""
    if state.now >= state.warm_at and may_warm(state.outlook, state.now, is_awaited=state.is_awaited):
        return state, (Warm(),)
    return state, ()


def warmed(state: FeedingState) -> FeedingState:
    """Return the state in which no warm-up is due for a while."""
    return replace(state, warm_at=state.now + _WARM_SECONDS)
