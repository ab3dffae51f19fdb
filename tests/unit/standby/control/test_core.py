"""The control loop's decisions, one rule at a time."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import replace

from standby.control.core import RULES, step
from standby.control.effects import (
    Assign,
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
from standby.control.state import ControlPolicy, ControlState, NoStream, Stream, hello, is_in_sync
from standby.control.turn import due_in_ms
from standby.shared import exits
from standby.shared.model import (
    InputFailures,
    Leftover,
    Phase,
    ReplicaId,
    ReplicaStatus,
    Role,
    TaskId,
    Wanted,
)
from standby.shared.records import ContainerRecord, ControllerRecord
from standby.shared.wire import PROTOCOL, Assignment, Exit, JobDefinition, Report
from tests.fakes import jobs as job_keys

IDENTITY = ContainerRecord("container_1", "anywhere_0", 1, "127.0.0.11", 4001, 4002, 77, PROTOCOL, "1")
POLICY = ControlPolicy(orphan_timeout_ms=10_000)
LEADER = ControllerRecord("a", "127.0.0.12", 5000, 3)
ANOTHER = ControllerRecord("b", "127.0.0.13", 5001, 4)
TASK = TaskId("flights", "main", 0)
REPLICA = ReplicaId(TASK, 0)
JOB = JobDefinition(
    "flights", "r1", {**job_keys.JOB, "job.hotstandby.lag.time.ms": "2000"}, "changelog", "group", 1
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
        self.warnings: list[str] = []

    @property
    def stream(self) -> Stream:
        assert isinstance(self.state.link, Stream)
        return self.state.link

    def hear(self, *events: ControlEvent) -> list[ControlEffect]:
        """Return what ``events`` alone make due, log lines left out."""
        owed: list[ControlEffect] = []
        for event in events:
            self.state, effects = step(self.state, event)
            owed.extend(each for each in effects if not isinstance(each, WriteLog))
            self.warnings += [each.text for each in effects if isinstance(each, WriteLog) and each.is_warning]
        return owed

    def turn(self, *events: ControlEvent, after_ms: int = 10) -> list[ControlEffect]:
        """Return what one turn of the loop with ``events`` makes due."""
        self.now_ms += after_ms
        owed = self.hear(*events)
        turned = InboxDrained(self.now_ms, 0.5, self.statuses, self.is_warm, self.broken, self.revisions)
        return owed + self.hear(turned)

    def turns(self, total_ms: int, each_ms: int = 100) -> list[ControlEffect]:
        """Return what becomes due while nothing happens for so long."""
        return [effect for _ in range(total_ms // each_ms) for effect in self.turn(after_ms=each_ms)]


def registered() -> Played:
    played = Played()
    played.turn(SessionConnected(), LeftoversFound(()), Registered(7))
    return played


def led(leader: ControllerRecord = LEADER) -> Played:
    """Return a container with a standing stream, number 1."""
    played = registered()
    played.turn(LeaderChanged(leader))
    played.turn(StreamConnected(1))
    return played


def assign(epoch: int = 3, incarnation: int = 7, number: int = 1, **fields: typing.Any) -> Assignment:
    return Assignment(epoch, incarnation, number, **{"replicas": (), "jobs": (), **fields})


def kinds(effects: list[ControlEffect]) -> list[type]:
    return [type(each) for each in effects]


def test_every_event_has_its_rule() -> None:
    assert set(RULES) == set(typing.get_args(ControlEvent))


# ---- the session, and the introduction ----


def test_it_registers_once_as_soon_as_there_is_a_session_and_again_a_while_after_a_failure() -> None:
    played = Played()
    assert played.hear(SessionConnected()) == [LookUpLeader(), Register()]
    assert Register() not in played.turns(3_000), "asked once, the answer is on its way"
    assert Register() not in played.turn(RegistrationFailed("not now"))
    assert played.turns(POLICY.register_retry_ms + 200).count(Register()) == 1


def test_a_suspended_session_keeps_registration_and_incarnation() -> None:
    played = led()
    assert played.turn(SessionSuspended()) == []
    played.turn(StreamBroken(1, "reset"))
    assert OpenStream in kinds(played.turns(3_000))
    assert played.turn(SessionConnected()) == [LookUpLeader()]
    assert played.turn(Registered(7)) == [], "the same incarnation keeps its stream"


def test_a_lost_session_registers_anew_and_introduces_the_new_incarnation() -> None:
    played = led()
    assert played.turn(SessionLost()) == [], "the replicas and the stream go on"
    assert played.turn(SessionConnected()) == [LookUpLeader(), Register()]
    close, opened, report = played.turn(Registered(9))
    assert kinds([close, report]) == [CloseStream, SendReport]
    assert isinstance(opened, OpenStream)
    assert (opened.stream, opened.hello.incarnation) == (2, 9)


def test_an_answer_of_a_session_that_is_lost_is_none_to_the_next_registration() -> None:
    """It was on its way meanwhile. Taken for one, it would leave the container unregistered."""
    played = led()
    played.turn(SessionLost(), Registered(7))
    assert played.turn(SessionConnected()) == [LookUpLeader(), Register()]
    # Nor if it comes after the question: the second answer counts.
    played.turn(Registered(7), Registered(9))
    assert played.state.incarnation == 9


def test_a_lost_sessions_incarnation_is_not_introduced_again() -> None:
    played = led()
    played.turn(StreamBroken(1, "reset"), SessionLost())
    assert OpenStream not in kinds(played.turns(3_000) + played.turn(SessionConnected()))
    assert OpenStream in kinds(played.turn(Registered(9)))


def test_the_introduction_waits_for_registration_leader_and_disks() -> None:
    parts: list[ControlEvent] = [Registered(7), LeaderChanged(LEADER), LeftoversFound(())]
    for last in parts:
        played = Played()
        played.turn(SessionConnected())
        assert OpenStream not in kinds(played.turn(*(each for each in parts if each is not last))), last
        assert OpenStream in kinds(played.turn(last)), last


def test_the_introduction_tells_everything_held_and_what_lies_unused() -> None:
    unused = Leftover(TaskId("flights", "main", 5), "r1", 40)
    played = Played()
    played.statuses = {REPLICA: status(applied=12)}
    played.revisions = {"flights": 3}
    played.turn(SessionConnected(), LeftoversFound((Leftover(TASK, "r1", 3), unused)), Registered(7))
    (opened,) = (each for each in played.turn(LeaderChanged(LEADER)) if isinstance(each, OpenStream))
    said = opened.hello
    assert (opened.leader, said.port, said.revisions) == (LEADER, IDENTITY.port, {"flights": 3})
    assert said.replicas == (status(applied=12),)
    assert said.leftovers == (unused,), "what is held is no left-over"


# ---- orders ----


def test_an_assignment_goes_to_the_kernel_each_time_and_its_number_is_reported_once() -> None:
    played = led()
    wanted = (Wanted(REPLICA, Role.ACTIVE, 4),)
    order = AssignmentReceived(1, assign(number=5, replicas=wanted, jobs=(JOB,)))
    obeyed = Assign(wanted, {"flights": JOB})
    assert played.turn(order) == [obeyed, SendReport(1, Report(5, ()))]
    assert played.turn(order) == [obeyed], "a leader sends again what may have been lost"
    assert (played.state.epoch, played.state.refused) == (3, 0)


def test_an_order_that_is_not_for_now_is_refused_and_counted() -> None:
    for why, event in (
        ("an older controller epoch", AssignmentReceived(1, assign(epoch=2))),
        ("a former incarnation", AssignmentReceived(1, assign(incarnation=6))),
        ("an incarnation still to come", AssignmentReceived(1, assign(incarnation=8))),
        ("an older number on the same stream", AssignmentReceived(1, assign(number=4))),
        ("a stream that was left", AssignmentReceived(0, assign(number=9))),
        ("exit, of an older controller epoch", ExitReceived(1, Exit(2, "old"))),
        ("exit, of a stream that was left", ExitReceived(0, Exit(9, "old"))),
    ):
        played = led()
        played.turn(AssignmentReceived(1, assign(epoch=3, number=5)))
        assert played.turn(event) == [], why
        assert (played.state.refused, played.state.epoch) == (1, 3), why
    closing = led()
    assert kinds(closing.turn(Terminated("SIGTERM"))) == [CloseReplicas]
    assert Assign not in kinds(closing.turn(AssignmentReceived(1, assign())))
    assert closing.state.refused == 1


def test_a_number_starts_anew_on_each_stream() -> None:
    played = led()
    played.turn(AssignmentReceived(1, assign(number=5)))
    played.turn(StreamBroken(1, "reset"))
    played.turns(200)
    assert played.stream.number == 2
    owed = played.turn(AssignmentReceived(2, assign(number=1)))
    assert owed == [Assign((), {}), SendReport(2, Report(1, ()))]


# ---- the stream ----


def test_a_word_of_the_leader_ends_the_growth_and_a_new_leader_cuts_it_short() -> None:
    played = led()
    for number in range(1, 6):
        played.turn(StreamBroken(number, "reset"))
        played.turns(POLICY.backoff_most_ms)
    assert played.stream.attempt > 1
    before = played.state
    for word in (
        AssignmentReceived(6, assign()),
        AssignmentReceived(6, assign(epoch=2)),
        ExitReceived(6, Exit(2, "old")),
        LeaderChanged(ANOTHER),
    ):
        played.state = replace(before, epoch=3)
        played.turn(word)
        assert played.stream.attempt == 0, word
    played.state = before
    played.turn(StreamBroken(6, "reset"))
    assert played.turn(LeaderChanged(None)) == []
    assert OpenStream in kinds(played.turn(LeaderChanged(LEADER)))


def test_a_new_leader_is_gone_to_at_once_and_news_of_the_stream_that_was_left_changes_nothing() -> None:
    played = led()
    owed = played.turn(LeaderChanged(ANOTHER))
    assert kinds(owed) == [CloseStream, OpenStream, SendReport]
    assert isinstance(owed[1], OpenStream)
    assert owed[1].leader == ANOTHER
    before = played.state
    assert played.hear(StreamBroken(1, "late"), StreamConnected(1)) == []
    assert played.state == before


def test_a_leader_without_its_znode_keeps_its_stream() -> None:
    played = led()
    assert played.turn(LeaderMoved(), LeaderChanged(None)) == [LookUpLeader()]
    assert played.stream.number == 1
    assert played.turn(AssignmentReceived(1, assign())) == [Assign((), {}), SendReport(1, Report(1, ()))]


def test_a_leader_that_cannot_be_read_is_read_again_even_while_its_stream_stands() -> None:
    played = led()
    assert LookUpLeader() not in played.turn(LeaderUnknown("timeout"))
    assert played.turns(POLICY.look_up_retry_ms + 200).count(LookUpLeader()) == 1
    assert LookUpLeader() not in played.turns(3_000), "asked once, the answer is on its way"
    played.turn(LeaderUnknown("timeout"), LeaderChanged(LEADER))
    assert LookUpLeader() not in played.turns(3_000)


def test_a_deadline_is_kept_to_the_millisecond() -> None:
    cases: tuple[tuple[ControlEvent, int, type], ...] = (
        (RegistrationFailed("not now"), POLICY.register_retry_ms, Register),
        (LeaderUnknown("timeout"), POLICY.look_up_retry_ms, LookUpLeader),
        (Terminated("SIGTERM"), POLICY.close_deadline_ms + POLICY.close_grace_ms, Quit),
    )
    for event, after_ms, owed in cases:
        played = Played() if isinstance(event, RegistrationFailed) else led()
        played.turn(SessionConnected())
        played.turn(event)
        assert owed not in kinds(played.turns(after_ms - 100) + played.turn(after_ms=99)), event
        assert owed in kinds(played.turn(after_ms=1)), event
        assert played.state.has_quit == (owed is Quit)
    connecting = registered()
    connecting.turn(LeaderChanged(LEADER))
    assert CloseStream(1) not in connecting.turns(POLICY.connect_timeout_ms - 100) + connecting.turn(
        after_ms=99
    )
    assert CloseStream(1) in connecting.turn(after_ms=1)
    assert [each.stream for each in connecting.turns(300) if isinstance(each, OpenStream)] == [2]


def test_without_a_session_nothing_is_asked_of_zookeeper() -> None:
    for lost in (SessionSuspended(), SessionLost()):
        played = Played()
        played.turn(SessionConnected())
        played.turn(RegistrationFailed("not now"), LeaderUnknown("timeout"), lost)
        assert {LookUpLeader, Register}.isdisjoint(kinds(played.turns(5_000))), lost


def test_a_pause_of_the_process_moves_the_deadlines_of_its_streams_its_leaving_and_its_end() -> None:
    connecting, closing, leaving = registered(), led(), of_pool()
    connecting.turn(LeaderChanged(LEADER))
    closing.turn(Terminated("SIGTERM"))
    leaving.turn(Terminated("SIGTERM"))
    for played, deadline_ms, owed in (
        (connecting, POLICY.connect_timeout_ms, CloseStream),
        (closing, POLICY.close_deadline_ms + POLICY.close_grace_ms, Quit),
        (leaving, 5_000, CloseReplicas),
    ):
        assert owed not in kinds(played.turn(after_ms=60_000)), owed
        assert owed in kinds(played.turns(deadline_ms + 200)), owed


def test_an_order_shows_that_its_stream_is_connected() -> None:
    for order in (AssignmentReceived(1, assign()), ExitReceived(1, Exit(3, "released"))):
        played = registered()
        played.turn(LeaderChanged(LEADER))
        played.turn(order)
        assert played.state.is_led
        assert CloseStream(1) not in played.turns(POLICY.connect_timeout_ms + 300)


def test_a_broken_stream_is_opened_again_after_a_delay_that_doubles_up_to_a_bound() -> None:
    for jitter, share in ((0.0, 0.5), (1.0, 1.0)):
        played = led()
        assert due_in_ms(played.state, played.now_ms) is None, "a quiet loop turns only when something is due"
        for number in range(1, 12):
            assert played.hear(StreamBroken(number, "reset")) == [CloseStream(number), LookUpLeader()]
            played.now_ms += 10
            played.hear(InboxDrained(played.now_ms, jitter, {}, False, None, {}))
            longest = min(POLICY.backoff_most_ms, POLICY.backoff_least_ms * 2 ** (number - 1))
            due = round(longest * share)
            assert due_in_ms(played.state, played.now_ms) == due
            assert OpenStream not in kinds(played.turn(after_ms=due - 1))
            assert OpenStream in kinds(played.turn(after_ms=1))


# ---- reports ----


def test_a_change_of_phase_is_reported_at_once_and_only_once() -> None:
    played = led()
    played.statuses = {REPLICA: status(phase=Phase.RESTORING)}
    assert kinds(played.turn(ReplicasChanged())) == [SendReport]
    assert played.turn(ReplicasChanged()) == []
    played.statuses = {REPLICA: status(phase=Phase.TAILING)}
    assert played.turn(ReplicasChanged()) == [SendReport(1, Report(0, (status(),)))]


def test_what_others_decide_by_is_reported_at_once_and_offsets_with_the_next_regular_report() -> None:
    def having(before: ReplicaStatus) -> Played:
        played = led()
        played.turn(AssignmentReceived(1, assign(jobs=(JOB,))))
        played.statuses = {REPLICA: before}
        assert kinds(played.turn()) == [SendReport]
        return played

    for after in (
        status(lag_ms=2_000),
        status(lag_ms=None),
        status(lag_ms=5, first_commit_ms=17),
        status(lag_ms=5, epoch=2),
        status(lag_ms=5, role=Role.ACTIVE),
        status(lag_ms=5, since_ms=99),
        status(lag_ms=5, detail="fenced"),
        status(lag_ms=5, is_prepared=True),
        status(lag_ms=5, failures=InputFailures(3, 1)),
        status(lag_ms=5, skipped=1),
    ):
        played = having(status(lag_ms=5))
        played.statuses = {REPLICA: after}
        assert kinds(played.turn()) == [SendReport], after
    played = having(status(lag_ms=5, applied=1))
    moved = status(lag_ms=1_999, applied=2, end=3)
    played.statuses = {REPLICA: moved}
    assert played.turn() == []
    assert played.turns(POLICY.report_interval_ms) == [SendReport(1, Report(1, (moved,)))]


def test_a_message_has_only_a_few_tracebacks_those_of_failed_replicas_first() -> None:
    played = led()
    many = {ReplicaId(TaskId("job", "main", each), 0): each for each in range(9)}
    played.statuses = {
        replica: status(
            replica=replica, phase=Phase.FAILED if number > 6 else Phase.ACTIVE, traceback=f"of {number}"
        )
        for replica, number in many.items()
    }
    (report,) = (each.report for each in played.turn() if isinstance(each, SendReport))
    told = {many[each.replica]: each.traceback for each in report.replicas if each.traceback}
    assert told == {7: "of 7", 8: "of 8", 0: "of 0", 1: "of 1"}
    assert hello(played.state, 7).replicas == report.replicas


def test_a_warm_pipeline_and_a_change_of_revisions_are_reported_at_once() -> None:
    played = led()
    played.is_warm = True
    assert played.turn() == [SendReport(1, Report(0, (), warm=True))]
    for revisions in ({"flights": 3}, {"flights": 3, "delays": 1}):
        played.revisions = revisions
        assert played.turn() == [SendReport(1, Report(0, (), warm=True, revisions=revisions))]
    assert played.turn() == []


def test_a_quiet_container_still_reports_regularly() -> None:
    assert len(led().turns(10 * POLICY.report_interval_ms)) == 10


def test_a_job_that_cannot_be_read_hides_no_other_one_s_bound_of_lag() -> None:
    played = led()
    unreadable = JobDefinition("delays", "r1", {}, "changelog", "group", 1)
    played.turn(AssignmentReceived(1, assign(jobs=(unreadable, JOB))))
    assert played.state.lag_bounds_ms == {"flights": 2_000}


# ---- the end ----


def test_a_container_without_a_leader_closes_and_ends_as_an_orphan() -> None:
    """Also if a stopped leader's socket stays open."""
    for lost in ((StreamBroken(1, "reset"), LeaderChanged(None)), (LeaderChanged(None),)):
        played = led()
        played.turn(*lost)
        assert CloseReplicas not in kinds(played.turns(POLICY.orphan_timeout_ms - 200)), lost
        assert CloseReplicas in kinds(played.turns(400)), lost
        (quit_,) = played.turn(ReplicasClosed(in_time=True))
        assert isinstance(quit_, Quit)
        assert quit_.code == exits.ORPHANED


