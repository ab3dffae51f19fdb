"""What a cell that answers, is awaited or is lost changes in the view, and which hosts can be requested then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from appmaster.eventlog.counting import counts
from appmaster.eventlog.derive import derive
from appmaster.planning.fold.apply import apply
from appmaster.planning.fold.cells import is_of_silent_cell, with_offers
from appmaster.planning.state import events as happened
from appmaster.planning.state.counters import REQUESTS
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    ContainerRequest,
    RequestKind,
    RequestState,
)
from locality.fit import PoolProcess
from locality.hosts import HostInfo
from standby.shared.model import NodeOffer
from tests.unit.appmaster.planning.views import PROCESSOR, SLOT, changed, of_view

SINCE_MS, NOW_MS = 1_000, 2_000


def cell(
    number: int = 1,
    hosts: tuple[str, ...] = ("h1",),
    state: CellState = CellState.UP,
    attempt: str = "first",
    **more: Any,
) -> Cell:
    return Cell(number, attempt, hosts, state, SINCE_MS, **more)


def known(view: ClusterView, *cells: Cell) -> ClusterView:
    """Return the view with these cells, and with a request to cell 1 and one to cell 2."""
    requests = {
        number: ContainerRequest(number, SLOT, None, RequestKind.ANY, RequestState.WAITING, 0, cell=number)
        for number in (1, 2)
    }
    view = changed(view, of_view(cells={each.number: each for each in cells}, requests=requests))
    return with_offers(view)


FOUND: Mapping[str, tuple[tuple[Cell, ...], bool, int, set[int]]] = {
    "it is new": ((), True, NOW_MS, {2}),
    "it answered before": ((cell(),), False, SINCE_MS, {1, 2}),
    "it has another host now": ((cell(hosts=("h2",)),), True, SINCE_MS, {1, 2}),
    "it was awaited": ((cell(state=CellState.AWAITED),), True, NOW_MS, {2}),
    "it was lost": ((cell(state=CellState.LOST),), True, NOW_MS, {2}),
    "it is another attempt": ((cell(attempt="zeroth"),), True, NOW_MS, {2}),
}


def test_what_a_cell_that_answers_changes(whole: ClusterView) -> None:
    for case, (before, unsettles, since_ms, requests) in FOUND.items():
        view = apply(known(whole, *before), happened.CellFound(1, "first", ("h1",), NOW_MS))
        assert view.cells[1] == Cell(1, "first", ("h1",), CellState.UP, since_ms), case
        assert view.requests.keys() == requests, case
        assert view.unsettled == ({PROCESSOR} if unsettles else set()), case
        assert [each.name for each in view.offers] == ["h1"], case


def test_a_cell_is_known_as_it_describes_itself(whole: ClusterView) -> None:
    more: Mapping[str, Any] = {
        "am_host": "h3",
        "full": frozenset({"h2"}),
        "note": "h4: another version",
        "processes": (PoolProcess("h1", NodeOffer()),),
    }
    view = apply(whole, happened.CellFound(1, "first", ("h1", "h2"), NOW_MS, **more))
    assert view.cells == {1: Cell(1, "first", ("h1", "h2"), CellState.UP, NOW_MS, **more)}


def test_a_cell_is_awaited_only_until_it_is_known(whole: ClusterView) -> None:
    event = happened.CellAwaited(2, "first", NOW_MS, am_host="h1")
    view = apply(known(whole, cell()), event)
    assert view.cells[2] == Cell(2, "first", (), CellState.AWAITED, NOW_MS, am_host="h1")
    assert view.offers == (HostInfo("h1", 1, master_of=2),)
    assert view.requests.keys() == {1, 2}
    assert not view.unsettled
    assert apply(view, event) is view


LOST: Mapping[str, tuple[tuple[Cell, ...], tuple[str, ...] | None]] = {
    "it answered": ((cell(),), ("h1",)),
    "it was awaited": ((cell(state=CellState.AWAITED, hosts=()),), ()),
    "it was never known": ((), ()),
    "it had not started": ((cell(state=CellState.AWAITED, attempt="", hosts=()),), ()),
    "it is lost already": ((cell(state=CellState.LOST),), None),
    "another attempt answers": ((cell(attempt="second"),), None),
}


def test_what_a_lost_cell_changes(whole: ClusterView) -> None:
    for case, (before, hosts) in LOST.items():
        view = known(whole, *before)
        after = apply(view, happened.CellLost(1, "first", "silent", NOW_MS))
        if hosts is None:
            assert after is view, case
            continue
        assert after.cells[1] == Cell(1, "first", hosts, CellState.LOST, NOW_MS, "silent"), case
        assert after.requests.keys() == {2}, case
        assert after.unsettled == {PROCESSOR}, case
        assert (tuple(after.hosts), after.offers) == (hosts, ()), case


SILENT: Mapping[str, tuple[bool, tuple[Cell, ...], str]] = {
    "it is lost": (True, (cell(state=CellState.LOST),), "first"),
    "it is awaited": (True, (cell(state=CellState.AWAITED),), "first"),
    "it answers": (False, (cell(),), "first"),
    "the container is of another attempt": (False, (cell(state=CellState.LOST),), "zeroth"),
    "the attempts are not known": (False, (cell(state=CellState.LOST, attempt=""),), ""),
    "the cell is not known": (False, (cell(2, state=CellState.LOST),), "first"),
}


def test_which_container_is_of_a_silent_cell(whole: ClusterView) -> None:
    for case, (is_so, cells, attempt) in SILENT.items():
        event = happened.ContainerRegistered("c9", "s_c9", 9, "h1", 9, 0, (), (), NOW_MS, attempt=attempt)
        assert is_of_silent_cell(known(whole, *cells), event) is is_so, case


# ---- hosts ----


def test_without_cells_every_described_host_can_be_requested() -> None:
    described = {each: HostInfo(each, rack="/a") for each in ("h2", "h1")}
    view = with_offers(ClusterView(described=described))
    assert view.hosts == described
    assert view.offers == (described["h1"], described["h2"])


def test_a_host_is_offered_once_for_each_cell_that_can_be_asked_for_it() -> None:
    cells = [
        cell(2, ("h1",)),
        cell(1, ("h2", "h1", "h3"), full=frozenset({"h3"}), am_host="h2"),
        cell(3, ("h4",), CellState.LOST),
    ]
    view = with_offers(
        ClusterView(
            described={"h1": HostInfo("h1", rack="/a"), "h9": HostInfo("h9")},
            cells={each.number: each for each in cells},
        )
    )
    assert list(view.hosts) == ["h1", "h2", "h3", "h4"]
    assert view.offers == (HostInfo("h2", 1), HostInfo("h1", 1, "/a"), HostInfo("h1", 2, "/a"))


def test_what_a_job_says_of_a_host_comes_before_what_its_first_process_says() -> None:
    processes = (
        PoolProcess("h1", NodeOffer(attributes={"rack": "/b", "zone": "x"})),
        PoolProcess("h1", NodeOffer(attributes={"zone": "y", "disk": "ssd"})),
        PoolProcess("h2", NodeOffer()),
    )
    view = with_offers(
        ClusterView(
            described={"h1": HostInfo("h1", rack="/a")},
            cells={1: cell(hosts=("h1", "h2"), processes=processes)},
        )
    )
    assert view.offers == (HostInfo("h1", 1, "/a", {"zone": "x", "disk": "ssd"}), HostInfo("h2"))


@pytest.mark.parametrize(
    ("event", "ended"),
    [
        pytest.param(happened.CellLost(1, "first", "gone", NOW_MS), ["request_cancelled"], id="it is lost"),
        pytest.param(
            happened.CellFound(1, "second", ("h1",), NOW_MS),
            ["request_cancelled"],
            id="it is another attempt",
        ),
        pytest.param(happened.CellFound(1, "first", ("h2",), NOW_MS), [], id="it has another host"),
    ],
)
def test_the_end_of_each_request_to_a_cell_is_counted(
    whole: ClusterView, event: happened.CellLost | happened.CellFound, ended: list[str]
) -> None:
    before = known(whole, cell())
    entries = derive(before, event, apply(before, event))
    assert [each.kind.value for each in entries if each.job == "job"] == ended
    counted = [each.labels for entry in entries for each in counts(entry) if each.metric is REQUESTS]
    assert counted == [("any", "lost")] * len(ended)
