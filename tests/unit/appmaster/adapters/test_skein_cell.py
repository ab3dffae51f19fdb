"""The connection to a cell's Skein AM: what was given back is owed until the AM has heard of it."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from skein.exceptions import ConnectionError as SkeinConnectionError

from appmaster.adapters.skein import _YOUNG_SECONDS, CellAddress, SkeinCell
from appmaster.leadership.cells import SILENT_SECONDS
from appmaster.planning.state import events as happened
from standby.errors import BrokenInvariant
from tests.fakes.clock import HandClock, held
from tests.patience import PATIENCE_SECONDS, soon


@dataclass
class Am:
    """A Skein AM with one container, as its client shows it."""

    answers: bool = True
    killed: list[str] = field(default_factory=list)
    state: str = "RUNNING"
    error: BaseException | None = None
    ended: int = 0
    """So many containers were killed before: Skein keeps all of them for good."""
    listed: int = 0
    """How many lines the longest answer had."""

    def get_containers(self, states: Sequence[object], services: Sequence[str] | None = None) -> list[Any]:
        self._answer()
        asked = [str(each) for each in states]
        lines = [_line("s_0", "a1_01_2", self.state)]
        lines += [_line(f"s_{each}", "", "KILLED") for each in range(1, self.ended + 1)]
        found = [each for each in lines if each.state in asked and services in (None, ["s"])]
        self.listed = max(self.listed, len(found))
        return found

    def add_container(self, service: str) -> Any:
        self._answer()
        raise AssertionError("nothing is granted here")

    def kill_container(self, container: str) -> None:
        self._answer()
        self.killed.append(container)

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error
        if not self.answers:
            raise SkeinConnectionError("connection refused")


def _line(skein_id: str, container: str, state: str) -> Any:
    return SimpleNamespace(
        id=skein_id,
        service_name="s",
        yarn_container_id=container,
        yarn_node_http_address="h1:8042",
        state=state,
        exit_message="",
    )


@pytest.fixture
def am() -> Am:
    return Am()


@pytest.fixture
def events() -> list[object]:
    return []


@pytest.fixture
def clock() -> HandClock:
    clock = held()
    clock.monotonic_ms = lambda: 7  # type: ignore[method-assign]
    return clock


ADDRESS = CellAddress(1, "application_1", "a1_01", "127.0.0.1:1")


@pytest.fixture
def cell(am: Am, events: list[object], clock: HandClock) -> SkeinCell:
    made = SkeinCell(ADDRESS, b"", b"", events.append, clock, events.append)
    made._client = am
    return made


def run_commands(cell: SkeinCell) -> None:
    """Carry out what was asked for, as the connection's thread does."""
    cell._worker.catch_up()


def test_what_runs_already_is_expected(cell: SkeinCell) -> None:
    assert cell.expected() == (happened.ContainerExpected("a1_01_2", "a1_01/s_0", 7, 1, "a1_01"),)


def test_what_is_given_back_is_owed_until_the_am_has_heard_of_it(cell: SkeinCell, am: Am) -> None:
    cell.expected()
    am.answers = False
    assert cell.release("a1_01/s_0")
    assert cell.owed == {"a1_01/s_0"}, "the connection may end before the command has its turn"
    run_commands(cell)
    assert cell.owed == {"a1_01/s_0"}
    am.answers = True
    assert cell.release("a1_01/s_0")
    run_commands(cell)
    assert am.killed == ["s_0"]
    assert not cell.owed


def test_what_the_am_did_not_hear_of_is_given_back_when_it_answers_again(
    cell: SkeinCell, am: Am, events: list[object], clock: HandClock
) -> None:
    cell.expected()
    with socket.create_server(("127.0.0.1", 0)) as port:
        cell.cell = replace(ADDRESS, address=f"127.0.0.1:{port.getsockname()[1]}")
        cell.start()
        clock.await_looks("skein-1")
        am.answers = False
        cell.release("a1_01/s_0")
        clock.await_looks("skein-1")
        am.answers = True
        clock.advance(1)
        soon(lambda: am.killed == ["s_0"], "it is given back")
        soon(lambda: not cell.owed, "nothing is owed")
        cell.stop()
    assert not [each for each in events if isinstance(each, str)], "the connection was never lost"


def test_a_look_costs_the_same_however_many_requests_were_taken_back(
    cell: SkeinCell, am: Am, events: list[object]
) -> None:
    am.ended = 1_000
    cell.expected()
    cell._look()
    am.state = "FAILED"
    cell._look()
    assert am.listed == 1
    assert events == [happened.ContainerCompleted("a1_01/s_0", "failed (a1_01_2)", 7)]


def test_nothing_is_kept_of_a_container_that_has_ended(cell: SkeinCell, am: Am) -> None:
    def kept() -> str:
        return repr([each for name, each in vars(cell).items() if name != "_client"])

    cell.expected()
    cell._look()
    assert "s_0" in kept()
    cell.release("a1_01/s_0")
    run_commands(cell)
    am.state = "KILLED"
    cell._look()
    assert "s_0" not in kept()
    assert cell.release("a1_01/s_0"), "of this cell it still is"


def test_what_is_another_cells_is_not_taken(cell: SkeinCell) -> None:
    assert not cell.release("a2_01/s_0")
    assert not cell.owed