def test_who_has_a_leader_is_no_orphan() -> None:
    without_zookeeper = led()
    without_zookeeper.turn(SessionSuspended())
    assert CloseReplicas not in kinds(without_zookeeper.turns(3 * POLICY.orphan_timeout_ms))
    found_in_time = led()
    found_in_time.turn(StreamBroken(1, "reset"))
    found_in_time.turns(POLICY.orphan_timeout_ms - 1_000)
    found_in_time.turn(StreamConnected(found_in_time.stream.number))
    assert CloseReplicas not in kinds(found_in_time.turns(POLICY.orphan_timeout_ms))


def test_a_process_that_stood_still_hears_its_news_before_it_calls_itself_an_orphan() -> None:
    played = led()
    played.turn(StreamBroken(1, "reset"), LeaderChanged(None))
    played.turns(POLICY.orphan_timeout_ms // 2)
    owed = played.turn(LeaderChanged(LEADER), after_ms=60_000)
    assert CloseReplicas not in kinds(owed)
    assert OpenStream in kinds(owed)
    broken_meanwhile = led()
    owed = broken_meanwhile.turn(StreamBroken(1, "reset"), after_ms=60_000)
    assert CloseReplicas not in kinds(owed)
    assert OpenStream in kinds(broken_meanwhile.turns(200))


def test_told_to_exit_it_closes_reports_a_last_time_and_ends_for_the_first_reason() -> None:
    played = led()
    played.statuses = {REPLICA: status()}
    played.turn()
    assert played.turn(ExitReceived(1, Exit(3, "released"))) == [CloseReplicas(POLICY.close_deadline_ms)]
    assert played.turns(1_000) == []
    assert played.turn(Terminated("SIGTERM"), ExitReceived(1, Exit(3, "again"))) == []
    closed = status(phase=Phase.CLOSED)
    played.statuses = {REPLICA: closed}
    assert played.turn(ReplicasClosed(in_time=True)) == [
        SendReport(1, Report(0, (closed,))),
        Quit(exits.ORDERLY, "told to exit: released"),
    ]


def test_a_kernel_past_its_deadline_ends_the_process_uncleanly() -> None:
    deleted = ExitReceived(1, Exit(3, "deleted", purge=True))
    for event, in_time, quit_ in (
        (deleted, True, Quit(exits.ORDERLY, "told to exit: deleted", purge=True)),
        (deleted, False, Quit(exits.UNCLEAN, "told to exit: deleted")),
        (Terminated("SIGTERM"), False, Quit(exits.UNCLEAN, "SIGTERM received")),
    ):
        played = led()
        played.turn(event)
        assert played.turn(ReplicasClosed(in_time=in_time)) == [quit_]


def test_a_broken_kernel_ends_the_process_at_once_and_nothing_comes_after_that() -> None:
    for before in ((), (Terminated("SIGTERM"),)):
        played = led()
        played.turn(*before)
        played.broken = "the JVM is gone"
        assert played.turn() == [Quit(exits.BROKEN, "the JVM is gone")], before
        assert played.turn(AssignmentReceived(1, assign()), Terminated("SIGTERM")) == [], before


# ---- in a pool ----


def of_pool() -> Played:
    """Return a led container that waits, when it is asked to end, until its actives are handed over."""
    played = led()
    played.state = replace(played.state, policy=replace(POLICY, leave_timeout_ms=5_000))
    return played


def test_a_process_that_is_asked_to_end_says_so_and_waits_for_the_order_to_exit() -> None:
    played = of_pool()
    played.statuses = {REPLICA: status(role=Role.ACTIVE, phase=Phase.ACTIVE)}
    (told,) = played.turn(Terminated("SIGTERM"))
    assert isinstance(told, SendReport)
    assert told.report.is_leaving
    assert Assign in kinds(played.turn(AssignmentReceived(1, assign()))), "it obeys as before"
    assert CloseReplicas not in kinds(played.turns(4_000))
    assert CloseReplicas in kinds(played.turn(ExitReceived(1, Exit(3, "handed over"))))
    assert played.state.closing is not None
    assert played.state.closing.code == exits.ORDERLY


def test_it_waits_no_longer_than_its_time_out_and_not_at_all_when_it_is_asked_again_or_released() -> None:
    played = of_pool()
    played.turn(Terminated("SIGTERM"))
    assert CloseReplicas not in kinds(played.turns(4_900))
    assert CloseReplicas in kinds(played.turns(300))
    for event in (Terminated("SIGTERM"), Released()):
        played = of_pool()
        played.turn(Terminated("SIGTERM"))
        assert CloseReplicas in kinds(played.turn(event))


def test_the_log_says_once_what_has_changed_and_warns_of_what_is_wrong() -> None:
    played = led()
    active = assign(replicas=(Wanted(REPLICA, Role.ACTIVE, 5),), number=2)
    events: list[tuple[ControlEvent, str, bool]] = [
        (LeaderChanged(LEADER), "", False),
        (LeaderChanged(None), "leader: none", False),
        (LeaderChanged(LEADER), f"leader: {LEADER}", False),
        (AssignmentReceived(1, assign()), "assignment 1 of controller epoch 3: nothing", False),
        (AssignmentReceived(1, assign()), "", False),
        (AssignmentReceived(1, active), f"assignment 2 of controller epoch 3: {REPLICA} active at 5", False),
        (AssignmentReceived(1, assign(4, number=2)), "assignment 2 of controller epoch 4: nothing", False),
        (AssignmentReceived(1, assign(4, 6)), "refused: assignment 1 for incarnation 6, but this is 7", True),
        (SessionLost(), "ZooKeeper: session lost, the registration with it", True),
        (RegistrationFailed("no"), "registration failed: no", True),
    ]
    for event, text, is_warning in events:
        played.state, effects = step(played.state, event)
        logged = [each for each in effects if isinstance(each, WriteLog)]
        assert logged == ([WriteLog(text, is_warning)] if text else []), event


def test_what_does_not_come_in_time_is_a_warning() -> None:
    for played, event, after_ms, warning in (
        (registered(), LeaderMoved(), POLICY.orphan_timeout_ms, "no leader for 10000 ms"),
        (registered(), LeaderChanged(LEADER), POLICY.connect_timeout_ms, "no connection to"),
        (of_pool(), Terminated("SIGTERM"), 5_000, "no order to exit came within 5000 ms"),
    ):
        played.turn(event, after_ms=0)
        played.turns(after_ms)
        assert [warning in each for each in played.warnings] == [True], warning


def test_each_attempt_in_vain_doubles_the_back_off() -> None:
    without = registered()
    unanswered = registered()
    unanswered.turn(LeaderChanged(LEADER))
    unanswered.turns(POLICY.connect_timeout_ms)
    wait_ms = round(POLICY.backoff_least_ms * 0.75)
    for played in (without, unanswered):
        assert played.state.link == NoStream(1, played.now_ms + wait_ms)
        assert due_in_ms(played.state, played.now_ms + wait_ms + 1) == 0
    without.turn(after_ms=wait_ms)
    assert without.state.link == NoStream(2, without.now_ms + round(POLICY.backoff_least_ms * 1.5))


def test_a_container_quits_once() -> None:
    played = led()
    played.turn(Terminated("SIGTERM"))
    assert Quit(exits.ORDERLY, "SIGTERM received") in played.turn(ReplicasClosed(True))
    assert (played.turn(), played.warnings) == ([], [])


def test_a_lag_below_the_bound_is_in_sync_and_an_unknown_one_neither() -> None:
    found = [is_in_sync(status(lag_ms=each), 2_000) for each in (1_999, 2_000, None)]
    assert found == [True, False, None]


def test_nothing_is_known_or_asked_for_at_first() -> None:
    first = ControlState(IDENTITY, POLICY)
    assert (first.is_session_up, first.is_leader_unread, first.is_warm) == (False, False, False)
    assert (first.epoch, first.link) == (0, NoStream(0, None))
