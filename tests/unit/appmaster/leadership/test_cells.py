"""A leader's cells: it connects to each, hears of those that are gone, and finds them again."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from msgspec import structs

from appmaster.leadership.cells import SILENT_SECONDS, Cells
from appmaster.leadership.port_probe import host_of
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.records import CellRecord
from locality.fit import Demand, PoolProcess
from standby.errors import BadConfiguration, BrokenInvariant, Fenced, Transient, Unavailable
from tests.fakes.clock import held
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, soon
from tests.unit.appmaster.conftest import Died

FOUND_AND_LOST = [happened.CellFound, happened.ContainerExpected, happened.CellLost]


@dataclass
class Connection:
    """A connection to one attempt of a cell, of which a test says whether it answers."""

    number: int
    record: CellRecord
    lost: Callable[[str], None]
    answers: bool
    waits: threading.Event | None
    error: Exception | None
    runs: bool
    hosts: tuple[str, ...] = ("h1", "h2")
    full: frozenset[str] = frozenset()
    note: str = ""
    processes: tuple[PoolProcess, ...] = ()
    told: list[object] = field(default_factory=list)
    owed: set[str] = field(default_factory=set)

    def connect(self) -> None:
        if self.waits is not None:
            assert self.waits.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        if not self.answers:
            raise Unavailable(f"{self.record.address} does not answer")

    def expected(self) -> tuple[happened.ContainerExpected, ...]:
        if not self.runs:
            return ()
        attempt = self.record.attempt
        return (happened.ContainerExpected(f"{attempt}_2", f"{attempt}/s_0", 7, self.number, attempt),)

    def start(self) -> None:
        self.told.append("start")

    def stop(self) -> None:
        self.told.append("stop")
        if self.waits is not None:
            self.waits.set()

    def close(self) -> None:
        self.told.append("close")

    def request(self, number: int, host: str | None, demand: Demand) -> None:
        self.told.append(("request", number, host))

    def release(self, granted: str) -> bool:
        self.told.append(("release", granted))
        return granted.startswith(self.record.attempt)

    def finish(self, *, succeeded: bool, diagnostics: str) -> None:
        self.told.append(("finish", succeeded))


class Lab:
    """Two cells, their records and their AMs."""

    def __init__(self) -> None:
        self.present = {
            number: CellRecord(f"application_{number}", attempt=f"a{number}_01", address=f"h{number}:1")
            for number in (1, 2)
        }
        self.is_away = False
        #: What is wrong with a cell's record.
        self.wrong: dict[int, BadConfiguration] = {}
        #: What connecting to a cell raises.
        self.errors: dict[int, Exception] = {}
        self.silent: set[int] = set()
        self.made: list[Connection] = []
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.finished: list[int] = []
        self._watch: Callable[[], None] = lambda: None
        #: Cells whose AM does not answer, and whose port refuses.
        self.dead: set[int] = set()
        #: Whether anything runs in the cells.
        self.runs = True
        #: Whether the leader's lease is valid.
        self.may_act = True
        #: Connecting to these cells takes until the event is set.
        self.slow: dict[int, threading.Event] = {}
        self.clock = held()
        self.clock.monotonic_ms = lambda: 7  # type: ignore[method-assign]
        post, may_act = self.events.put, lambda: self.may_act
        self.under_test = Cells(
            self, self._connect, post, self.clock, own=1, is_dead=self._is_dead, may_act=may_act
        )

    def take_over(self) -> list[Event]:
        self.under_test.begin()
        return self.under_test.take_over()

    def take_over_lasts(self, seconds: float) -> list[Event]:
        """Return what a take-over, which has begun, tells after so long."""
        self.clock.hold(threading.current_thread().name)
        begun = self.clock.monotonic()
        found = self.under_test.take_over()
        assert self.clock.monotonic() - begun == pytest.approx(seconds)
        self.clock.hold()
        return found

    def _is_dead(self, address: str) -> bool:
        return int(host_of(address)[1:]) in self.dead

    def read_each(
        self, watch: Callable[[], None] | None = None
    ) -> Mapping[int, CellRecord | BadConfiguration]:
        if self.is_away:
            raise Transient("ZooKeeper does not answer")
        if watch is not None:
            self._watch = watch
        return {**self.present, **self.wrong}

    def change(self, number: int, **fields: str) -> None:
        self.present[number] = structs.replace(self.present[number], **fields)
        self._watch()

    def _connect(self, number: int, record: CellRecord, lost: Callable[[str], None]) -> Connection:
        answers = number not in self.silent | self.dead
        waits, error = self.slow.get(number), self.errors.get(number)
        made = Connection(number, record, lost, answers, waits, error, self.runs)
        # Each cell has a thread of its own: another one's may be the last one already.
        self.made.append(made)
        return made

    def of(self, number: int) -> Connection:
        """Return the latest connection to a cell."""
        return [each for each in self.made if each.number == number][-1]

    def next(self) -> Event:
        return self.events.get(timeout=PATIENCE_SECONDS)

    def await_tries(self, *numbers: int) -> None:
        """Return once nothing tries to connect to these cells any more, to any if none is named."""
        names = {f"cell-{each}" for each in numbers or self.present}
        for each in threading.enumerate():
            if each.name in names:
                each.join(PATIENCE_SECONDS)

    def look(self, *numbers: int) -> None:
        """Look once, and wait until that has tried to connect to these cells, to all if none is named."""
        self.under_test._look()
        self.await_tries(*numbers)


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.under_test.stop()


def found(events: Iterable[Event]) -> list[int]:
    """Return the cells that were found."""
    return [each.cell for each in events if isinstance(each, happened.CellFound)]


def test_take_over_tells_of_every_cell_and_what_runs_there(lab: Lab) -> None:
    lab.dead.add(2)
    events = lab.take_over()
    assert events == [
        happened.CellFound(1, "a1_01", ("h1", "h2"), 7, "h1"),
        happened.ContainerExpected("a1_01_2", "a1_01/s_0", 7, 1, "a1_01"),
        happened.CellLost(2, "a2_01", "h2:1 does not answer", 7),
    ]
    assert lab.of(1).told == ["start"]


def test_unexpected_error_concerns_its_cell_alone(lab: Lab, died: Died) -> None:
    lab.dead.add(2)
    lab.errors[2] = ValueError("planted")
    events = lab.take_over()
    assert [type(each) for each in events] == FOUND_AND_LOST
    lost = events[-1]
    assert isinstance(lost, happened.CellLost)
    assert "ValueError: planted" in lost.reason
    assert lab.of(2).told == ["close"]
    assert died.empty()


def test_process_that_cannot_be_relied_on_dies_of_it(lab: Lab, died: Died) -> None:
    lab.errors[2] = BrokenInvariant("planted")
    lab.under_test.begin()
    assert died.get(timeout=PATIENCE_SECONDS).exc_value is lab.errors[2]


def test_a_record_that_cannot_be_made_sense_of_leaves_its_cell_as_it_was_and_the_others_go_on(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.take_over()
    lab.wrong[2] = BadConfiguration("cells/2: not a record")
    lab.change(1, attempt="a1_02")
    lab.under_test._look()
    lab.under_test._stale()
    lab.look()
    told = "a cell is led as last known, or not at all if it was not: cells/2: not a record"
    assert [each for each in caplog.messages if "cells/2" in each] == [told]
    assert lab.of(1).record.attempt == "a1_02"
    lab.under_test.request(9, "h1", 2)
    assert lab.of(2).told[-1] == ("request", 9, "h1")
    lab.wrong.clear()
    lab.change(2, attempt="a2_02")
    lab.look()
    assert lab.of(2).record.attempt == "a2_02", "read again"


def test_a_new_leader_leads_the_cells_whose_records_it_can_read(lab: Lab) -> None:
    lab.wrong[1] = BadConfiguration("cells/1: not a record")
    assert found(lab.take_over()) == [2]


def test_dead_am_is_asked_once_in_a_take_over_and_not_waited_for(lab: Lab) -> None:
    lab.dead.add(2)
    refuses = lab.slow[2] = threading.Event()

    def pace(seconds: float) -> float:
        # Its port refuses only now that the take-over waits for it.
        refuses.set()
        return LOOK_SECONDS

    lab.clock.pace = pace  # type: ignore[method-assign]
    lab.take_over()
    assert sorted(each.number for each in lab.made) == [1, 2]


def test_try_in_vain_is_no_reason_to_try_again_at_once(lab: Lab) -> None:
    lab.dead.add(2)
    lab.take_over()
    # The end of a try wakes a take-over, perhaps when that has ended.
    lab.await_tries()
    lab.under_test._wake.clear()
    lab.look()
    assert [each.number for each in lab.made].count(2) == 2
    assert not lab.under_test._wake.is_set(), "the next one comes with the next look"


def test_take_over_that_begins_again_keeps_what_it_has_found(lab: Lab) -> None:
    lab.under_test.begin()
    lab.await_tries()
    events = lab.take_over()
    assert found(events) == [1, 2]
    assert [each.cell for each in events if isinstance(each, happened.ContainerExpected)] == [1, 2]
    assert len(events) == 4, "and nothing is awaited"
    assert len(lab.made) == 2


def test_cells_are_asked_at_once_and_one_that_is_slow_is_not_waited_for(lab: Lab) -> None:
    lab.slow[2] = threading.Event()
    lab.under_test.begin()
    lab.await_tries(1)
    events = lab.take_over_lasts(0.5)
    assert events[-1] == happened.CellAwaited(2, "a2_01", 7, "h2")
    assert [each for each in events if isinstance(each, happened.CellFound)] == [
        happened.CellFound(1, "a1_01", ("h1", "h2"), 7, "h1")
    ]
    lab.under_test.start()
    lab.slow[2].set()
    assert lab.next() == happened.CellFound(2, "a2_01", ("h1", "h2"), 7, "h2")
    assert isinstance(lab.next(), happened.ContainerExpected)


def test_connection_that_is_still_being_made_ends_with_its_leader(lab: Lab) -> None:
    """That to a pool takes as long as its processes take to come."""
    lab.slow[2] = threading.Event()
    lab.under_test.begin()
    lab.await_tries(1)
    # Before that there is nothing that could end with the leader.
    soon(lambda: lab.under_test._held[2].trying, "the connection is being made")
    lab.under_test.stop()
    lab.await_tries(2)
    assert lab.of(2).told == ["stop", "close"]


def test_cell_that_says_nothing_is_lost_after_a_while_or_when_its_port_refuses(lab: Lab) -> None:
    lab.silent = {1, 2}
    assert lab.take_over() == [
        happened.CellAwaited(1, "a1_01", 7, "h1"),
        happened.CellAwaited(2, "a2_01", 7, "h2"),
    ]
    lab.dead.add(1)
    lab.under_test.start()
    assert lab.next() == happened.CellLost(1, "a1_01", "h1:1 does not answer", 7)
    lab.clock.advance(SILENT_SECONDS)
    assert lab.next() == happened.CellLost(2, "a2_01", "h2:1 does not answer", 7)


def test_first_leader_waits_a_little_for_a_cell_that_is_just_starting(lab: Lab) -> None:
    lab.runs = False
    started = lab.present.pop(2)
    lab.present[2] = CellRecord("application_2")

    def start(number: int, record: CellRecord, lost: Callable[[str], None]) -> Connection:
        # The first cell's connection is made, and meanwhile the second one's candidate comes up.
        lab.present[2] = started
        lab._watch()
        return lab._connect(number, record, lost)

    lab.under_test.connect = start
    assert found(lab.take_over()) == [1, 2]


@pytest.mark.parametrize("runs", [True, False])
def test_only_the_first_leader_waits_for_starting_cells_and_not_for_ever(lab: Lab, runs: bool) -> None:
    lab.runs = runs
    lab.present[2] = CellRecord("application_2")
    lab.under_test.begin()
    lab.await_tries()
    told = lab.take_over_lasts(0 if runs else 15)
    assert [each for each in told if not isinstance(each, happened.ContainerExpected)] == [
        happened.CellFound(1, "a1_01", ("h1", "h2"), 7, "h1"),
        happened.CellAwaited(2, "", 7),
    ]
    lab.under_test.start()
    lab.present[2] = CellRecord("application_2", attempt="a2_01", address="h2:1")
    lab.under_test._stale()
    assert lab.next() == happened.CellFound(2, "a2_01", ("h1", "h2"), 7, "h2")


def test_requests_go_to_the_cell_that_is_asked_and_releases_to_the_cell_that_knows_them(lab: Lab) -> None:
    lab.take_over()
    lab.under_test.request(5, "h2", 2)
    lab.under_test.release("a1_01/s_0")
    assert ("request", 5, "h2") in lab.of(2).told
    assert not [each for each in lab.of(1).told if each == ("request", 5, "h2")]
    assert ("release", "a1_01/s_0") in lab.of(1).told
    away = Lab()
    away.silent.add(2)
    away.take_over()
    away.under_test.request(5, None, 2)
    assert away.next() == happened.RequestRefused(5, "cell 2 does not answer", 7)


def test_lost_cell_is_reported_once_and_found_again(lab: Lab) -> None:
    lab.take_over()
    lab.under_test.start()
    lab.silent.add(2)
    lab.of(2).lost("its AM is dead")
    assert lab.next() == happened.CellLost(2, "a2_01", "its AM is dead", 7)
    lab.silent.clear()
    assert lab.next() == happened.CellFound(2, "a2_01", ("h1", "h2"), 7, "h2")
    assert isinstance(lab.next(), happened.ContainerExpected)
    lab.under_test.stop()
    assert "stop" in lab.of(2).told


def test_cell_that_is_lost_as_soon_as_it_is_watched_is_lost_after_it_was_found(lab: Lab) -> None:
    lab.silent.add(2)
    lab.take_over()
    lab.silent.clear()

    def connect(number: int, record: CellRecord, lost: Callable[[str], None]) -> Connection:
        made = lab._connect(number, record, lost)
        made.start = lambda: lost("its AM is dead")  # type: ignore[method-assign]
        return made

    lab.under_test.connect = connect
    lab.look(2)
    assert [type(lab.next()) for _ in range(3)] == FOUND_AND_LOST
    lab.under_test.connect = lab._connect
    lab.look(2)
    assert isinstance(lab.next(), happened.CellFound), "and tried again"


def test_loss_is_told_before_the_cell_is_found_again(lab: Lab) -> None:
    lab.take_over()
    former = lab.of(2)

    def close() -> None:
        # It takes so long that the next look finds the cell again.
        lab.look(2)

    former.close = close  # type: ignore[method-assign]
    former.lost("it stood still")
    assert [type(lab.next()) for _ in range(2)] == [happened.CellLost, happened.CellFound]


def test_container_given_back_just_when_its_cell_answers_again_is_given_back_there(lab: Lab) -> None:
    lab.silent.add(2)
    lab.take_over()
    lab.silent.clear()

    def find() -> None:
        lab.look(2)

    def release(granted: str) -> bool:
        if not lab.under_test._lock.locked():
            find()  # while the other cells' connections are asked
        return False

    lab.of(1).release = release  # type: ignore[method-assign]
    lab.under_test.release("a2_01/s_0")
    find()
    assert ("release", "a2_01/s_0") in lab.of(2).told


@pytest.mark.parametrize("is_told", [False, True])
def test_container_given_back_to_a_silent_cell_is_given_back_later(lab: Lab, is_told: bool) -> None:
    lab.take_over()
    lab.silent.add(2)
    if is_told:
        # The connection took it, and its AM did not hear of it any more.
        lab.of(2).owed.add("a2_01/s_0")
    lab.of(2).lost("it stands still")
    if not is_told:
        lab.under_test.release("a2_01/s_0")
    lab.silent.clear()
    lab.under_test.start()
    assert isinstance(lab.next(), happened.CellLost)
    assert lab.next() == happened.CellFound(2, "a2_01", ("h1", "h2"), 7, "h2")
    lab.under_test.stop()
    # It is given back once the leader has been told that the cell answers.
    lab.await_tries(2)
    assert ("release", "a2_01/s_0") in lab.of(2).told
    assert lab.events.empty(), "and it is not expected any more"


def test_nothing_is_kept_of_what_was_given_back_to_an_attempt_that_is_over(lab: Lab) -> None:
    """Else a leader would keep the ids of all containers of each AM that has ended."""
    lab.take_over()
    lab.silent.add(2)
    lab.of(2).owed.add("a2_01/s_0")
    lab.of(2).lost("it is dead")
    for granted in ("a2_01/s_1", "a3_01/s_3"):
        lab.under_test.release(granted)
    assert lab.under_test._owed == {"a2_01/s_0", "a2_01/s_1", "a3_01/s_3"}
    lab.change(2, attempt="a2_02", address="h3:1")
    lab.look(2)
    assert lab.under_test._owed == {"a3_01/s_3"}


def test_of_what_was_given_back_only_what_runs_is_left_when_a_cell_answers_again(lab: Lab) -> None:
    lab.take_over()
    lab.of(2).lost("it stands still")
    for granted in ("a2_01/s_0", "a2_01/s_9"):
        lab.under_test.release(granted)
    lab.look(2)
    assert not lab.under_test._owed
    assert [each for each in lab.of(2).told if each != "start"] == [("release", "a2_01/s_0")]


def test_leader_without_a_lease_ends_no_application(lab: Lab) -> None:
    lab.take_over()
    lab.may_act = False
    with pytest.raises(Fenced):
        lab.under_test.finish(succeeded=True, diagnostics="over")
    assert [each.told for each in lab.made] == [["start"], ["start"]]


def test_next_attempt_of_a_cell_takes_the_place_of_the_one_before(lab: Lab) -> None:
    lab.take_over()
    lab.under_test.start()
    former = lab.of(2)
    lab.change(2, attempt="a2_02", address="h3:1")
    assert lab.next() == happened.CellLost(2, "a2_01", "its application has another attempt", 7)
    assert lab.next() == happened.CellFound(2, "a2_02", ("h1", "h2"), 7, "h3")
    assert former.told[-2:] == ["stop", "close"]
    former.lost("late news of the attempt before")
    lab.under_test.request(6, None, 2)
    assert ("request", 6, None) in lab.of(2).told, "it changed nothing"


def test_records_that_could_not_be_read_are_read_again(lab: Lab) -> None:
    lab.is_away = True
    with pytest.raises(Transient):
        lab.under_test.begin()
    lab.is_away = False
    assert found(lab.take_over()) == [1, 2]
    lab.is_away = True
    lab.under_test.start()
    lab.change(2, attempt="a2_02", address="h3:1")
    lab.is_away = False
    assert isinstance(lab.next(), happened.CellLost)
    assert isinstance(lab.next(), happened.CellFound)


def test_every_application_is_ended_the_own_one_last(lab: Lab) -> None:
    order: list[int] = []
    lab.take_over()
    for each in lab.made:
        each.finish = lambda number=each.number, **_: order.append(number)  # type: ignore[method-assign]
    lab.under_test.finish(succeeded=True, diagnostics="over")
    assert order == [2, 1]
