"""The election: one leads, a dead one is seized from, a lease that ran out forbids acting, and one that left is out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from appmaster.driver import Driver
from appmaster.leadership.election import Election
from appmaster.leadership.lease import Lease
from appmaster.leadership.suspicion import CALM_MS, PROCESS_LOST_MS, Beat, PortAnswer
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import JobSpec
from appmaster.planning.state.view import ClusterView
from standby.errors import Fenced, Transient
from standby.shared.records import ControllerRecord
from standby.threads.inbox import Inbox
from tests.fakes.clock import held
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS, soon

TIMEOUT_MS = 1_000


class Clock:
    """Milliseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


class Ensemble:
    """ZooKeeper as an election sees it: one record, one epoch, watches that fire once."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.candidates: list[Candidate] = []
        #: A transaction is made as a whole; a watch that it fires may ask on the same thread.
        self.lock = threading.RLock()
        self.record: ControllerRecord | None = None
        self.epoch = 0
        self.is_away = False
        self.watches: list[Callable[[], None]] = []
        self.confirmed = threading.Event()
        self.reads = 0
        self.beat: Beat | None = None
        #: What a server that lags behind answers instead; its transactions are of the present.
        self.stale_beat: Beat | None = None
        #: Somebody has asked in vain.
        self.refused = threading.Event()
        #: Answers to the next transactions that get lost, after they were carried out.
        self.lost_answers = 0
        #: Called before each attempt to lead.
        self.seizing: Callable[[], None] = lambda: None
        #: Called before each confirmation.
        self.confirming: Callable[[], None] = lambda: None

    def stand(
        self,
        name: str = "b",
        ask: Callable[[str, int], PortAnswer] = lambda host, port: PortAnswer.ACCEPTED,
        may_lead: Callable[[], Sequence[str]] = tuple,
        pace: Callable[[float], float] | None = None,
    ) -> Candidate:
        """Return a candidate, which leaves when the test is over."""
        me = ControllerRecord(name, "h1", 7000, 0)
        made = Candidate(Client(self), me, may_lead, self.clock, TIMEOUT_MS, ask, pace or held().pace)
        self.candidates.append(made)
        return made

    def led(self) -> Candidate:
        """Return a candidate that leads."""
        made = self.stand("a")
        made.enter()
        return made

    def leave_beat(self, epoch: int) -> None:
        self.beat = Beat(epoch, 0 if self.beat is None else self.beat.number + 1)

    def change(self, record: ControllerRecord | None) -> None:
        self.record, watches = record, self.watches
        self.watches = []
        for each in watches:
            each()


class Client:
    """One session's view of the ensemble."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.epoch = 0

    def _answer(self) -> None:
        if self.ensemble.is_away:
            self.ensemble.refused.set()
            raise Transient("no answer")

    def controller(self, watch: Callable[[], None] | None = None) -> ControllerRecord | None:
        self._answer()
        with self.ensemble.lock:
            self.ensemble.reads += 1
            if watch is not None:
                self.ensemble.watches.append(watch)
            return self.ensemble.record

    def lead(
        self, record: ControllerRecord, depose: ControllerRecord | None = None, last: Beat | None = None
    ) -> int | None:
        self._answer()
        self.ensemble.seizing()
        with self.ensemble.lock:
            if self.ensemble.record != depose or (last is not None and self.ensemble.beat != last):
                return None
            self.ensemble.epoch += 1
            self.epoch = self.ensemble.epoch
            self.ensemble.change(ControllerRecord(record.candidate, record.host, record.port, self.epoch))
            self.ensemble.leave_beat(self.epoch)
        if self.ensemble.lost_answers:
            self.ensemble.lost_answers -= 1
            self.epoch = 0
            raise Transient("the connection was lost before the answer came")
        return self.epoch

    def confirm_lead(self) -> None:
        self._answer()
        self.ensemble.confirming()
        with self.ensemble.lock:
            if self.epoch != self.ensemble.epoch:
                raise Fenced("another leads")
            self.ensemble.leave_beat(self.epoch)
        self.ensemble.confirmed.set()

    def beat(self) -> Beat | None:
        self._answer()
        return self.ensemble.stale_beat or self.ensemble.beat

    def resign_lead(self) -> None:
        self._answer()
        with self.ensemble.lock:
            if self.epoch == self.ensemble.epoch:
                self.ensemble.change(None)


