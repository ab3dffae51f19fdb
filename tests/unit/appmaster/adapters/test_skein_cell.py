"""The connection to a cell's Skein AM: what was given back is owed until the AM has heard of it."""

from __future__ import annotations

import socket
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
from tests.fakes.clock import held
from tests.patience import PATIENCE_SECONDS, soon
from tests.unit.appmaster.conftest import Died


@dataclass
class Am:
    """A Skein AM with one container, as its client shows it."""

    answers: bool = True
    killed: list[str] = field(default_factory=list)
    state: str = "RUNNING"
    error: BaseException | None = None
    takes_requests: bool = False
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
        assert self.takes_requests, "nothing is requested here"
        return _line("s_0", "a1_01_2", "REQUESTED")

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


ADDRESS = CellAddress(1, "application_1", "a1_01", "127.0.0.1:1")


class Lab:
    """A connection to a cell's AM, and what it has reported."""

    def __init__(self) -> None:
        self.am = Am()
        self.events: list[object] = []
        self.clock = held()
        self.clock.monotonic_ms = lambda: 7  # type: ignore[method-assign]
        self.may_act = True
        self.cell = SkeinCell(
            ADDRESS,
            b"",
            b"",
            self.events.append,
            self.clock,
            self.events.append,
            may_act=lambda: self.may_act,
        )
        self.cell._client = self.am


@pytest.fixture
def lab() -> Lab:
    return Lab()


def run_commands(cell: SkeinCell) -> None:
    """Carry out what was asked for, as the connection's thread does."""
    cell._worker.catch_up()


def test_what_runs_already_is_expected_and_what_was_only_requested_is_withdrawn(lab: Lab) -> None:
    assert lab.cell.expected() == (happened.ContainerExpected("a1_01_2", "a1_01/s_0", 7, 1, "a1_01"),)
    assert lab.am.killed == []
    for number, state in enumerate(("REQUESTED", "WAITING"), 1):
        lab.am.state = state
        assert lab.cell.expected() == ()
        assert lab.am.killed == ["s_0"] * number, state


def test_without_a_lease_nothing_is_requested_withdrawn_or_given_back(lab: Lab) -> None:
    lab.may_act = False
    lab.am.state = "REQUESTED"
    assert lab.cell.expected() == ()
    lab.cell._services[None] = "anywhere"
    lab.cell.request(3, None)
    assert lab.cell.release("a1_01/s_0")
    run_commands(lab.cell)
    assert lab.events == [happened.RequestRefused(3, "the leader has no valid lease", 7)]
    assert lab.am.killed == []
    assert lab.cell.owed == {"a1_01/s_0"}, "until the lease is renewed"


def test_what_is_given_back_is_owed_until_the_am_has_heard_of_it(lab: Lab) -> None:
    lab.cell.expected()
    lab.am.answers = False
    assert lab.cell.release("a1_01/s_0")
    assert lab.cell.owed == {"a1_01/s_0"}, "the connection may end before the command has its turn"
    run_commands(lab.cell)
    lab.am.error = ValueError("planted")
    assert lab.cell.release("a1_01/s_0")
    with pytest.raises(ValueError, match="planted"):
        run_commands(lab.cell)
    assert lab.cell.owed == {"a1_01/s_0"}, "for whatever reason it was not heard"
    lab.am.answers, lab.am.error = True, None
    assert lab.cell.release("a1_01/s_0")
    run_commands(lab.cell)
    assert lab.am.killed == ["s_0"]
    assert not lab.cell.release("a2_01/s_0"), "it is another cell's"
    assert not lab.cell.owed


def test_what_the_am_did_not_hear_of_is_given_back_when_it_answers_again(lab: Lab) -> None:
    lab.cell.expected()
    with socket.create_server(("127.0.0.1", 0)) as port:
        lab.cell.cell = replace(ADDRESS, address=f"127.0.0.1:{port.getsockname()[1]}")
        lab.cell.start()
        lab.clock.await_looks("skein-1")
        lab.am.answers = False
        lab.cell.release("a1_01/s_0")
        lab.clock.await_looks("skein-1")
        lab.am.answers = True
        lab.clock.advance(1)
        soon(lambda: lab.am.killed == ["s_0"], "it is given back")
        soon(lambda: not lab.cell.owed, "nothing is owed")
        lab.cell.stop()
    assert not [each for each in lab.events if isinstance(each, str)], "the connection was never lost"


def requested(lab: Lab) -> None:
    """Request the container."""
    lab.am.takes_requests, lab.am.state = True, "REQUESTED"
    lab.cell._services[None] = "anywhere"
    lab.cell.request(3, None)
    run_commands(lab.cell)
    assert lab.events.pop() == happened.RequestPlaced(3, "a1_01/s_0")


def test_a_request_whose_answer_was_lost_is_withdrawn(lab: Lab) -> None:
    """Else what is granted for it at any later time would start beside the container of the next request."""
    lab.am.state = "REQUESTED"
    lab.cell._look()
    assert lab.am.killed == ["s_0"]
    lab.may_act = False
    lab.cell._look()
    assert lab.am.killed == ["s_0"], "it may be the next leader's"
    assert not lab.events


