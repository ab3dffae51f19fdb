"""Which free container a copy gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.placement.eligibility import free_for
from appmaster.planning.placement.turn import Turn
from appmaster.planning.state.view import Container, Presence
from standby.shared.model import Held, ProcessorId, SlotId
from tests.fakes.yarn import deployed

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
    free = {}
    for name, host, is_beside in zip(("c7", "c8"), hosts, cells, strict=True):
        cell = active.cell if is_beside else 3 - active.cell
        free[name] = Container(
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
        containers = {**view.containers, **{each: free[each] for each in names}}
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
    free = Container("c9", "s_c9", Presence.LIVE, view.now_ms, host=host, incarnation=90, pid=9, slot=asked)
    recorded = view.records[task]
    record = replace(recorded.record, **(change or {}))
    view = replace(
        view,
        containers={**view.containers, free.id: free},
        records={**view.records, task: replace(recorded, record=record)},
        writing={} if change is not None else {task: ""},
    )
    turn = Turn(view)
    found = free_for(turn, turn.cohorts(view.jobs["job"], PROCESSOR) or (), SlotId(PROCESSOR, 1))
    assert found == (free if is_idle else None)
