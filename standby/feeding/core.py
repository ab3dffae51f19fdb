"""The decisions of feeding: `step` applies one event to the state and returns the actions. Pure.

It uses no clock, thread or Kafka: `standby.kernel.pipeline` feeds events and executes actions. The rules it keeps:

- a feed starts at the committed offsets only; after any failure it is restarted, without the task that failed (rules
  `whole-batch`, `committed-offsets`);
- input is skipped only if the job allows it, and never silently (`standby.feeding.suspects`,
  `standby.feeding.failures`);
- input that may have ended a process is run only after the leader knows about it (rule `fair-blame`);
- an action with an answer is the last one of its step, so no decision is made while an answer is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from standby.feeding import failures, feeds, suspects, warming
from standby.feeding.actions import FeedingAction, Reclaim
from standby.feeding.events import (
    BoundsFound,
    Closed,
    CodeRefused,
    FeedEnded,
    FeedingEvent,
    FeedStarted,
    FeedStopped,
    InputChanged,
    Joined,
    Left,
    Observed,
    PastCommitted,
    PastFailed,
    RecordRead,
    StartFailed,
    Turned,
    TurnEnded,
    Unanswered,
    Warmed,
    Watched,
)
from standby.feeding.members import (
    FeedingStep,
    drop,
    is_any_left_out,
    observed,
    reclaimed,
    start_at,
    together,
    with_member,
)
from standby.feeding.state import (
    Beginning,
    CheckingOffsets,
    FeedingState,
    GivingUp,
    ReadingRecord,
    Routing,
    Skipping,
    StoppingFeed,
)
from standby.shared.model import Offsets, TaskId

#: How often a running feed is checked; a failed batch wakes the pipeline at once.
_LOOK_SECONDS: Final = 0.1

#: How often a run of one suspected task is checked: it is short, and ends by itself.
_LOOK_APART_SECONDS: Final = 0.01

#: How long claimed tasks wait for those that are still becoming active: starting the feed once for all of them is
#: faster than restarting it for each.
_GATHER_SECONDS: Final = 0.3


def step(state: FeedingState, event: FeedingEvent) -> FeedingStep:
    """Return the state after ``event``, and the actions to execute, in order."""
    if type(event) in RULES:
        return RULES[type(event)](state, event)
    answer = ANSWERS[type(state.doing), type(event)]
    return answer(replace(state, doing=None), state.doing, event)


def patience(state: FeedingState) -> float:
    """Return for how many seconds only an event can make something due."""
    if state.is_apart:
        return _LOOK_APART_SECONDS
    if state.feed is not None or state.members:
        return min(_LOOK_SECONDS, max(0.0, start_at(state) - state.now) or _LOOK_SECONDS)
    return max(0.0, max(state.warm_at, state.outlook.quiet_until) - state.now)


def _observed(state: FeedingState, event: Observed) -> FeedingStep:
    return observed(state, event), ()


def _joined(state: FeedingState, event: Joined) -> FeedingStep:
    member = event.member
    if not is_any_left_out(state):
        state = replace(state, gather_until=state.now + _GATHER_SECONDS)
    return suspects.joined(with_member(state, member), member)


def _left(state: FeedingState, event: Left) -> FeedingStep:
    is_fed = state.feed is not None and event.task in state.feed.members
    state = drop(state, event.task)
    return feeds.stop(state) if is_fed else (state, ())


def _closed(state: FeedingState, event: Closed) -> FeedingStep:
    return feeds.stop(state)


def _code_refused(state: FeedingState, event: CodeRefused) -> FeedingStep:
    return failures.code_refused(state, event)


def _watched(state: FeedingState, event: Watched) -> FeedingStep:
    return feeds.watched(state)


def _turned(state: FeedingState, event: Turned) -> FeedingStep:
    state = replace(state, is_idle=False)
    if state.is_apart:
        # It ends by itself, soon.
        return state, ()
    suspect = _due_suspect(state)
    if suspect is not None:
        return suspects.attend(state, suspect)
    if is_any_left_out(state) and state.now >= start_at(state):
        return feeds.begin(state, Beginning())
    if state.members or state.feed is not None:
        return state, ()
    return replace(state, is_idle=True), ()


def _turn_ended(state: FeedingState, event: TurnEnded) -> FeedingStep:
    if state.is_idle:
        return warming.keep_warm(state)
    actions: list[FeedingAction] = []
    for task, member in state.members.items():
        # A time to come is one from before the clock was set back.
        if abs(state.now_ms - member.last_commit_ms) > state.policy.reclaim_ms:
            # The commit's thread keeps the order (rule `committed-offsets`).
            actions.append(Reclaim(task, state.now_ms))
            state = reclaimed(state, task)
    return state, tuple(actions)


def _feed_started(state: FeedingState, event: FeedStarted) -> FeedingStep:
    return feeds.started(state), ()


def _start_failed(state: FeedingState, event: StartFailed) -> FeedingStep:
    return failures.start_failed(state, event.failure)


def _warmed(state: FeedingState, event: Warmed) -> FeedingStep:
    return warming.warmed(state), ()


def _due_suspect(state: FeedingState) -> TaskId | None:
    if state.now < state.retry_at or (state.now < state.rest_until and together(state)):
        return None
    return suspects.due(state)


# ---- answers ----


def _stopped(state: FeedingState, doing: StoppingFeed | Beginning, event: FeedStopped) -> FeedingStep:
    feed = state.feed
    if feed is None:
        return state, ()
    state, dropped = failures.drop_failed(failures.without_feed(state, feed), feed, event.failed)
    if isinstance(doing, StoppingFeed):
        return state, dropped
    state, actions = feeds.begin(state, doing)
    return state, (*dropped, *actions)


def _routed(state: FeedingState, doing: Routing, event: BoundsFound) -> FeedingStep:
    return suspects.routed(state, doing, Offsets(tuple(end for _, end in event.bounds)))


def _not_routed(
    state: FeedingState, doing: Routing | ReadingRecord | GivingUp, event: Unanswered
) -> FeedingStep:
    return suspects.unanswered(state, doing.task, event.reason)


def _read(state: FeedingState, doing: ReadingRecord, event: RecordRead) -> FeedingStep:
    return suspects.read(state, doing, event.record)


def _gave_up(state: FeedingState, doing: GivingUp, event: PastCommitted) -> FeedingStep:
    return suspects.gave_up(state, doing)


def _not_given_up(state: FeedingState, doing: GivingUp, event: PastFailed) -> FeedingStep:
    return suspects.not_given_up(state, doing, event.failure)


def _bounds_answered(state: FeedingState, doing: CheckingOffsets, event: BoundsFound) -> FeedingStep:
    return failures.bounds_answered(state, doing, event.bounds)


def _input_changed(state: FeedingState, doing: CheckingOffsets, event: InputChanged) -> FeedingStep:
    return failures.input_changed(state, doing, event.detail)


def _bounds_unanswered(state: FeedingState, doing: CheckingOffsets, event: Unanswered) -> FeedingStep:
    return failures.bounds_unanswered(state, doing, event.reason)


def _skipped(state: FeedingState, doing: Skipping, event: PastCommitted) -> FeedingStep:
    return failures.skipped(state, doing)


def _not_skipped(state: FeedingState, doing: Skipping, event: PastFailed) -> FeedingStep:
    return failures.not_skipped(state, doing, event.failure)


def _skipping_unanswered(state: FeedingState, doing: Skipping, event: Unanswered) -> FeedingStep:
    return failures.bounds_unanswered(state, doing.settling, event.reason)


#: The handlers of events that are not answers.
RULES: Final[Mapping[type, Callable[[FeedingState, Any], FeedingStep]]] = {
    Observed: _observed,
    Joined: _joined,
    Left: _left,
    Closed: _closed,
    CodeRefused: _code_refused,
    FeedEnded: failures.feed_ended,
    Watched: _watched,
    Turned: _turned,
    TurnEnded: _turn_ended,
    FeedStarted: _feed_started,
    StartFailed: _start_failed,
    Warmed: _warmed,
}

#: The handlers of answers, by the pending action. A test compares them with the possible answers of each action.
ANSWERS: Final[Mapping[tuple[type, type], Callable[[FeedingState, Any, Any], FeedingStep]]] = {
    (StoppingFeed, FeedStopped): _stopped,
    (Beginning, FeedStopped): _stopped,
    (Routing, BoundsFound): _routed,
    (Routing, Unanswered): _not_routed,
    (ReadingRecord, RecordRead): _read,
    (ReadingRecord, Unanswered): _not_routed,
    (GivingUp, PastCommitted): _gave_up,
    (GivingUp, PastFailed): _not_given_up,
    (GivingUp, Unanswered): _not_routed,
    (CheckingOffsets, BoundsFound): _bounds_answered,
    (CheckingOffsets, InputChanged): _input_changed,
    (CheckingOffsets, Unanswered): _bounds_unanswered,
    (Skipping, PastCommitted): _skipped,
    (Skipping, PastFailed): _not_skipped,
    (Skipping, Unanswered): _skipping_unanswered,
}