class Candidate(Election):
    """A candidate, which may wait in the queue on a thread of its own."""

    def queue(self) -> Candidate:
        """Enter the queue on a thread, and return at once."""
        self.won: list[int] = []
        self._thread = threading.Thread(target=self._enter, daemon=True)
        self._thread.start()
        return self

    def _enter(self) -> None:
        try:
            self.won.append(self.enter())
        except Fenced:
            self.won.append(0)

    def outcome(self) -> list[int]:
        """Return the epoch that it has won, 0 if it has left before; waits until it waits no more."""
        self._thread.join(PATIENCE_SECONDS)
        return self.won


@pytest.fixture
def ensemble() -> Iterator[Ensemble]:
    made = Ensemble()
    yield made
    for each in made.candidates:
        each.leave("the test is over")


@pytest.fixture
def clock(ensemble: Ensemble) -> Clock:
    return ensemble.clock


def leads(candidate: Election) -> bool:
    """Return whether it leads now; asked by a function, for it changes between two looks."""
    return candidate.is_leader


def test_first_one_leads_and_says_so_until_it_gives_up_or_leaves(ensemble: Ensemble) -> None:
    candidate = ensemble.stand("a")
    assert not leads(candidate)
    assert candidate.enter() == 1
    assert leads(candidate)
    leader = candidate.leader()
    assert leader is not None
    assert (leader.candidate, leader.host, leader.port, leader.epoch) == ("a", "h1", 7000, 1)
    candidate.give_up()
    assert ensemble.record is None
    assert not leads(candidate), "another candidate may lead before the lease is over"
    leaves = ensemble.led()
    leaves.leave("its session has expired")
    assert leaves.lease.is_valid
    assert not leads(leaves), "however long its lease lasts"


def test_dead_leader_s_record_is_seized_and_a_live_one_s_is_not(ensemble: Ensemble) -> None:
    dead: set[int] = set()
    looked = threading.Event()

    def ask(host: str, port: int) -> PortAnswer:
        looked.set()
        return PortAnswer.REFUSED if port in dead else PortAnswer.ACCEPTED

    first, second = ensemble.led(), ensemble.stand(ask=ask).queue()
    assert looked.wait(PATIENCE_SECONDS)
    assert second.won == []
    dead.add(7000)
    assert second.outcome() == [2]
    assert (first.deposed, second.deposed) == (None, "a")
    assert ensemble.epoch == 2


def test_silent_host_of_a_leader_is_deposed_soon_and_after_its_lease(
    ensemble: Ensemble, clock: Clock
) -> None:
    first = ensemble.led()
    begun = clock.now_ms
    lost: list[int] = []
    acted: list[bool] = []
    ensemble.seizing = lambda: acted.append(first.lease.is_valid)

    def ask(host: str, port: int) -> PortAnswer:
        clock.now_ms += 100
        if clock.now_ms - begun < CALM_MS:
            ensemble.leave_beat(1)
            return PortAnswer.ACCEPTED
        if not lost:
            lost.append(clock.now_ms)
            first.leave("its host is gone")
        return PortAnswer.NONE

    assert ensemble.stand(ask=ask).queue().outcome() == [2]
    assert acted == [False], "its lease is over"
    assert TIMEOUT_MS <= clock.now_ms - lost[0] < 2 * TIMEOUT_MS


def test_leader_that_only_this_candidate_cannot_reach_leads_on(ensemble: Ensemble, clock: Clock) -> None:
    ensemble.led()
    begun, over, seized = clock.now_ms, threading.Event(), threading.Event()

    def seize() -> None:
        seized.set()
        over.set()

    def ask(host: str, port: int) -> PortAnswer:
        ensemble.leave_beat(1)
        clock.now_ms += 100
        if clock.now_ms - begun > 2 * PROCESS_LOST_MS:
            over.set()
        return PortAnswer.NONE

    ensemble.seizing = seize
    ensemble.stand(ask=ask).queue()
    assert over.wait(PATIENCE_SECONDS)
    assert not seized.is_set()


