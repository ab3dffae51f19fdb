"""Invariants of the control loop under any sequence of events: late, doubled, of old leaders and old streams."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from standby.control.core import step
from standby.control.effects import Assign, CloseStream, OpenStream, Quit, SendReport
from standby.control.events import (
    AssignmentReceived,
    ControlEvent,
    ExitReceived,
    InboxDrained,
    LeaderChanged,
    LeaderMoved,
    LeftoversFound,
    Registered,
    RegistrationFailed,
    ReplicasChanged,
    ReplicasClosed,
    SessionConnected,
    SessionLost,
    SessionSuspended,
    StreamBroken,
    StreamConnected,
)
from standby.control.state import ControlPolicy, ControlState, Stream
from standby.shared.records import ContainerRecord, ControllerRecord
from standby.shared.wire import PROTOCOL, Assignment, Exit

SMALL = st.integers(0, 4)
ORDERS = st.builds(
    AssignmentReceived,
    SMALL,
    st.builds(Assignment, SMALL, SMALL, SMALL, replicas=st.just(()), jobs=st.just(())),
)
EXITS = st.builds(ExitReceived, SMALL, st.builds(Exit, SMALL, st.just("told")))
CONTAINER = ContainerRecord("c", "s", 1, "h", 1, 2, 3, PROTOCOL, "1")
LEADERS = st.builds(ControllerRecord, st.sampled_from("ab"), st.just("h"), st.just(1), SMALL)
EVENTS: st.SearchStrategy[ControlEvent] = st.one_of(
    ORDERS,
    ORDERS,
    EXITS,
    st.builds(LeaderChanged, st.none() | LEADERS),
    st.builds(Registered, SMALL),
    st.builds(StreamConnected, SMALL),
    st.builds(StreamBroken, SMALL, st.just("reset")),
    st.builds(ReplicasClosed, st.booleans()),
    st.sampled_from(
        [
            SessionConnected(),
            SessionSuspended(),
            SessionLost(),
            LeaderMoved(),
            LeftoversFound(()),
            ReplicasChanged(),
            RegistrationFailed("not now"),
        ]
    ),
)
TURNS = st.lists(st.tuples(st.lists(EVENTS, max_size=4), st.integers(1, 3_000)), max_size=30)


@given(turns=TURNS)
def test_no_order_of_a_deposed_leader_or_a_former_incarnation_is_ever_obeyed(
    turns: list[tuple[list[ControlEvent], int]],
) -> None:
    state = ControlState(
        ContainerRecord("c", "s", 1, "h", 1, 2, 3, PROTOCOL, "1"), ControlPolicy(orphan_timeout_ms=5_000)
    )
    now = 0
    highest = 0
    incarnation: int | None = None
    live: int | None = None
    has_quit = False
    for events, pause in turns:
        now += pause
        for event in [*events, InboxDrained(now, 0.3, {}, False, None)]:
            if isinstance(event, Registered) and not has_quit:
                incarnation = event.incarnation
            state, effects = step(state, event)
            for effect in effects:
                assert not has_quit, "nothing is owed after the end"
                match effect:
                    case Assign():
                        assert isinstance(event, AssignmentReceived)
                        assert event.assignment.controller_epoch >= highest
                        assert event.assignment.incarnation == incarnation
                        assert event.stream == live
                        highest = event.assignment.controller_epoch
                    case OpenStream():
                        assert live is None, "at most one stream"
                        assert effect.hello.incarnation == incarnation
                        live = effect.stream
                    case CloseStream():
                        assert effect.stream == live
                        live = None
                    case SendReport():
                        assert effect.stream == live, "a report goes to the stream that stands"
                    case Quit():
                        has_quit = True
                    case _:
                        pass
            assert state.epoch >= highest
            assert (state.link.number if isinstance(state.link, Stream) else None) == live or has_quit


@given(turns=TURNS)
def test_whatever_happened_before_a_container_with_zookeeper_and_a_leader_gets_a_stream(
    turns: list[tuple[list[ControlEvent], int]],
) -> None:
    state = ControlState(CONTAINER, ControlPolicy(orphan_timeout_ms=10_000_000))
    now = 0
    for events, pause in turns:
        now += pause
        for event in events:
            if not isinstance(event, ExitReceived):
                state, _ = step(state, event)
        state, _ = step(state, InboxDrained(now, 0.3, {}, False, None))
    leader = ControllerRecord("z", "h", 9, 9)
    for event in (SessionConnected(), Registered(5), LeftoversFound(()), LeaderChanged(leader)):
        state, _ = step(state, event)
    state, _ = step(state, InboxDrained(now + 1, 0.3, {}, False, None))
    assert isinstance(state.link, Stream)
    assert state.link.leader == leader
