"""Which free container a copy gets, and whether a copy may be opened on its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.placement.eligibility import free_for, is_clear
from appmaster.planning.placement.turn import Turn
from appmaster.planning.state.view import ClusterView, Container, Presence
from standby.shared.model import Held, Phase, ProcessorId, ReplicaId, SlotId
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.views import (
    FIRST,
    SECOND,
    THIRD,
    Change,
    free,
    of_container,
    of_holder,
    of_records,
    of_status,
    seen,
)

PROCESSOR = ProcessorId("job", "main", 0)
BESIDE, APART = True, False


@pytest.mark.parametrize("is_requested_for_it", [True, False])
@pytest.mark.parametrize(
    ("cells", "master_on", "state_on", "chosen"),
    [
        pytest.param((BESIDE, APART), 1, 0, "c8", id="another cell than the active's, before all else"),
        pytest.param((APART, APART), 0, 0, "c8", id="no master of another cell on its host"),
        pytest.param((APART, APART), None, 1, "c8", id="state of the task"),
        pytest.param((APART, APART), None, None, "c7", id="by name"),
    ],
)
def test_the_better_of_two_containers_is_chosen(
    cells: tuple[bool, bool],
    master_on: int | None,
    state_on: int | None,
    chosen: str,
    is_requested_for_it: bool,
) -> None:
    """c7 and c8 are on two hosts without another copy, in the active's cell or in the other one."""
    cluster = deployed(tasks=1, containers=1, cells=(1, 2), hosts=("h1", "h2", "h3", "h4"))
    view, slot = cluster.view, SlotId(PROCESSOR, 1)
    (recorded,) = view.records.values()
    record = recorded.record
    active = view.containers[record.placed[0]]
    used = {each.host for each in view.containers.values()}
    hosts = [each for each in cluster.hosts if each not in used][:2]
    there = {}
    for name, host, is_beside in zip(("c7", "c8"), hosts, cells, strict=True):
        cell = active.cell if is_beside else 3 - active.cell
        there[name] = Container(
            *(name, f"s_{name}", Presence.LIVE, view.now_ms, cell, view.cells[cell].attempt),
            host=host,
            incarnation=90,
            pid=9,
            slot=slot if is_requested_for_it else None,
        )
    of_active = replace(view.cells[active.cell], am_host="" if master_on is None else hosts[master_on])
    history = () if state_on is None else (Held(hosts[state_on], view.wall(view.now_ms), 100),)
    view = replace(
        view,
        cells={**view.cells, active.cell: of_active},
        records={record.task: replace(recorded, record=replace(record, history=history))},
    )
    for names in (("c7", "c8"), ("c8", "c7")):
        containers = {**view.containers, **{each: there[each] for each in names}}
        turn = Turn(replace(view, containers=containers))
        found = free_for(turn, turn.cohorts(view.jobs["job"], PROCESSOR) or (), slot)
        assert found is not None
        assert found.id == chosen


OTHER = ProcessorId("job", "main", 1)


@pytest.mark.parametrize(
    ("asked", "change", "is_idle"),
    [
        pytest.param(SlotId(OTHER, 1), {}, True, id="the copy has a container"),
        pytest.param(SlotId(OTHER, 2), {}, True, id="there is no such copy any more"),
        pytest.param(SlotId(ProcessorId("job", "main", 2), 0), {}, True, id="nor such a processor"),
        pytest.param(SlotId(ProcessorId("gone", "main", 0), 0), {}, True, id="nor such a job"),
        pytest.param(SlotId(OTHER, 1), {"placed": {}}, False, id="the copy has none"),
        pytest.param(SlotId(OTHER, 1), {"moving": {1: "c8"}}, False, id="the copy moves"),
        pytest.param(SlotId(OTHER, 1), None, False, id="it is not known: a record is being written"),
    ],
)
def test_a_container_that_was_requested_for_another_slot_is_free_once_that_does_not_need_it(
    asked: SlotId, change: dict[str, Any] | None, is_idle: bool
) -> None:
    cluster = deployed(tasks=2, containers=2, hosts=("h1", "h2", "h3", "h4", "h5"))
    view = cluster.view
    (task,) = view.jobs["job"].model.processors[OTHER].tasks
    used = {each.host for each in view.containers.values()}
    host = next(each for each in cluster.hosts if each not in used)
    empty = Container("c9", "s_c9", Presence.LIVE, view.now_ms, host=host, incarnation=90, pid=9, slot=asked)
    recorded = view.records[task]
    record = replace(recorded.record, **(change or {}))
    view = replace(
        view,
        containers={**view.containers, empty.id: empty},
        records={**view.records, task: replace(recorded, record=record)},
        writing={} if change is not None else {task: ""},
    )
    turn = Turn(view)
    found = free_for(turn, turn.cohorts(view.jobs["job"], PROCESSOR) or (), SlotId(PROCESSOR, 1))
    assert found == (empty if is_idle else None)


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


@pytest.mark.parametrize(("is_so", "changes"), CLEAR.values(), ids=CLEAR)
def test_when_no_other_process_on_a_host_has_the_tasks_open(
    whole: ClusterView, is_so: bool, changes: tuple[Change, ...]
) -> None:
    turn, cohort = seen(whole, free("c9", "h4"), *changes)
    assert is_clear(turn, cohort, turn.view.containers["c9"]) is is_so