def test_server_that_lags_behind_deposes_no_leader(ensemble: Ensemble, clock: Clock) -> None:
    first = ensemble.led()
    ensemble.stale_beat = ensemble.beat
    # The next confirmation that ends may have left its beat before.
    soon(lambda: ensemble.beat != ensemble.stale_beat, "a beat that the lagging server does not have yet")
    first.leave("the rest is about what is read")
    tried, looked = threading.Event(), threading.Event()
    ensemble.seizing = tried.set

    def ask(host: str, port: int) -> PortAnswer:
        looked.set()
        clock.now_ms += 500
        return PortAnswer.ACCEPTED

    second = ensemble.stand(ask=ask).queue()
    assert tried.wait(PATIENCE_SECONDS)
    looked.clear()
    assert looked.wait(PATIENCE_SECONDS)
    assert second.won == [], "the transaction found another beat"


def test_election_of_unknown_outcome_is_won_again_and_who_was_deposed_is_known(ensemble: Ensemble) -> None:
    ensemble.led()
    ensemble.lost_answers = 1
    second = ensemble.stand(ask=lambda host, port: PortAnswer.REFUSED)
    assert second.enter() == 3, "its own record is no obstacle"
    assert leads(second)
    assert second.deposed == "a"


def test_two_that_seize_at_once_do_not_both_lead(ensemble: Ensemble) -> None:
    first = ensemble.led()
    both = threading.Barrier(2)

    def ask(host: str, port: int) -> PortAnswer:
        if ensemble.epoch > 1:
            return PortAnswer.ACCEPTED
        both.wait(PATIENCE_SECONDS)
        return PortAnswer.REFUSED

    rivals = [ensemble.stand(each, ask=ask).queue() for each in ("b", "c")]
    soon(lambda: any(each.won for each in rivals), "one of them leads")
    assert ensemble.epoch == 2
    assert sum(each.is_leader for each in rivals) == 1
    for each in (first, *rivals):
        each.leave("over")
    assert sorted(each.outcome() for each in rivals) == [[0], [2]]


def test_follower_reads_the_record_when_it_changes_and_hardly_else(ensemble: Ensemble) -> None:
    asked = 0
    many = threading.Event()

    def ask(host: str, port: int) -> PortAnswer:
        nonlocal asked
        asked += 1
        if asked == 4:
            many.set()
        return PortAnswer.ACCEPTED

    first, second = ensemble.led(), ensemble.stand(ask=ask)
    ensemble.reads = 0
    second.queue()
    assert many.wait(PATIENCE_SECONDS)
    assert ensemble.reads == 1, "its port is asked again and again, ZooKeeper is not"
    first.leave("over")
    assert not first.is_leader
    first.give_up()
    assert second.outcome() == [2]
    assert (second.is_leader, second.deposed) == (True, None)


def test_confirmation_that_came_too_late_is_asked_for_again_at_once(ensemble: Ensemble, clock: Clock) -> None:
    asked: list[int] = []
    led: list[bool] = []
    answered = threading.Event()
    candidate = ensemble.stand("a", pace=lambda _: NEVER_SECONDS if asked else 0.0)

    def confirming() -> None:
        asked.append(clock.now_ms)
        if len(asked) == 1:
            clock.now_ms += 10_000  # the servers were away
        elif not answered.is_set():
            led.append(candidate.lease.is_valid)
            answered.set()

    ensemble.confirming = confirming
    candidate.enter()
    assert answered.wait(PATIENCE_SECONDS)
    assert asked[1] - asked[0] == 10_000
    assert led == [False], "a lease counts from when it was asked for"


def test_question_waits_for_the_renewal_of_a_lease_that_is_over(ensemble: Ensemble, clock: Clock) -> None:
    asked, held_up = threading.Event(), threading.Event()

    def late() -> None:
        clock.now_ms += 2 * TIMEOUT_MS

    def confirming() -> None:
        held_up.set()
        assert asked.wait(PATIENCE_SECONDS)

    def pace(_: float) -> float:
        if held_up.is_set():
            asked.set()
        return PATIENCE_SECONDS

    ensemble.seizing, ensemble.confirming = late, confirming
    candidate = ensemble.stand("a", pace=pace)
    assert not candidate.awaits_lease(1.0), "it does not lead"
    candidate.enter()
    assert held_up.wait(PATIENCE_SECONDS)
    assert not leads(candidate), "the answer came late"
    assert candidate.awaits_lease(1.0)
    candidate.leave("over")
    assert not candidate.awaits_lease(1.0)


