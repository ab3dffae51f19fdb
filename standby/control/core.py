"""The decisions of a container's control loop: `step` applies one event to the state and returns the effects.

It uses no clock, thread or library: `standby.control.loop` feeds events and executes effects. The rules it keeps:

- an assignment is accepted only on the current stream, with no older controller epoch than one obeyed before, and
  for the container's own incarnation (rule `late-order`);
- the replicas keep running without ZooKeeper and without a leader; a container without a leader for the orphan
  time-out closes in order and ends (rule `orphan-exit`);
- time is evaluated only in `InboxDrained`, which ends each turn after all other events: a deadline does not expire
  while the event that would meet it is in the inbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from standby.config import parse
from standby.control.effects import (
    Assign,
    CloseStream,
    ControlEffect,
    LookUpLeader,
    Register,
    WriteLog,
)
from standby.control.events import (
    AssignmentReceived,
    ControlEvent,
    ExitReceived,
    InboxDrained,
    LeaderChanged,
    LeaderMoved,
    LeaderUnknown,
    LeftoversFound,
    Registered,
    RegistrationFailed,
    Released,
    ReplicasChanged,
    ReplicasClosed,
    SessionConnected,
    SessionLost,
    SessionSuspended,
    StreamBroken,
    StreamConnected,
    Terminated,
)
from standby.control.state import ControlState, Leaving, NoStream, RegistrationState, Stream
from standby.control.turn import ControlStep, begin_closing, turned
from standby.errors import BadConfiguration
from standby.shared import exits
from standby.shared.wire import JobDefinition


def step(state: ControlState, event: ControlEvent) -> ControlStep:
    """Return the state after ``event``, and the effects to execute, in order."""
    if state.has_quit:
        return state, ()
    return RULES[type(event)](state, event)


def _session_connected(state: ControlState, event: SessionConnected) -> ControlStep:
    # A broken connection loses every watch, so the leader is read again each time.
    effects: list[ControlEffect] = [WriteLog("ZooKeeper: connected"), LookUpLeader()]
    registration = state.registration
    if registration in {RegistrationState.ABSENT, RegistrationState.FAILED}:
        registration = RegistrationState.ASKED
        effects.append(Register())
    return replace(state, is_session_up=True, registration=registration), tuple(effects)


def _registration_failed(state: ControlState, event: RegistrationFailed) -> ControlStep:
    note = WriteLog(f"registration failed: {event.reason}", is_warning=True)
    if state.registration is not RegistrationState.ASKED:
        return state, (note,)
    return replace(state, registration=RegistrationState.FAILED, register_at_ms=None), (note,)


def _registered(state: ControlState, event: Registered) -> ControlStep:
    if state.registration is RegistrationState.ABSENT:
        return state, ()  # of a session that has ended since: the next one asks again
    incarnation = event.incarnation
    known = replace(state, registration=RegistrationState.DONE, incarnation=incarnation)
    if incarnation == state.incarnation:
        return known, ()
    note = WriteLog(f"registered: incarnation {incarnation}")
    dropped, effects = _drop_stream(known, "a new incarnation must introduce itself")
    return dropped, (note, *effects)


def _leader_changed(state: ControlState, event: LeaderChanged) -> ControlStep:
    leader = event.leader
    known = replace(state, leader=leader, is_leader_unread=False)
    notes: tuple[ControlEffect, ...] = ()
    if leader != state.leader:
        notes = (WriteLog(f"leader: {leader}" if leader else "leader: none"),)
    link = state.link
    if leader is None:
        # An open stream is kept: a leader may lose its znode briefly and still serve.
        return known, notes
    if isinstance(link, Stream):
        if link.leader == leader:
            return known, notes
        dropped, effects = _drop_stream(known, f"the leader is {leader} now")
        return dropped, (*notes, *effects)
    if leader != state.leader:
        return replace(known, link=NoStream(0, 0)), notes
    return known, notes


def _drop_stream(state: ControlState, reason: str) -> ControlStep:
    """Return the state without a stream, free to open the next one at once."""
    dropped = replace(state, link=NoStream(0, 0))
    if isinstance(state.link, Stream):
        number = state.link.number
        return dropped, (CloseStream(number), WriteLog(f"stream {number}: dropped, {reason}"))
    return dropped, ()


def _stream_broken(state: ControlState, event: StreamBroken) -> ControlStep:
    link = state.link
    if not isinstance(link, Stream) or link.number != event.stream:
        return state, ()
    broken = replace(state, link=NoStream(link.attempt + 1))
    return broken, (
        CloseStream(event.stream),
        WriteLog(f"stream {event.stream}: broken: {event.reason}", is_warning=link.is_connected),
        # A successor's znode may exist already, with the watch event still on its way.
        LookUpLeader(),
    )


def _assigned(state: ControlState, event: AssignmentReceived) -> ControlStep:
    assignment, link = event.assignment, state.link
    named = f"assignment {assignment.number}"
    if not isinstance(link, Stream) or link.number != event.stream:
        return _refused(state, f"{named} of stream {event.stream}, which was closed")
    heard = replace(link, is_connected=True, attempt=0)
    if assignment.controller_epoch < state.epoch:
        return _refused(
            replace(state, link=heard),
            f"{named} of controller epoch {assignment.controller_epoch}, after one of epoch {state.epoch}",
        )
    if assignment.incarnation != state.incarnation:
        return _refused(
            replace(state, link=heard),
            f"{named} for incarnation {assignment.incarnation}, but this is {state.incarnation}",
        )
    if assignment.controller_epoch == state.epoch and assignment.number < link.applied:
        return _refused(
            replace(state, link=heard),
            f"{named} after {link.applied} on the same stream",
        )
    if state.closing is not None:
        return _refused(replace(state, link=heard), f"{named}: the container is closing")
    jobs = {each.name: each for each in assignment.jobs}
    applied = replace(
        state,
        link=replace(heard, applied=assignment.number),
        epoch=assignment.controller_epoch,
        jobs=jobs,
        lag_bounds_ms=_lag_bounds(jobs),
    )
    effects: list[ControlEffect] = []
    if assignment.number != link.applied or assignment.controller_epoch != state.epoch:
        listed = ", ".join(
            f"{each.replica} {each.role.value} at {each.epoch}" for each in assignment.replicas
        )
        text = f"{named} of controller epoch {assignment.controller_epoch}: {listed or 'nothing'}"
        effects.append(WriteLog(text))
    return applied, (*effects, Assign(assignment.replicas, jobs))


def _exit_received(state: ControlState, event: ExitReceived) -> ControlStep:
    order, link = event.exit, state.link
    if not isinstance(link, Stream) or link.number != event.stream:
        return _refused(state, f"exit of stream {event.stream}, which was closed")
    heard = replace(state, link=replace(link, is_connected=True, attempt=0))
    if order.controller_epoch < state.epoch:
        return _refused(
            heard, f"exit of controller epoch {order.controller_epoch}, after an order of epoch {state.epoch}"
        )
    return begin_closing(
        replace(heard, epoch=order.controller_epoch),
        exits.ORDERLY,
        f"told to exit: {order.reason}",
        purge=order.purge,
    )


def _refused(state: ControlState, what: str) -> ControlStep:
    return replace(state, refused=state.refused + 1), (WriteLog(f"refused: {what}", is_warning=True),)


def _lag_bounds(jobs: Mapping[str, JobDefinition]) -> dict[str, int]:
    bounds: dict[str, int] = {}
    for name, job in jobs.items():
        try:
            bounds[name] = parse(job.config).lag_time_ms
        except BadConfiguration:
            continue  # the kernel reports what is wrong with it
    return bounds


def _session_suspended(state: ControlState, event: SessionSuspended) -> ControlStep:
    return replace(state, is_session_up=False), (WriteLog("ZooKeeper: connection suspended"),)


def _session_lost(state: ControlState, event: SessionLost) -> ControlStep:
    note = WriteLog("ZooKeeper: session lost, the registration with it", is_warning=True)
    return replace(state, is_session_up=False, registration=RegistrationState.ABSENT), (note,)


def _leader_moved(state: ControlState, event: LeaderMoved) -> ControlStep:
    return state, (LookUpLeader(),)


def _leader_unknown(state: ControlState, event: LeaderUnknown) -> ControlStep:
    unread = replace(state, is_leader_unread=True, look_up_at_ms=None)
    return unread, (WriteLog(f"the leader cannot be read now: {event.reason}"),)


def _leftovers_found(state: ControlState, event: LeftoversFound) -> ControlStep:
    return replace(state, leftovers=event.leftovers), ()


def _stream_connected(state: ControlState, event: StreamConnected) -> ControlStep:
    if not isinstance(state.link, Stream) or state.link.number != event.stream:
        return state, ()
    connected = replace(state, link=replace(state.link, is_connected=True))
    return connected, (WriteLog(f"stream {event.stream}: connected"),)


def _replicas_changed(state: ControlState, event: ReplicasChanged) -> ControlStep:
    # The event only wakes the loop: the end of the turn reads the replicas' statuses.
    return state, ()


def _replicas_closed(state: ControlState, event: ReplicasClosed) -> ControlStep:
    if state.closing is None:
        return state, ()
    return replace(state, closing=replace(state.closing, in_time=event.in_time)), ()


def _terminated(state: ControlState, event: Terminated) -> ControlStep:
    waits = state.policy.leave_timeout_ms > 0 and state.leaving is None and state.closing is None
    if waits:
        note = WriteLog(f"{event.signal} received: waiting until the actives here are handed over")
        return replace(state, leaving=Leaving(f"{event.signal} received")), (note,)
    return begin_closing(state, exits.ORDERLY, f"{event.signal} received")


def _released(state: ControlState, event: Released) -> ControlStep:
    return begin_closing(state, exits.ORDERLY, "the leader has given it back")


#: The handler of each event. A test compares it with the union of all events.
RULES: Final[Mapping[type, Callable[[ControlState, Any], ControlStep]]] = {
    InboxDrained: turned,
    SessionConnected: _session_connected,
    SessionSuspended: _session_suspended,
    SessionLost: _session_lost,
    Registered: _registered,
    RegistrationFailed: _registration_failed,
    LeaderMoved: _leader_moved,
    LeaderChanged: _leader_changed,
    LeaderUnknown: _leader_unknown,
    LeftoversFound: _leftovers_found,
    StreamConnected: _stream_connected,
    StreamBroken: _stream_broken,
    AssignmentReceived: _assigned,
    ExitReceived: _exit_received,
    ReplicasChanged: _replicas_changed,
    ReplicasClosed: _replicas_closed,
    Terminated: _terminated,
    Released: _released,
}
