"""A take-over is begun again while ZooKeeper does not answer, and nothing is decided before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from appmaster.driver import Driver
from appmaster.effects import LeaderEffects, Replies
from appmaster.eventlog.entries import EntryKind, LogEntry
from appmaster.leadership.candidate import Candidate
from appmaster.leadership.election import Election
from appmaster.leadership.ports import RegisteredContainer
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.view import CellState
from appmaster.records import JobRecord, Loaded
from standby.errors import BadConfiguration, Fenced, Transient
from standby.shared.records import ControllerRecord
from standby.shared.wire import JobDefinition
from standby.threads.inbox import Inbox
from tests.fakes.clock import held
from tests.patience import PATIENCE_SECONDS
from tests.unit.appmaster.changes.test_operations import CONFIG


class Servers:
    """ZooKeeper with the record of a leader, and no job; it does not answer some of the time. It has every role."""

    epoch = 0

    def __init__(self) -> None:
        self.election = self.registry = self.changes = self.jobs = self
        self.refusals = 0
        self.refused: Callable[[], None] = lambda: None
        self.listed = 0
        self.when_listed: Callable[[], None] = lambda: None
        self.raised: list[int] = []
        self.is_deposed = False
        self.records: dict[str, JobRecord | Exception] = {}
        self.hosts: dict[str, str] | BadConfiguration = {}

    def _answer(self) -> None:
        if self.refusals:
            self.refusals -= 1
            self.refused()
            raise Transient("no answer")

    def controller(self, watch: Callable[[], None] | None = None) -> ControllerRecord | None:
        return None

    def lead(
        self, record: ControllerRecord, depose: ControllerRecord | None = None, last: object = None
    ) -> int | None:
        return 5

    def confirm_lead(self) -> None:
        pass

    def raise_epoch(self, seen: int) -> None:
        if self.is_deposed:
            raise Fenced("another leads")
        self.raised.append(seen)

    def registrations(self) -> tuple[RegisteredContainer, ...]:
        self._answer()
        return ()

    def container_names(self, watch: Callable[[], None] | None = None) -> frozenset[str]:
        return frozenset()

    def drained(self, watch: Callable[[], None] | None = None) -> Mapping[str, str]:
        self._answer()
        if isinstance(self.hosts, BadConfiguration):
            raise self.hosts
        return self.hosts

    def names(self, watch: Callable[[], None] | None = None) -> tuple[str, ...]:
        self._answer()
        self.listed += 1
        self.when_listed()
        return tuple(self.records)

    def read(self, name: str) -> JobRecord:
        record = self.records[name]
        if isinstance(record, Exception):
            raise record
        return record

    def load(
        self, name: str, watch: Callable[[], None] | None = None, *, has_tasks: bool = True
    ) -> Loaded | None:
        return Loaded(self.read(name), None, None, ())


class OneCell:
    """The cells of the leader: one that answers."""

    hosts = ("h1",)

    def __init__(self) -> None:
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def take_over(self) -> list[Event]:
        return [happened.CellFound(1, "a1", self.hosts, 7)]

    def start(self) -> None:
        pass


def as_any(each: object) -> Any:
    """Return a stand-in for something that is real elsewhere."""
    return each


class Lab:
    """A candidate that leads one turn."""

    def __init__(self) -> None:
        self.servers = as_any(Servers())
        self.cells = as_any(OneCell())
        self.clock = held()
        self.entries: list[LogEntry] = []
        inbox: Inbox[Event] = Inbox()
        me = ControllerRecord("me", "h1", 1, 0)
        self.election = Election(
            self.servers, me, tuple, self.clock.monotonic_ms, 10_000, pace=self.clock.pace
        )
        self.driver = Driver(
            inbox,
            lambda action, view: None,
            lambda entry, view: self.entries.append(entry),
            self.clock.monotonic_ms,
            turned=lambda _: self.election.leave("its turn is over"),
        )
        self.effects = LeaderEffects(
            inbox.post,
            self.clock,
            self.servers,
            self.cells,
            as_any(None),  # nothing is announced
            as_any(None),  # nothing is fenced
            resign=self.election.leave,
            reload=lambda: None,
            replies=Replies(inbox.post, self.clock),
        )
        self.candidate = Candidate(
            self.servers,
            self.cells,
            self.effects,
            self.driver,
            inbox,
            self.election,
            self.clock,
            as_any(None),
        )

    def lead(self, ready: Callable[[], None] = lambda: None) -> None:
        """Lead one turn."""
        with pytest.raises(Fenced, match="its turn is over"):
            self.candidate.lead(self.election.enter(), ready)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_take_over_begins_again_until_everything_is_read_and_then_queued_changes_come(lab: Lab) -> None:
    known: list[int] = []
    lab.servers.refusals = 3
    lab.lead(lambda: known.extend(lab.driver.view.cells))
    assert known == [1], "once, after the first turn"
    assert lab.cells.begun == 4
    assert lab.driver.view.epoch == 5
    assert lab.driver.view.cells[1].state is CellState.UP


def test_drained_hosts_are_known_from_the_first_turn_and_only_later_ones_are_logged(lab: Lab) -> None:
    lab.servers.hosts = {"h1": "ann"}
    lab.lead()
    assert lab.driver.view.drained == {"h1": "ann"}
    lab.servers.hosts = {"h1": "ann", "h2": "bob"}
    lab.candidate.reload()
    assert lab.effects.writer.flush(PATIENCE_SECONDS)
    lab.driver.turn(lab.candidate.inbox.drain(0))
    assert [each.host for each in lab.entries if each.kind is EntryKind.HOST_DRAINED] == ["h2"]


def test_drained_hosts_that_cannot_be_read_are_not_needed_to_lead(lab: Lab) -> None:
    lab.servers.hosts = BadConfiguration("of a later version")
    lab.lead()
    assert lab.driver.view.cells[1].state is CellState.UP
    assert lab.driver.view.drained == {}


@pytest.mark.parametrize("error", [NoNodeError("planted"), KeyError("planted"), BadConfiguration("planted")])
def test_job_that_cannot_be_read_keeps_nobody_from_leading_the_others_and_from_their_end(
    lab: Lab, error: Exception
) -> None:
    good = JobRecord(JobDefinition("j1", "run1", {**CONFIG, "job.name": "j1"}, "changelog", "group", 4))
    lab.servers.records = {"j1": good, "odd": error}
    lab.lead()
    assert set(lab.driver.view.jobs) == {"j1"}
    assert "planted" in lab.candidate.loading.unreadable["odd"]
    assert not lab.candidate.has_more(lab.driver.view)
    lab.servers.records["new"] = JobRecord(JobDefinition("new", "run1", {}, "changelog", "group", 1))
    assert lab.candidate.has_more(lab.driver.view)


def test_take_over_outlasts_a_lease_and_is_given_up_when_another_leads(lab: Lab) -> None:
    epoch = lab.election.enter()
    lab.servers.refusals = 1_000_000
    lab.clock.advance(10)
    lab.servers.refused = lambda: lab.election.leave("another leads") if lab.cells.begun == 3 else None
    with pytest.raises(Fenced, match="another leads"):
        lab.candidate.lead(epoch)
    assert lab.cells.begun == 3
    assert lab.driver.view.epoch == 0, "nothing was decided"


def test_jobs_that_could_not_be_read_are_read_again_after_a_while(lab: Lab) -> None:
    lab.lead()

    def is_read() -> bool:
        assert lab.effects.writer.flush(PATIENCE_SECONDS)
        return bool(lab.candidate.inbox.drain(0))

    assert is_read()
    lab.servers.refusals = 1
    lab.candidate.reload()
    assert not is_read()
    lab.clock.advance(0.75)
    assert not is_read()
    lab.clock.advance(0.25)
    assert is_read()


def test_a_lost_connection_which_fires_every_watch_delays_a_write_by_one_read(lab: Lab) -> None:
    lab.lead()
    assert lab.effects.writer.flush(PATIENCE_SECONDS)
    begun, goes_on = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        assert goes_on.wait(PATIENCE_SECONDS)

    before, reads_at_write = lab.servers.listed, list[int]()
    lab.effects.writer.put(block)
    assert begun.wait(PATIENCE_SECONDS)
    for _ in range(50):
        lab.candidate.reload()
    lab.effects.writer.put(lambda: reads_at_write.append(lab.servers.listed - before))
    goes_on.set()
    assert lab.effects.writer.flush(PATIENCE_SECONDS)
    assert reads_at_write == [1]
    assert lab.servers.listed - before == 1


def test_a_change_while_the_jobs_are_read_has_them_read_once_more(lab: Lab) -> None:
    lab.lead()
    assert lab.effects.writer.flush(PATIENCE_SECONDS)
    before = lab.servers.listed

    def change() -> None:
        lab.servers.when_listed = lambda: None
        lab.candidate.reload()
        lab.candidate.reload()

    lab.servers.when_listed = change
    lab.candidate.reload()
    for _ in range(2):  # the second read is put during the first flush
        assert lab.effects.writer.flush(PATIENCE_SECONDS)
    assert lab.servers.listed - before == 2


@pytest.mark.parametrize("is_deposed", [False, True])
def test_leader_whose_containers_have_obeyed_a_higher_epoch_makes_way(lab: Lab, is_deposed: bool) -> None:
    lab.election.enter()
    lab.servers.is_deposed = is_deposed
    for _ in range(2):
        lab.candidate.outdated(8)
    lab.effects.writer.close()
    lab.effects.writer.join(PATIENCE_SECONDS)
    assert lab.servers.raised == ([] if is_deposed else [8]), "once, however many containers say so"
    assert lab.election.has_left
    assert "epoch 8" in lab.election.why
