"""Which free container a copy gets, and whether a copy may be opened on its host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from appmaster.planning.placement.eligibility import free_for, is_clear
from appmaster.planning.state.view import Cell, CellState, ClusterView, Presence
from standby.shared.model import Held, Phase, ProcessorId, ReplicaId, SlotId
from tests.unit.appmaster.planning.views import (
    FIRST,
    ONE,
    PROCESSORS,
    SECOND,
    TASKS,
    THIRD,
    Change,
    free,
    of_container,
    of_holder,
    of_records,
    of_status,
    of_view,
    seen,
    unchanged,
)


def in_cells(master: str) -> Change:
    """Have the master of the active's cell be on this host, and that of cell 2 on one that is not known."""
    return of_view(
        cells={
            each: Cell(each, "", (), CellState.UP, 0, am_host=host) for each, host in ((1, master), (2, ""))
        }
    )


def test_the_better_of_two_containers_is_chosen(whole: ClusterView) -> None:
    """c7 on h7 and c8 on h8, where no other copy is, in the active's cell 1 or in the other one."""
    cases: Mapping[str, tuple[tuple[int, int], str, str, str]] = {
        "another cell than the active's, before all else": ((1, 2), "h8", "h7", "c8"),
        "no master of another cell on its host": ((2, 2), "h7", "h7", "c8"),
        "state of the task": ((2, 2), "", "h8", "c8"),
        "by name": ((2, 2), "", "h9", "c7"),
    }
    for case, (cells, master, state, chosen) in cases.items():
        history = (Held(state, whole.wall(whole.now_ms), 100),)
        there = in_cells(master), of_records(FIRST, SECOND, history=history)
        for slot in (ONE, None):
            both = (free("c7", "h7", slot, cells[0]), free("c8", "h8", slot, cells[1]))
            for order in (both, both[::-1]):
                turn, cohort = seen(whole, *there, *order)
                found = free_for(turn, (cohort,), ONE)
                assert found is not None, case
                assert found.id == chosen, (case, slot)


def test_a_container_that_was_requested_for_another_slot_is_free_once_that_does_not_need_it(
    three: ClusterView,
) -> None:
    standby = SlotId(PROCESSORS[1], 1)
    cases: Mapping[str, tuple[bool, SlotId, Change]] = {
        "the copy has a container": (True, standby, unchanged),
        "there is no such copy any more": (True, SlotId(PROCESSORS[1], 2), unchanged),
        "nor such a processor": (True, SlotId(ProcessorId("job", "main", 9), 0), unchanged),
        "nor such a job": (True, SlotId(ProcessorId("gone", "main", 0), 0), unchanged),
        "the copy has none": (False, standby, of_records(*TASKS[1], placed={})),
        "the copy moves": (False, standby, of_records(*TASKS[1], moving={1: "c8"})),
        "a record is being written: it is not known": (False, standby, of_view(writing={TASKS[1][0]: ""})),
    }
    for case, (is_idle, asked, change) in cases.items():
        turn, cohort = seen(three, free("c20", "h9", asked), change)
        found = free_for(turn, (cohort,), ONE)
        assert (found and found.id) == ("c20" if is_idle else None), case


# ---- what is open on a host ----

#: The container of copy 1 is on the host in question as well.
THERE: Final = of_holder(1, host="h4")
EMPTY: Final = of_holder(1, statuses={})


def each_task(**changes: Any) -> tuple[Change, ...]:
    """Have the replicas of both tasks in the container of copy 1 be so."""
    return tuple(of_status(1, each, **changes) for each in (FIRST, SECOND))


def filled(presence: Presence, host: str = "") -> tuple[Change, ...]:
    """Have a copy be filled in a container that this leader has not heard."""
    moving = of_records(FIRST, SECOND, moving={1: "c8"})
    return free("c8", host, presence=presence), of_container("c8", pid=0), moving


CLEAR: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "no other process is there": (True, ()),
    "one is there that has a copy open": (False, (THERE,)),
    "its stream broke": (False, (THERE, of_holder(1, presence=Presence.BROKEN))),
    "it is suspected": (False, (THERE, of_holder(1, presence=Presence.SUSPECT))),
    "no leader requested it": (True, (THERE, of_holder(1, presence=Presence.ORPHAN))),
    "it has closed one of two": (False, (THERE, of_status(1, FIRST, phase=Phase.CLOSED))),
    "it has closed both": (True, (THERE, *each_task(phase=Phase.CLOSED))),
    "it holds neither": (True, (THERE, EMPTY)),
    "it holds other tasks": (True, (THERE, *each_task(replica=ReplicaId(THIRD, 1)))),
    "it has yet to apply what it was sent": (False, (THERE, EMPTY, of_holder(1, sent=9, applied=8))),
    "it was not heard yet": (False, (THERE, EMPTY, of_holder(1, pid=0))),
    "one on an unknown host is expected, where a copy is filled": (False, filled(Presence.EXPECTED)),
    "one on an unknown host is suspected": (False, filled(Presence.SUSPECT)),
    "one on an unknown host is not ours": (True, filled(Presence.ORPHAN)),
    "one on another host is expected": (True, filled(Presence.EXPECTED, "h5")),
    "one on the same host is expected": (False, filled(Presence.EXPECTED, "h4")),
}


def test_when_no_other_process_on_a_host_has_the_tasks_open(whole: ClusterView) -> None:
    for case, (is_so, changes) in CLEAR.items():
        turn, cohort = seen(whole, free("c9", "h4"), *changes)
        assert is_clear(turn, cohort, turn.view.containers["c9"]) is is_so, case
