"""What is registered helps a new leader: what to expect of a silent cell, where each listens, and what has gone."""

from __future__ import annotations

from collections.abc import Callable

from appmaster.leadership.ports import RegisteredContainer
from appmaster.leadership.registered import Departures, with_registered
from appmaster.planning.fold.apply import apply
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.view import ClusterView
from standby.errors import Transient
from standby.shared.records import ContainerRecord

FOUND = happened.CellFound(1, "a1_01", ("h1",), 7)
LISTED = happened.ContainerExpected("a1_01_2", "a1_01/s_0", 7, 1, "a1_01")


def registered(container: str, cell: int, incarnation: int = 40) -> RegisteredContainer:
    return RegisteredContainer(ContainerRecord(container, "s_0", cell, "h9", 1, 2, 3, 1, "0"), incarnation)


def test_of_a_cell_that_answers_who_is_listed_is_expected_where_it_registered() -> None:
    events = with_registered([FOUND, LISTED], [registered("a1_01_2", 1)], 7)
    assert events == [FOUND, happened.ContainerExpected("a1_01_2", "a1_01/s_0", 7, 1, "a1_01", "h9", 40)]
    assert with_registered([FOUND, LISTED], [], 7) == [FOUND, LISTED], "it need not have registered"
    assert with_registered([FOUND], [registered("a1_01_9", 1)], 7) == [FOUND], "what is not listed is not"


def test_of_a_cell_that_is_silent_or_lost_those_are_expected_that_its_present_attempt_started() -> None:
    for event in (happened.CellAwaited(2, "a2_02", 7), happened.CellLost(2, "a2_02", "its AM refuses", 7)):
        events = with_registered([event], [registered("a2_02_5", 2), registered("a2_01_5", 2)], 8)
        assert events == [event, happened.ContainerExpected("a2_02_5", "a2_02/s_0", 8, 2, "a2_02", "h9", 40)]


class Registry:
    """The names that are registered; a test changes them."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        self.is_away = False
        self.watch: Callable[[], None] | None = None

    def registrations(self) -> tuple[RegisteredContainer, ...]:
        return ()

    def container_names(self, watch: Callable[[], None] | None = None) -> frozenset[str]:
        if self.is_away:
            raise Transient("no answer")
        self.watch = watch
        return self.names

    def change(self, *names: str) -> None:
        self.names = frozenset(names)
        watch, self.watch = self.watch, None
        if watch is not None:
            watch()


def waiting_for(*names: str) -> ClusterView:
    view = apply(ClusterView(), happened.Elected(1, 7))
    for each in names:
        view = apply(view, happened.ContainerExpected(each, each, 7, 1, "a", "h9", 40))
    return view


def followed(registry: Registry, view: ClusterView) -> list[Event]:
    told: list[Event] = []
    Departures(registry, lambda: view, told.append, lambda: 9, lambda look: look()).follow()
    return told


def test_a_container_that_unregisters_while_it_is_waited_for_is_reported() -> None:
    registry = Registry("c1", "c2")
    told = followed(registry, waiting_for("c1", "c2"))
    assert told == []
    registry.change("c2", "c3")
    assert told == [happened.ContainerUnregistered("c1", 9)]
    registry.is_away = True
    assert followed(registry, waiting_for("c1")) == [], "the grace decides"
    idle = Registry("c1")
    followed(idle, waiting_for())
    assert idle.watch is None, "nothing is watched when nothing is waited for"
