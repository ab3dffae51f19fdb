"""Which of several free containers a copy gets."""

from __future__ import annotations

from dataclasses import replace

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
