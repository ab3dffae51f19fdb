"""The control loop's decisions, one rule at a time."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import replace

import pytest

from standby.control import exits
from standby.control.core import RULES, step
from standby.control.effects import (
    Assign,
    CloseReplicas,
    CloseStream,
    Effect,
    LookUpLeader,
    Note,
    OpenStream,
    Quit,
    Register,
    SendReport,
)
from standby.control.events import (
    AssignmentReceived,
    Event,
    ExitReceived,
    Leader,
    LeaderChanged,
    LeaderMoved,
    LeaderUnknown,
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
    Terminated,
    Turned,
)
from standby.control.state import ControlState, Identity, NoStream, Policy, Stream, hello
from standby.control.turn import due_in_ms
from standby.model import InputFailures, Leftover, Phase, ReplicaId, ReplicaStatus, Role, TaskId, Wanted
from standby.wire import Assignment, Exit, JobDefinition

IDENTITY = Identity("container_1", "anywhere_0", 1, "127.0.0.11", 4001, 4002, 77)
POLICY = Policy(orphan_timeout_ms=10_000)
LEADER = Leader("a", "127.0.0.12", 5000, 3)
TASK = TaskId("flights", "main", 0)
REPLICA = ReplicaId(TASK, 0)
JOB = JobDefinition(
    "flights",
    "r1",
    {
        "job.name": "flights",
        "task.inputs": "in",
        "task.step": "flights:totals",
        "kafka.bootstrap.servers": "k:1",
        "zookeeper.connect": "z:1",
        "job.hotstandby.lag.time.ms": "2000",
    },
    "changelog",
    "group",
    1,
)


def status(**fields: object) -> ReplicaStatus:
    return replace(
        ReplicaStatus(REPLICA, Role.STANDBY, Phase.TAILING, 1), **typing.cast("dict[str, typing.Any]", fields)
    )


class Played:
    """A state with everything it ever owed."""

    def __init__(self, state: ControlState | None = None) -> None:
        self.state = state or ControlState(IDENTITY, POLICY)
        self.now_ms = 1_000_000
        self.statuses: Mapping[ReplicaId, ReplicaStatus] = {}
        self.is_warm = False
        self.broken: str | None = None
        self.revisions: Mapping[str, int] = {}

    def hear(self, *events: Event) -> list[Effect]:
        """Return what ``events`` alone make due, log lines left out."""
        owed: list[Effect] = []
        for event in events:
            self.state, effects = step(self.state, event)
            owed.extend(each for each in effects if not isinstance(each, Note))
        return owed

    def turn(self, *events: Event, after_ms: int = 10) -> list[Effect]:
        """Return what one turn of the loop with ``events`` makes due."""
        self.now_ms += after_ms
        owed = self.hear(*events)
        turned = Turned(self.now_ms, 0.5, self.statuses, self.is_warm, self.broken, self.revisions)
        return owed + self.hear(turned)

    def turns(self, total_ms: int, each_ms: int = 100) -> list[Effect]:
        """Return what becomes due while nothing happens for so long."""
        return [effect for _ in range(total_ms // each_ms) for effect in self.turn(after_ms=each_ms)]


def registered() -> Played:
    played = Played()
    played.turn(SessionConnected(), LeftoversFound(()), Registered(7))
    return played


def led(leader: Leader = LEADER) -> Played:
    """Return a container with a standing stream, number 1."""
    played = registered()
    played.turn(LeaderChanged(leader))
    played.turn(StreamConnected(1))
    return played


def assign(epoch: int = 3, incarnation: int = 7, number: int = 1, **fields: typing.Any) -> Assignment:
    return Assignment(epoch, incarnation, number, **{"replicas": (), "jobs": (), **fields})


def kinds(effects: list[Effect]) -> list[type]:
    return [type(each) for each in effects]


def test_every_event_has_its_rule() -> None:
    assert set(RULES) == set(typing.get_args(Event))


def test_it_registers_as_soon_as_there_is_a_session() -> None:
    played = Played()
    assert played.hear(SessionConnected()) == [LookUpLeader(), Register()]
    assert played.turns(3_000).count(Register()) == 0, "asked once, the answer is on its way"


def test_a_failed_registration_is_tried_again_after_a_while() -> None:
    played = Played()
    played.turn(SessionConnected())
    assert Register() not in played.turn(RegistrationFailed("not now"))
    assert played.turns(POLICY.register_retry_ms + 200).count(Register()) == 1


def test_a_suspended_session_registers_nothing_anew() -> None:
    played = led()
    assert played.turn(SessionSuspended()) == []
    assert played.turn(SessionConnected()) == [LookUpLeader()]


def test_a_lost_session_registers_anew_and_introduces_the_new_incarnation() -> None:
    played = led()
    assert played.turn(SessionLost()) == [], "the replicas and the stream go on"
    assert played.turn(SessionConnected()) == [LookUpLeader(), Register()]
    owed = played.turn(Registered(9))
    assert kinds(owed) == [CloseStream, OpenStream, SendReport]
    opened = owed[1]
    assert isinstance(opened, OpenStream)
    assert (opened.stream, opened.hello.incarnation) == (2, 9)


def test_a_lost_sessions_incarnation_is_not_introduced_again() -> None:
    played = led()
    played.turn(StreamBroken(1, "reset"), SessionLost())
    assert OpenStream not in kinds(played.turns(3_000))
    assert OpenStream not in kinds(played.turn(SessionConnected()))
    assert OpenStream in kinds(played.turn(Registered(9)))


def test_a_suspended_sessions_incarnation_is() -> None:
    played = led()
    played.turn(StreamBroken(1, "reset"), SessionSuspended())
    assert OpenStream in kinds(played.turns(3_000))


def test_a_quiet_loop_turns_again_when_something_is_due() -> None:
    played = led()
    assert due_in_ms(played.state, played.now_ms) is None
    played.turn(StreamBroken(1, "reset"))
    due = due_in_ms(played.state, played.now_ms)
    assert due is not None
    assert OpenStream not in kinds(played.turn(after_ms=due - 1))
    assert OpenStream in kinds(played.turn(after_ms=1))


def test_the_same_incarnation_keeps_its_stream() -> None:
    played = led()
    assert played.turn(Registered(7)) == []


def test_the_introduction_waits_for_registration_leader_and_disks() -> None:
    parts: list[Event] = [Registered(7), LeaderChanged(LEADER), LeftoversFound(())]
    for last in range(3):
        played = Played()
        played.turn(SessionConnected())
        others = [each for index, each in enumerate(parts) if index != last]
        assert not [each for each in played.turn(*others) if isinstance(each, OpenStream)]
        assert [each for each in played.turn(parts[last]) if isinstance(each, OpenStream)]


def test_the_introduction_tells_everything_held_and_what_lies_unused() -> None:
    unused = Leftover(TaskId("flights", "main", 5), "r1", 40)
    played = Played()
    played.statuses = {REPLICA: status(applied=12)}
    played.turn(SessionConnected(), LeftoversFound((Leftover(TASK, "r1", 3), unused)), Registered(7))
    owed = played.turn(LeaderChanged(LEADER))
    opened = next(each for each in owed if isinstance(each, OpenStream))
    assert opened.leader == LEADER
    assert opened.hello.replicas == (status(applied=12),)
    assert opened.hello.leftovers == (unused,), "what is held is no left-over"
    assert opened.hello.port == IDENTITY.port


def test_an_assignment_goes_to_the_kernel_and_its_number_is_reported() -> None:
    played = led()
    wanted = (Wanted(REPLICA, Role.ACTIVE, 4),)
    owed = played.turn(AssignmentReceived(1, assign(number=5, replicas=wanted, jobs=(JOB,))))
    assert owed[0] == Assign(wanted, {"flights": JOB})
    assert owed[1] == SendReport(1, 5, (), False)
    assert played.state.epoch == 3


def test_a_resent_assignment_is_obeyed_again() -> None:
    played = led()
    order = AssignmentReceived(1, assign(number=5))
    assert played.turn(order) == [Assign((), {}), SendReport(1, 5, (), False)]
    assert played.turn(order) == [Assign((), {})]
    assert played.state.refused == 0


@pytest.mark.parametrize(
    ("why", "event"),
    [
        ("an older controller epoch", AssignmentReceived(1, assign(epoch=2))),
        ("a former incarnation", AssignmentReceived(1, assign(incarnation=6))),
        ("an incarnation still to come", AssignmentReceived(1, assign(incarnation=8))),
        ("an older number on the same stream", AssignmentReceived(1, assign(number=4))),
        ("a stream that was left", AssignmentReceived(0, assign(number=9))),
        ("exit, of an older controller epoch", ExitReceived(1, Exit(2, "old"))),
        ("exit, of a stream that was left", ExitReceived(0, Exit(9, "old"))),
    ],
)
def test_an_order_is_refused_and_counted(why: str, event: Event) -> None:
    played = led()
    played.turn(AssignmentReceived(1, assign(epoch=3, number=5)))
    assert played.turn(event) == [], why
    assert played.state.refused == 1
    assert played.state.epoch == 3


def test_orders_are_refused_while_closing() -> None:
    played = led()
    assert kinds(played.turn(Terminated("SIGTERM"))) == [CloseReplicas]
    assert not [each for each in played.turn(AssignmentReceived(1, assign())) if isinstance(each, Assign)]
    assert played.state.refused == 1


def test_a_number_starts_anew_on_each_stream() -> None:
    played = led()
    played.turn(AssignmentReceived(1, assign(number=5)))
    played.turn(StreamBroken(1, "reset"))
    played.turns(200)
    assert isinstance(played.state.link, Stream)
    assert played.state.link.number == 2
    owed = played.turn(AssignmentReceived(2, assign(number=1)))
    assert owed == [Assign((), {}), SendReport(2, 1, (), False)]


def test_a_broken_stream_is_opened_again_after_a_growing_delay() -> None:
    played = led()
    delays: list[int] = []
    for number in range(1, 9):
        assert CloseStream(number) in played.hear(StreamBroken(number, "reset"))
        begun = played.now_ms
        while not [each for each in played.turn() if isinstance(each, OpenStream)]:
            assert played.now_ms - begun < POLICY.backoff_most_ms + 100
        delays.append(played.now_ms - begun)
    assert delays == sorted(delays)
    assert delays[0] < 100
    assert delays[-1] > POLICY.backoff_most_ms / 2


def test_hearing_from_the_leader_ends_the_growth() -> None:
    played = led()
    for number in range(1, 6):
        played.turn(StreamBroken(number, "reset"))
        played.turns(POLICY.backoff_most_ms)
    assert isinstance(played.state.link, Stream)
    assert played.state.link.attempt > 1
    played.turn(AssignmentReceived(6, assign()))
    assert played.state.link.attempt == 0


def test_a_broken_stream_looks_at_the_leaders_znode() -> None:
    assert led().hear(StreamBroken(1, "reset")) == [CloseStream(1), LookUpLeader()]


def test_a_new_leader_is_gone_to_at_once() -> None:
    played = led()
    new = Leader("b", "127.0.0.13", 5001, 4)
    owed = played.turn(LeaderChanged(new))
    assert kinds(owed) == [CloseStream, OpenStream, SendReport]
    assert isinstance(owed[1], OpenStream)
    assert owed[1].leader == new


def test_a_new_leader_cuts_a_back_off_short() -> None:
    played = led()
    for number in range(1, 6):
        played.turn(StreamBroken(number, "reset"))
        played.turns(POLICY.backoff_most_ms)
    played.turn(StreamBroken(6, "reset"))
    assert [type(each) for each in played.turn(LeaderChanged(None))] == []
    assert OpenStream in kinds(played.turn(LeaderChanged(LEADER)))


def test_a_leader_without_its_znode_keeps_its_stream() -> None:
    played = led()
    assert played.turn(LeaderMoved(), LeaderChanged(None)) == [LookUpLeader()]
    assert isinstance(played.state.link, Stream)
    assert played.turn(AssignmentReceived(1, assign())) == [Assign((), {}), SendReport(1, 1, (), False)]


def test_a_leader_that_cannot_be_read_is_read_again_even_while_its_stream_stands() -> None:
    played = led()
    assert LookUpLeader() not in played.turn(LeaderUnknown("timeout"))
    assert played.turns(POLICY.look_up_retry_ms + 200).count(LookUpLeader()) == 1
    assert LookUpLeader() not in played.turns(3_000), "asked once, the answer is on its way"
    played.turn(LeaderUnknown("timeout"), LeaderChanged(LEADER))
    assert LookUpLeader() not in played.turns(3_000)


def test_a_connection_that_does_not_come_about_is_given_up() -> None:
    played = registered()
    played.turn(LeaderChanged(LEADER))
    owed = played.turns(POLICY.connect_timeout_ms + 300)
    assert CloseStream(1) in owed
    assert [each.stream for each in owed if isinstance(each, OpenStream)] == [2]


def test_news_of_a_stream_that_was_left_changes_nothing() -> None:
    played = led()
    played.turn(LeaderChanged(Leader("b", "127.0.0.13", 5001, 4)))
    before = played.state
    assert played.hear(StreamBroken(1, "late"), StreamConnected(1)) == []
    assert played.state == before


# ---- reports ----


def test_a_change_of_phase_is_told_at_once_and_only_once() -> None:
    played = led()
    played.statuses = {REPLICA: status(phase=Phase.RESTORING)}
    assert kinds(played.turn(ReplicasChanged())) == [SendReport]
    assert played.turn(ReplicasChanged()) == []
    played.statuses = {REPLICA: status(phase=Phase.TAILING)}
    assert played.turn(ReplicasChanged()) == [SendReport(1, 0, (status(),), False)]


@pytest.mark.parametrize(
    "after",
    [
        status(lag_ms=2_000),
        status(lag_ms=None),
        status(lag_ms=5, first_commit_ms=17),
        status(lag_ms=5, epoch=2),
        status(lag_ms=5, role=Role.ACTIVE),
        status(lag_ms=5, since_ms=99),
        status(lag_ms=5, detail="fenced"),
        status(lag_ms=5, is_prepared=True),
        status(lag_ms=5, failures=InputFailures(3, 1)),
    ],
)
def test_what_must_be_told_at_once(after: ReplicaStatus) -> None:
    played = led()
    played.turn(AssignmentReceived(1, assign(jobs=(JOB,))))
    played.statuses = {REPLICA: status(lag_ms=5)}
    assert kinds(played.turn()) == [SendReport]
    played.statuses = {REPLICA: after}
    assert kinds(played.turn()) == [SendReport]


def test_offsets_wait_for_the_regular_report() -> None:
    played = led()
    played.turn(AssignmentReceived(1, assign(jobs=(JOB,))))
    played.statuses = {REPLICA: status(lag_ms=5, applied=1)}
    played.turn()
    played.statuses = {REPLICA: status(lag_ms=1_999, applied=2, end=3)}
    assert played.turn() == []
    owed = played.turns(POLICY.report_interval_ms)
    assert owed == [SendReport(1, 1, (status(lag_ms=1_999, applied=2, end=3),), False)]


def test_a_message_has_only_a_few_tracebacks_those_of_failed_replicas_first() -> None:
    played = led()
    many = {ReplicaId(TaskId("job", "main", each), 0): each for each in range(9)}
    played.statuses = {
        replica: status(
            replica=replica, phase=Phase.FAILED if number > 6 else Phase.ACTIVE, traceback=f"of {number}"
        )
        for replica, number in many.items()
    }
    (report,) = (each for each in played.turn() if isinstance(each, SendReport))
    told = {many[each.replica]: each.traceback for each in report.replicas if each.traceback}
    assert told == {7: "of 7", 8: "of 8", 0: "of 0", 1: "of 1"}
    introduction = hello(played.state, 7)
    assert introduction.replicas == report.replicas


def test_a_pipeline_that_becomes_warm_is_told_at_once() -> None:
    played = led()
    played.is_warm = True
    assert played.turn() == [SendReport(1, 0, (), True)]


def test_revisions_are_introduced_and_each_change_of_them_is_told_at_once() -> None:
    played = registered()
    played.revisions = {"flights": 3}
    owed = played.turn(LeaderChanged(LEADER))
    opened = next(each for each in owed if isinstance(each, OpenStream))
    assert opened.hello.revisions == {"flights": 3}
    played.turn(StreamConnected(1))
    played.revisions = {"flights": 3, "delays": 1}
    assert played.turn() == [SendReport(1, 0, (), False, {"flights": 3, "delays": 1})]
    assert played.turn() == []


def test_a_quiet_container_still_reports_regularly() -> None:
    assert len(led().turns(10 * POLICY.report_interval_ms)) == 10


# ---- the end ----


def test_a_container_without_a_leader_closes_and_ends_as_an_orphan() -> None:
    played = led()
    played.turn(StreamBroken(1, "reset"), LeaderChanged(None))
    owed = played.turns(POLICY.orphan_timeout_ms - 200)
    assert CloseReplicas not in kinds(owed)
    assert CloseReplicas in kinds(played.turns(400))
    owed = played.turn(ReplicasClosed(in_time=True))
    assert len(owed) == 1
    assert isinstance(owed[0], Quit)
    assert owed[0].code == exits.ORPHANED


def test_a_stopped_leader_on_an_open_socket_does_not_keep_orphans() -> None:
    played = led()
    played.turn(LeaderChanged(None))
    assert CloseReplicas in kinds(played.turns(POLICY.orphan_timeout_ms + 200))


def test_zookeeper_away_makes_no_orphan_while_the_stream_lives() -> None:
    played = led()
    played.turn(SessionSuspended())
    assert CloseReplicas not in kinds(played.turns(3 * POLICY.orphan_timeout_ms))


def test_a_leader_found_in_time_ends_the_wait() -> None:
    played = led()
    played.turn(StreamBroken(1, "reset"))
    played.turns(POLICY.orphan_timeout_ms - 1_000)
    assert isinstance(played.state.link, Stream)
    played.turn(StreamConnected(played.state.link.number))
    assert CloseReplicas not in kinds(played.turns(POLICY.orphan_timeout_ms))


def test_a_process_that_stood_still_hears_its_news_before_it_calls_itself_an_orphan() -> None:
    played = led()
    played.turn(StreamBroken(1, "reset"), LeaderChanged(None))
    played.turns(POLICY.orphan_timeout_ms // 2)
    owed = played.turn(LeaderChanged(LEADER), after_ms=60_000)
    assert CloseReplicas not in kinds(owed)
    assert OpenStream in kinds(owed)


def test_a_stream_broken_while_the_process_stood_still_is_opened_again() -> None:
    played = led()
    owed = played.turn(StreamBroken(1, "reset"), after_ms=60_000)
    assert CloseReplicas not in kinds(owed)
    assert OpenStream in kinds(played.turns(200))


def test_told_to_exit_it_closes_reports_a_last_time_and_ends() -> None:
    played = led()
    played.statuses = {REPLICA: status()}
    played.turn()
    assert played.turn(ExitReceived(1, Exit(3, "released"))) == [CloseReplicas(POLICY.close_deadline_ms)]
    assert played.turns(1_000) == []
    played.statuses = {REPLICA: status(phase=Phase.CLOSED)}
    owed = played.turn(ReplicasClosed(in_time=True))
    assert owed == [
        SendReport(1, 0, (status(phase=Phase.CLOSED),), False),
        Quit(exits.ORDERLY, "told to exit: released"),
    ]


def test_told_to_exit_for_good_it_removes_local_state_once_all_is_closed() -> None:
    played = led()
    played.turn(ExitReceived(1, Exit(3, "deleted", purge=True)))
    quit_ = Quit(exits.ORDERLY, "told to exit: deleted", purge=True)
    assert played.turn(ReplicasClosed(in_time=True)) == [quit_]


def test_state_that_was_not_closed_is_not_removed() -> None:
    played = led()
    played.turn(ExitReceived(1, Exit(3, "deleted", purge=True)))
    assert played.turn(ReplicasClosed(in_time=False)) == [Quit(exits.UNCLEAN, "told to exit: deleted")]


def test_a_second_reason_to_end_changes_nothing() -> None:
    played = led()
    played.turn(ExitReceived(1, Exit(3, "released")))
    assert played.turn(Terminated("SIGTERM"), ExitReceived(1, Exit(3, "again"))) == []
    assert played.turn(ReplicasClosed(in_time=True)) == [Quit(exits.ORDERLY, "told to exit: released")]


def test_a_kernel_that_does_not_close_does_not_keep_the_process() -> None:
    played = led()
    played.turn(Terminated("SIGTERM"))
    owed = played.turns(POLICY.close_deadline_ms + POLICY.close_grace_ms + 200)
    assert kinds(owed)[-1] is Quit
    assert played.state.has_quit


def test_a_kernel_past_its_deadline_ends_the_process_uncleanly() -> None:
    played = led()
    played.turn(Terminated("SIGTERM"))
    owed = played.turn(ReplicasClosed(in_time=False))
    assert owed == [Quit(exits.UNCLEAN, "SIGTERM received")]


@pytest.mark.parametrize("events", [(), (Terminated("SIGTERM"),)])
def test_a_broken_kernel_ends_the_process_at_once(events: tuple[Event, ...]) -> None:
    played = led()
    played.turn(*events)
    played.broken = "the JVM is gone"
    assert played.turn() == [Quit(exits.BROKEN, "the JVM is gone")]


def test_nothing_comes_after_the_end() -> None:
    played = led()
    played.broken = "the JVM is gone"
    played.turn()
    assert played.turn(AssignmentReceived(1, assign()), Terminated("SIGTERM")) == []
    assert isinstance(played.state.link, Stream | NoStream)