@pytest.mark.parametrize("state", ["REQUESTED", "WAITING"])
def test_a_request_that_was_answered_stands(lab: Lab, state: str) -> None:
    requested(lab)
    lab.am.state = state
    lab.cell._look()
    lab.cell._look()
    assert lab.am.killed == []


def test_a_look_costs_the_same_however_many_requests_were_taken_back(lab: Lab) -> None:
    lab.am.ended = 1_000
    lab.cell.expected()
    lab.cell._look()
    assert not lab.events
    lab.am.state = "FAILED"
    lab.cell._look()
    lab.cell._look()
    assert lab.am.listed == 1
    assert lab.events == [happened.ContainerCompleted("a1_01/s_0", "failed (a1_01_2)", 7)]


def test_nothing_is_kept_of_a_container_that_has_ended(lab: Lab) -> None:
    def kept() -> str:
        return repr([each for name, each in vars(lab.cell).items() if name != "_client"])

    lab.cell.expected()
    lab.cell._look()
    assert "s_0" in kept()
    lab.cell.release("a1_01/s_0")
    run_commands(lab.cell)
    lab.am.state = "KILLED"
    lab.cell._look()
    assert "s_0" not in kept()
    assert lab.cell.release("a1_01/s_0"), "of this cell it still is"


@pytest.mark.parametrize("error", [None, ValueError("planted")], ids=["no answer", "an unexpected answer"])
def test_lost_am_is_reported_when_its_port_refuses(lab: Lab, error: Exception | None) -> None:
    lab.cell.expected()
    lab.am.answers, lab.am.error = False, error
    lab.cell.start()
    lab.cell._worker.join(PATIENCE_SECONDS)
    assert lab.events == ["its AM is dead: its port refuses"]


def test_am_that_answers_nothing_is_lost_after_a_while_though_its_port_accepts(lab: Lab) -> None:
    lab.am.answers = False
    with socket.create_server(("127.0.0.1", 0)) as port:
        lab.cell.cell = replace(ADDRESS, address=f"127.0.0.1:{port.getsockname()[1]}")
        lab.cell.start()
        lab.clock.await_looks("skein-1")
        lab.clock.advance(SILENT_SECONDS)
        lab.clock.await_looks("skein-1")
        assert not lab.events
        lab.clock.advance(1)
        lab.cell._worker.join(PATIENCE_SECONDS)
    assert lab.events == ["its AM does not answer: connection refused"]


def test_thread_dies_of_a_broken_invariant(lab: Lab, died: Died) -> None:
    lab.cell.expected()
    lab.am.error = BrokenInvariant("planted")
    lab.cell.start()
    assert died.get(timeout=PATIENCE_SECONDS).exc_value is lab.am.error
    assert not lab.events


def test_am_that_answers_nothing_is_judged_although_requests_keep_coming(lab: Lab) -> None:
    lost: list[str] = []
    refused = 0

    def post(event: object) -> None:
        """Ask again for what was refused, as the planner does; not for ever, or this would never end."""
        nonlocal refused
        assert isinstance(event, happened.RequestRefused)
        refused += 1
        lab.clock.advance(1)
        if refused < 50:
            made.request(event.number, None)

    made = SkeinCell(ADDRESS, b"", b"", post, lab.clock, lost.append)
    made._client = lab.am
    made._services[None] = "anywhere"
    lab.am.answers = False
    made.request(1, None)
    made.start()
    made._worker.join(PATIENCE_SECONDS)
    assert lost == ["its AM is dead: its port refuses"]
    assert refused == 1


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
def test_container_that_ends_at_its_start_is_reported_with_its_last_words(
    lab: Lab, state: str, wrote: str, text: str, is_from_outside: bool
) -> None:
    lab.cell.last_lines = lambda node, container: (f"what {container} wrote on {node}", wrote)
    requested(lab)
    lab.cell._look()
    lab.am.state = state
    lab.cell._look()
    soon(lambda: lab.events, "it is reported")
    before = "" if text == wrote else "what a1_01_2 wrote on h1:8042; "
    said = f"{state.lower()} (a1_01_2: {before}{text})"
    assert lab.events == [happened.ContainerCompleted("a1_01/s_0", said, 7, is_from_outside)]


@pytest.mark.parametrize(
    ("lived", "is_readable", "told"),
    [
        (_YOUNG_SECONDS - 1, True, "failed (a1_01_2: no such package)"),
        (_YOUNG_SECONDS - 1, False, "failed (a1_01_2)"),
        (_YOUNG_SECONDS, True, "failed (a1_01_2)"),
    ],
)
def test_log_is_told_of_a_container_that_ran_for_a_moment_only_if_it_can_be_read(
    lab: Lab, lived: float, is_readable: bool, told: str
) -> None:
    def last_lines(node: str, container: str) -> Sequence[str]:
        if not is_readable:
            raise ValueError("planted")
        return ("no such package",)

    lab.cell.last_lines = last_lines
    lab.cell._look()
    lab.clock.advance(lived)
    lab.am.state = "FAILED"
    lab.cell._look()
    soon(lambda: len(lab.events) == 2, "it is reported")
    assert lab.events[1] == happened.ContainerCompleted("a1_01/s_0", told, 7)