def test_lost_am_is_told_of_when_its_port_refuses(cell: SkeinCell, am: Am, events: list[object]) -> None:
    cell.expected()
    am.answers = False
    cell.start()
    cell._worker.join(PATIENCE_SECONDS)
    assert events == ["its AM is dead: its port refuses"]


def test_am_that_answers_nothing_is_lost_after_a_while_though_its_port_accepts(
    cell: SkeinCell, am: Am, events: list[object], clock: HandClock
) -> None:
    am.answers = False
    with socket.create_server(("127.0.0.1", 0)) as port:
        cell.cell = replace(ADDRESS, address=f"127.0.0.1:{port.getsockname()[1]}")
        cell.start()
        clock.await_looks("skein-1")
        clock.advance(SILENT_SECONDS)
        clock.await_looks("skein-1")
        assert not events
        clock.advance(1)
        cell._worker.join(PATIENCE_SECONDS)
    assert events == ["its AM does not answer: connection refused"]


def test_answer_that_nobody_foresaw_is_none(cell: SkeinCell, am: Am, events: list[object]) -> None:
    cell.expected()
    am.error = ValueError("planted")
    cell.start()
    cell._worker.join(PATIENCE_SECONDS)
    assert events == ["its AM is dead: its port refuses"]


def test_what_could_not_be_given_back_for_whatever_reason_is_owed(cell: SkeinCell, am: Am) -> None:
    cell.expected()
    am.error = ValueError("planted")
    assert cell.release("a1_01/s_0")
    with pytest.raises(ValueError, match="planted"):
        run_commands(cell)
    assert cell.owed == {"a1_01/s_0"}


def test_thread_dies_of_a_broken_invariant(
    cell: SkeinCell, am: Am, events: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    died: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", died.put)
    cell.expected()
    am.error = BrokenInvariant("planted")
    cell.start()
    assert died.get(timeout=PATIENCE_SECONDS).exc_value is am.error
    assert not events


def test_container_whose_log_cannot_be_read_is_told_of_without_it(
    cell: SkeinCell, am: Am, events: list[object]
) -> None:
    told = threading.Event()

    def post(event: object) -> None:
        events.append(event)
        told.set()

    def last_lines(node: str, container: str) -> Sequence[str]:
        raise ValueError("planted")

    cell._look()
    events.clear()
    cell.post, cell.last_lines = post, last_lines
    am.state = "FAILED"
    cell._look()
    assert told.wait(PATIENCE_SECONDS)
    assert events == [happened.ContainerCompleted("a1_01/s_0", "failed (a1_01_2)", 7)]


def test_am_that_answers_nothing_is_judged_although_requests_keep_coming(am: Am, clock: HandClock) -> None:
    lost: list[str] = []
    refused = 0

    def post(event: object) -> None:
        """Ask again for what was refused, as the planner does; not for ever, or this would never end."""
        nonlocal refused
        assert isinstance(event, happened.RequestRefused)
        refused += 1
        clock.advance(1)
        if refused < 50:
            made.request(event.number, None)

    made = SkeinCell(ADDRESS, b"", b"", post, clock, lost.append)
    made._client = am
    made._services[None] = "anywhere"
    am.answers = False
    made.request(1, None)
    made.start()
    made._worker.join(PATIENCE_SECONDS)
    assert lost == ["its AM is dead: its port refuses"]
    assert refused == 1


def test_end_of_a_container_is_told_when_the_list_shows_it(
    cell: SkeinCell, am: Am, events: list[object]
) -> None:
    cell.expected()
    cell._look()
    assert not events
    am.state = "FAILED"
    cell._look()
    cell._look()
    assert events == [happened.ContainerCompleted("a1_01/s_0", "failed (a1_01_2)", 7)]


@pytest.mark.parametrize(
    ("state", "wrote", "text", "is_from_outside"),
    [
        ("FAILED", "no such package", "no such package", False),
        ("FAILED", "the witness of process 7: it has begun", "it was ended together with its witness", True),
        (
            "SUCCEEDED",
            "the witness of process 7: it has ended as it was asked to",
            "it was asked to end",
            True,
        ),
    ],
)
def test_container_that_ends_at_its_start_is_told_of_with_its_last_words(
    cell: SkeinCell, am: Am, events: list[object], state: str, wrote: str, text: str, is_from_outside: bool
) -> None:
    told = threading.Event()

    def post(event: object) -> None:
        events.append(event)
        told.set()

    cell.post = post
    cell.last_lines = lambda node, container: (f"what {container} wrote on {node}", wrote)
    am.state = "REQUESTED"
    cell._look()
    am.state = state
    cell._look()
    assert told.wait(PATIENCE_SECONDS)
    before = "" if text == wrote else "what a1_01_2 wrote on h1:8042; "
    said = f"{state.lower()} (a1_01_2: {before}{text})"
    assert events == [happened.ContainerCompleted("a1_01/s_0", said, 7, is_from_outside)]


@pytest.mark.parametrize(("lived", "is_told"), [(_YOUNG_SECONDS - 1, True), (_YOUNG_SECONDS, False)])
def test_log_is_read_of_a_container_that_ran_for_a_moment_only(
    cell: SkeinCell, am: Am, events: list[object], clock: HandClock, lived: float, is_told: bool
) -> None:
    cell.last_lines = lambda node, container: ("no such package",)
    cell._look()
    clock.advance(lived)
    am.state = "FAILED"
    cell._look()
    soon(lambda: len(events) == 2, "it is told of")
    assert ("no such package" in str(events[1])) is is_told
