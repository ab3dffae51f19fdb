"""Which copy moves where because all copies of its tasks share a fault domain, and how many of them do at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from appmaster.planning.placement.fault_domains import Location, Relocation
from appmaster.planning.placement.relocation import next_relocation
from appmaster.planning.placement.turn import Turn
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.view import Cell, CellState, ClusterView
from locality.fit import PoolProcess
from locality.hosts import HostInfo
from standby.shared.model import NodeOffer, ProcessorId, SlotId
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.views import (
    FIRST,
    PROCESSOR,
    SECOND,
    UNSETTLED,
    Change,
    a_pool,
    drained,
    free,
    in_racks,
    of_holder,
    of_job,
    of_model,
    of_processor,
    of_records,
    of_view,
    offered,
    placed,
    turned,
    without_container,
)

#: The copies, on h1, h2 and h3, are in one rack; h4 is in another.
IN_ONE_RACK: Final = in_racks(h1="/a", h2="/a", h3="/a", h4="/b")


def am_hosts(*hosts: str) -> Change:
    """Have there be cells, with their Skein AMs on these hosts."""
    cells = {
        number: Cell(number, f"a{number}", (), CellState.UP, 0, am_host=host)
        for number, host in enumerate(hosts, 1)
    }

    def change(view: ClusterView) -> ClusterView:
        containers = {name: replace(each, attempt="a1") for name, each in view.containers.items()}
        return replace(view, cells=cells, containers=containers)

    return change


def in_cell_2(*copies: int) -> tuple[Change, ...]:
    return tuple(of_holder(each, cell=2, attempt="a2") for each in copies)


def in_cells(*locations: Location) -> Change:
    return offered(*(HostInfo(host, cell) for host, cell in locations))


HERE: Final = (("h1", 1), ("h2", 1), ("h3", 1))
IN_ONE_CELL: Final = am_hosts("m1", "m2")

#: Copy 0 is in cell 1, on the host of the AM of cell 2, where the others are.
WITH_THE_OTHER_MASTER: Final = (am_hosts("m1", "h1"), *in_cell_2(1, 2))

#: Copies 0 and 1 are in one rack, but not in one cell.
TWO: Final = (
    of_processor(copies=(0, 1)),
    placed({}, without=2),
    am_hosts("m1", "m2"),
    *in_cell_2(1),
)


def of_holders(**changes: object) -> Change:
    return lambda view: of_holder(0, **changes)(of_holder(1, **changes)(of_holder(2, **changes)(view)))


def waiting(*hosts: str) -> tuple[Change, ...]:
    """Have the hosts be those of a pool, with a process that waits on some of them."""
    processes = (
        PoolProcess("h9", NodeOffer(), is_free=False),
        *(PoolProcess(each, NodeOffer()) for each in hosts),
    )
    return IN_ONE_RACK, a_pool(*processes)


Move = tuple[int, set[Location]] | None

#: Copy 2, to h4.
TO_H4: Final = (2, {("h4", 1)})

MOVED: Mapping[str, tuple[Move, tuple[Change, ...]]] = {
    "nothing is shared": (None, ()),
    "the highest standby of equal ones": (TO_H4, (IN_ONE_RACK,)),
    "the active only if no standby can": (
        (0, {("h4", 1)}),
        (*TWO, offered(HostInfo("h1", 1, "/a"), HostInfo("h2", 2, "/a"), HostInfo("h4", 1, "/b"))),
    ),
    "no copy where it would share as much": (
        None,
        (*WITH_THE_OTHER_MASTER, in_cells(("h1", 1), ("h2", 2), ("h3", 2), ("h4", 2))),
    ),
    "the standby if the active is the highest": (
        (1, {("h4", 1)}),
        (IN_ONE_RACK, of_records(FIRST, SECOND, active=2)),
    ),
    "to another host of another cell": (
        (2, {("h4", 2)}),
        (IN_ONE_CELL, in_cells(*HERE, ("h3", 2), ("h4", 2))),
    ),
    "to its own host in another cell if no other will do": (
        (2, {("h3", 2)}),
        (IN_ONE_CELL, in_cells(*HERE, ("h3", 2))),
    ),
    "to the best of hosts that are alike": (
        (1, {("h4", 2)}),
        (
            *TWO,
            offered(
                *(HostInfo("h1", 1, "/a"), HostInfo("h2", 2, "/a"), HostInfo("m1", 2, "/b")),
                HostInfo("h4", 2, "/b"),
            ),
        ),
    ),
    "not alone": (
        None,
        (
            *(of_processor(copies=(0,)), of_records(FIRST, SECOND, placed={0: "c4"})),
            *(IN_ONE_CELL, in_cells(("h1", 1), ("m1", 1), ("h4", 2))),
        ),
    ),
    "not while a copy is displaced": (None, (IN_ONE_RACK, of_records(FIRST, SECOND, displaced=2))),
    "not in a mixed job": (None, (IN_ONE_RACK, of_model(is_mixed=True))),
    "not while a copy has no slot": (None, (IN_ONE_RACK, placed({}, without=2))),
    "not while a copy is lost": (None, (IN_ONE_RACK, without_container(2))),
    "not while a copy has to leave its host": (None, (IN_ONE_RACK, drained("h3"))),
    "not while the host of a copy is not known": (None, (IN_ONE_RACK, of_holder(2, host=""))),
    "not while a cell does not answer": (
        None,
        (IN_ONE_RACK, of_view(cells={1: Cell(1, "", (), CellState.AWAITED, 0)}), of_holders(attempt="")),
    ),
    "not while a container becomes warm": (
        None,
        (IN_ONE_RACK, lambda view: of_holder(2, is_warm=False, since_ms=view.now_ms)(view)),
    ),
    "not while tasks are placed differently": (
        None,
        (IN_ONE_RACK, free("c9", "h3"), placed({2: "c9"}, of=(SECOND,))),
    ),
    "in a pool, where a process waits": (TO_H4, waiting("h4")),
    "in a pool, nowhere else": (None, waiting("h3")),
    "in a pool, out of a zone, though the rack stays the same": (
        TO_H4,
        (
            *waiting("h4"),
            of_job(policy=PlannerPolicy(spread=("room", "rack", "zone"))),
            offered(
                HostInfo("h1", 1, "/a", {"room": "1", "zone": "x"}),
                HostInfo("h2", 1, "/a", {"room": "2", "zone": "x"}),
                HostInfo("h3", 1, "/a", {"room": "2", "zone": "x"}),
                HostInfo("h4", 1, "/a", {"room": "2", "zone": "y"}),
                HostInfo("h5", 1, "/b", {"room": "2", "zone": "x"}),
            ),
        ),
    ),
    "in a pool, where one was claimed for it": (TO_H4, (*waiting(), free("c9", "h4", SlotId(PROCESSOR, 2)))),
}


@pytest.mark.parametrize(("move", "changes"), MOVED.values(), ids=MOVED)
def test_which_copy_moves_where(whole: ClusterView, move: Move, changes: tuple[Change, ...]) -> None:
    turn = turned(whole, *changes, UNSETTLED)
    cohort = (turn.cohorts(turn.view.jobs["job"], PROCESSOR) or ())[0]
    found = next_relocation(turn, cohort)
    assert ((found.copy, {*found.locations}) if found is not None else None) == move


# ---- how many at once ----


@pytest.fixture(scope="module")
def three() -> ClusterView:
    """Three processors, the copies of each of which share a rack with each other, but need not."""
    view = deployed(tasks=3, containers=3, hosts=("h1", "h2", "h3")).view
    processors = frozenset(view.jobs["job"].model.processors)
    return in_racks(h1="/a", h2="/a", h3="/a", h4="/b")(replace(view, unsettled=processors))


def moved(turn: Turn) -> Mapping[ProcessorId, Relocation]:
    cohorts = (each for job, processor in turn.unsettled() for each in turn.cohorts(job, processor) or ())
    return {each.processor: found for each in cohorts if (found := next_relocation(turn, each)) is not None}


ROOM: Final = Relocation(0, frozenset(), "")


@pytest.mark.parametrize(
    ("others", "more"),
    [
        pytest.param(0, 3, id="each"),
        pytest.param(2, 2, id="four in all"),
        pytest.param(4, 1, id="or one of the job beyond that"),
    ],
)
def test_four_relocations_are_under_way_at_once_and_one_of_each_job_beyond_that(
    three: ClusterView, others: int, more: int
) -> None:
    turn = turned(three)
    turn.make_room({ProcessorId("other", "main", each): ROOM for each in range(others)})
    assert len(moved(turn)) == more


def test_a_copy_that_makes_room_does_that_and_others_go_on(three: ClusterView) -> None:
    turn = turned(three)
    turn.make_room({PROCESSOR: ROOM})
    found = moved(turn)
    assert found[PROCESSOR] is ROOM
    assert len(found) == 3