def test_who_may_not_lead_stays_out_until_it_may(ensemble: Ensemble) -> None:
    lacks: list[str] = ["code of job"]
    asked = threading.Event()

    def may_lead() -> Sequence[str]:
        asked.set()
        return tuple(lacks)

    candidate = ensemble.stand("a", may_lead=may_lead).queue()
    assert asked.wait(PATIENCE_SECONDS)
    assert ensemble.record is None
    lacks.clear()
    assert candidate.outcome() == [1]


def test_who_leaves_the_queue_leads_no_more(ensemble: Ensemble) -> None:
    first, second = ensemble.led(), ensemble.stand().queue()
    second.leave("its session has expired")
    assert second.outcome() == [0]
    first.leave("over")
    first.give_up()
    assert ensemble.record is None, "no candidate is left in the queue"


def test_servers_that_are_away_are_waited_for(ensemble: Ensemble) -> None:
    ensemble.is_away = True
    candidate = ensemble.stand("a").queue()
    assert ensemble.refused.wait(PATIENCE_SECONDS)
    ensemble.is_away = False
    assert candidate.outcome() == [1]


def test_lease_runs_out_unless_it_is_renewed_from_when_it_was_asked(clock: Clock) -> None:
    lease = Lease(clock, 1_000)
    found = [lease.is_valid]
    lease.renew(clock.now_ms)
    for passes in (999, 1):
        clock.now_ms += passes
        found.append(lease.is_valid)
    assert found == [False, True, False]
    lease.renew(clock.now_ms - 600)
    # An answer that comes late shortens nothing.
    lease.renew(clock.now_ms - 900)
    found = []
    for passes in (399, 1):
        clock.now_ms += passes
        found.append(lease.is_valid)
    assert found == [True, False]


def test_leader_that_was_deposed_learns_it_when_it_asks(ensemble: Ensemble) -> None:
    candidate = ensemble.led()
    assert ensemble.confirmed.wait(PATIENCE_SECONDS)
    ensemble.epoch += 1
    soon(lambda: not candidate.is_leader, "it asks")
    assert candidate.why == "another leads"


class Leased:
    """A driver that acts while its lease is valid; an act takes so long."""

    def __init__(self, clock: Clock, act_ms: int = 0) -> None:
        self.clock, self.act_ms = clock, act_ms
        self.lease = Lease(clock, 1_000)
        self.done: list[todo.Action] = []
        inbox: Inbox[Event] = Inbox()
        self.driver = Driver(
            inbox, self._carry_out, lambda entry, view: None, clock, may_act=lambda: self.lease.is_valid
        )

    def _carry_out(self, action: todo.Action, view: ClusterView) -> None:
        self.done.append(action)
        self.clock.now_ms += self.act_ms

    def load(self) -> None:
        """Turn with a job that is new."""
        spec = JobSpec("main", 1, 1, 0)
        loaded = happened.JobLoaded("job", "run", spec, None, PlannerPolicy())
        self.driver.turn([happened.Elected(1, self.clock.now_ms), loaded])


def test_leader_without_a_valid_lease_folds_in_what_happens_and_does_nothing(clock: Clock) -> None:
    leader = Leased(clock)
    leader.load()
    assert not leader.done
    assert "job" in leader.driver.view.jobs
    leader.lease.renew(clock.now_ms)
    leader.driver.turn([])
    assert [type(each) for each in leader.done][:1] == [todo.WriteModel]
    leader.done.clear()
    model = next(iter(leader.driver.view.jobs.values())).model
    clock.now_ms += 2_000
    leader.driver.turn([happened.ModelRefused("job", "by a test")])
    assert not leader.done
    assert leader.driver.view.jobs["job"].model == model


def test_leader_that_is_stopped_in_a_turn_goes_on_once_it_has_a_lease_again(clock: Clock) -> None:
    leader = Leased(clock, act_ms=2_000)
    leader.lease.renew(clock.now_ms)
    leader.load()
    assert len(leader.done) == 1, "one act, and the lease is over"
    leader.lease.renew(clock.now_ms)
    leader.driver.turn([])
    first, second = leader.done
    assert first != second
