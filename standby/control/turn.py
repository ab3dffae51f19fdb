"""The end of a turn: the control loop's reactions to time and to the replicas' statuses. Pure."""

from __future__ import annotations

from dataclasses import replace

from standby.control.effects import (
    CloseReplicas,
    CloseStream,
    ControlEffect,
    LookUpLeader,
    OpenStream,
    Quit,
    Register,
    SendReport,
    WriteLog,
)
from standby.control.events import InboxDrained
from standby.control.state import (
    Closing,
    ControlState,
    NoStream,
    RegistrationState,
    Stream,
    hello,
    signature,
    statuses_to_send,
)
from standby.shared import exits
from standby.shared.wire import Report

ControlStep = tuple[ControlState, tuple[ControlEffect, ...]]


def turned(state: ControlState, event: InboxDrained) -> ControlStep:
    """Return the state after a turn that ends with ``event``, and the effects that are due."""
    effects: list[ControlEffect] = []
    if event.broken is not None:
        # An orderly close is impossible; waiting would only delay the failover (rule `never-block`).
        return replace(state, has_quit=True), (Quit(exits.BROKEN, event.broken),)
    state = _stalled(state, event.now_ms)
    state = replace(
        state, now_ms=event.now_ms, statuses=event.statuses, is_warm=event.is_warm, revisions=event.revisions
    )
    for rule in (_orphan, _leave, _register, _look_up, _connect, _report, _close):
        state, owed = rule(state, event)
        effects.extend(owed)
    return state, tuple(effects)


def begin_closing(
    state: ControlState, code: int, reason: str, *, purge: bool = False, is_warning: bool = False
) -> ControlStep:
    """Return the state in which the container closes, and the effects that start it; none if it is closing already."""
    if state.closing is not None:
        return state, ()
    return (
        replace(state, closing=Closing(code, reason, purge=purge)),
        (
            WriteLog(f"closing: {reason}", is_warning=is_warning),
            CloseReplicas(state.policy.close_deadline_ms),
        ),
    )


def due_in_ms(state: ControlState, now_ms: int) -> int | None:
    """Return after how many milliseconds an idle loop must run a turn; None: no deadline."""
    if isinstance(state.link, NoStream) and state.link.retry_at_ms is not None:
        return max(0, state.link.retry_at_ms - now_ms)
    return None


def _stalled(state: ControlState, now_ms: int) -> ControlState:
    """Return the state with every deadline moved by the time for which the process was suspended.

    No other process is responsible for that time, and its events are only being handled now (rule `who-is-lost`).
    """
    if state.now_ms is None or now_ms - state.now_ms <= state.policy.stall_ms:
        return state
    stall = now_ms - state.now_ms
    if state.leaderless_since_ms is not None:
        state = replace(state, leaderless_since_ms=state.leaderless_since_ms + stall)
    if isinstance(state.link, Stream):
        state = replace(state, link=replace(state.link, opened_at_ms=state.link.opened_at_ms + stall))
    if state.leaving is not None and state.leaving.until_ms is not None:
        state = replace(state, leaving=replace(state.leaving, until_ms=state.leaving.until_ms + stall))
    if state.closing is not None and state.closing.until_ms is not None:
        state = replace(state, closing=replace(state.closing, until_ms=state.closing.until_ms + stall))
    return state


def _orphan(state: ControlState, event: InboxDrained) -> ControlStep:
    if state.is_led:
        return replace(state, leaderless_since_ms=None), ()
    if state.leaderless_since_ms is None:
        return replace(state, leaderless_since_ms=event.now_ms), ()
    waited = event.now_ms - state.leaderless_since_ms
    if waited < state.policy.orphan_timeout_ms:
        return state, ()
    return begin_closing(state, exits.ORPHANED, f"no leader for {waited} ms", is_warning=True)


def _leave(state: ControlState, event: InboxDrained) -> ControlStep:
    leaving = state.leaving
    if leaving is None or state.closing is not None:
        return state, ()
    if leaving.until_ms is None:
        until_ms = event.now_ms + state.policy.leave_timeout_ms
        return replace(state, leaving=replace(leaving, until_ms=until_ms)), ()
    if event.now_ms < leaving.until_ms:
        return state, ()
    reason = f"{leaving.reason}; no order to exit came within {state.policy.leave_timeout_ms} ms"
    return begin_closing(state, exits.ORDERLY, reason, is_warning=True)


def _register(state: ControlState, event: InboxDrained) -> ControlStep:
    if state.registration is not RegistrationState.FAILED or not state.is_session_up:
        return state, ()
    if state.register_at_ms is None:
        return replace(state, register_at_ms=event.now_ms + state.policy.register_retry_ms), ()
    if event.now_ms < state.register_at_ms:
        return state, ()
    return replace(state, registration=RegistrationState.ASKED), (Register(),)


def _look_up(state: ControlState, event: InboxDrained) -> ControlStep:
    if not state.is_leader_unread or not state.is_session_up:
        return state, ()
    if state.look_up_at_ms is None:
        return replace(state, look_up_at_ms=event.now_ms + state.policy.look_up_retry_ms), ()
    if event.now_ms < state.look_up_at_ms:
        return state, ()
    return replace(state, look_up_at_ms=None, is_leader_unread=False), (LookUpLeader(),)


def _connect(state: ControlState, event: InboxDrained) -> ControlStep:
    link = state.link
    if isinstance(link, Stream):
        if link.is_connected or event.now_ms - link.opened_at_ms < state.policy.connect_timeout_ms:
            return state, ()
        note = WriteLog(f"stream {link.number}: no connection to {link.leader} in time", is_warning=True)
        given_up = replace(state, link=NoStream(link.attempt + 1, _retry_at(state, event, link.attempt + 1)))
        return given_up, (CloseStream(link.number), note, LookUpLeader())
    if link.retry_at_ms is None:
        due = event.now_ms if link.attempt == 0 else _retry_at(state, event, link.attempt)
        link = replace(link, retry_at_ms=due)
        state = replace(state, link=link)
    if link.retry_at_ms is not None and event.now_ms < link.retry_at_ms:
        return state, ()
    return _open(state, event, link)


def _open(state: ControlState, event: InboxDrained, link: NoStream) -> ControlStep:
    if state.leader is None:
        # The watch reports a new leader; this read covers a lost watch.
        again = NoStream(link.attempt + 1, _retry_at(state, event, link.attempt + 1))
        return replace(state, link=again), (LookUpLeader(),) if state.is_session_up else ()
    if (
        state.incarnation is None
        or state.leftovers is None
        or state.registration is not RegistrationState.DONE
    ):
        # The data for the introduction is still pending. The incarnation of a lost session is not introduced. That
        # of a suspended session is: without ZooKeeper, the stream to the leader is even more important.
        return state, ()
    number = state.streams + 1
    stream = Stream(number, state.leader, link.attempt, event.now_ms)
    return (
        replace(state, streams=number, link=stream),
        (
            WriteLog(f"stream {number}: to {state.leader}"),
            OpenStream(number, state.leader, hello(state, state.incarnation)),
        ),
    )


def _retry_at(state: ControlState, event: InboxDrained, attempt: int) -> int:
    """Return the time of retry number ``attempt``: exponential back-off with a jitter of 50 to 100 %."""
    policy = state.policy
    longest = min(policy.backoff_most_ms, policy.backoff_least_ms << min(attempt - 1, 16))
    return event.now_ms + round(longest * (0.5 + event.jitter / 2))


def _report(state: ControlState, event: InboxDrained) -> ControlStep:
    link = state.link
    if not isinstance(link, Stream):
        return state, ()
    present = signature(state)
    is_news = link.sent != present or link.sent_number != link.applied
    if not is_news and event.now_ms - link.sent_at_ms < state.policy.report_interval_ms:
        return state, ()
    reported = replace(link, sent=present, sent_number=link.applied, sent_at_ms=event.now_ms)
    report = Report(
        link.applied,
        statuses_to_send(state),
        state.is_warm,
        revisions=state.revisions,
        is_leaving=state.leaving is not None,
    )
    return replace(state, link=reported), (SendReport(link.number, report),)


def _close(state: ControlState, event: InboxDrained) -> ControlStep:
    closing = state.closing
    if closing is None:
        return state, ()
    if closing.in_time is not None:
        # The report of this turn, sent just before, is the last one: everything is closed.
        code = closing.code if closing.in_time else exits.UNCLEAN
        return replace(state, has_quit=True), (
            Quit(code, closing.reason, purge=closing.purge and closing.in_time),
        )
    policy = state.policy
    if closing.until_ms is None:
        until = event.now_ms + policy.close_deadline_ms + policy.close_grace_ms
        return replace(state, closing=replace(closing, until_ms=until)), ()
    if event.now_ms < closing.until_ms:
        return state, ()
    reason = f"{closing.reason}; the kernel did not close within {policy.close_deadline_ms} ms"
    return replace(state, has_quit=True), (Quit(exits.UNCLEAN, reason),)
