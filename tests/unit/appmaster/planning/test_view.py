"""What the leader's view says of containers, cells and requests, and of the tasks that its records place there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.state.model import JobModel, Processor, SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.reasons import Loss, Reason
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    Container,
    ContainerRequest,
    Presence,
    RequestKind,
    RequestState,
)
from locality.fit import PoolProcess
from standby.shared.exits import ProcessEnd
from standby.shared.model import NodeOffer, ProcessorId, SlotId, TaskId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    PROCESSOR,
    SECOND,
    SLOT,
    Change,
    changed,
    drained,
    free,
    of_container,
    of_processor,
    of_records,
    of_view,
    turned,
    unchanged,
)

CONTAINER: Final = Container("c1", "s1", Presence.LIVE, 2_000)

#: A task of no job, and a processor of no job.
NOWHERE: Final = TaskId("other", "main", 0)
NONE: Final = ProcessorId("other", "main", 0)

THIRD: Final = TaskId("job", "main", 2)


def cell(number: int = 1, **changes: Any) -> Cell:
    """Return a cell that answers."""
    return replace(Cell(number, "a1", (), CellState.UP, 0), **changes)


def of_cells(*cells: Cell) -> Change:
    return of_view(cells={each.number: each for each in cells})


# ---- one container ----


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"loss": Reason(Loss.SILENT)}, "silent"),
        ({"loss": Reason(Loss.SILENT), "farewell": "replaced"}, "replaced"),
    ],
)
def test_a_container_that_is_told_to_exit_says_that_before_why_it_was_suspected(
    changes: dict[str, Any], expected: str
) -> None:
    assert replace(CONTAINER, **changes).reason == expected


@pytest.mark.parametrize(
    ("presence", "expected"), [(Presence.LIVE, 3_000), (Presence.BROKEN, 2_000), (Presence.EXPECTED, 2_000)]
)
def test_a_container_is_silent_since_it_was_heard_or_since_its_stream_broke(
    presence: Presence, expected: int
) -> None:
    assert replace(CONTAINER, presence=presence, heard_ms=3_000).silent_since_ms == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"has_ended": True}, True),
        ({"end": ProcessEnd(1)}, True),
        ({"end": ProcessEnd(-15)}, False),
        ({"has_ended": True, "end": ProcessEnd(-15)}, True),
    ],
)
def test_a_failure_is_its_own_if_its_replica_or_its_process_ended_by_itself(
    changes: dict[str, Any], expected: bool
) -> None:
    assert replace(CONTAINER, **changes).is_own_failure is expected


def test_a_container_whose_pid_is_known_has_said_hello() -> None:
    """In a namespace of its own it may be 1."""
    assert [replace(CONTAINER, pid=each).has_said_hello for each in (0, 1)] == [False, True]


@pytest.mark.parametrize(
    ("presence", "expected"),
    [
        (Presence.EXPECTED, True),
        (Presence.LIVE, True),
        (Presence.BROKEN, True),
        (Presence.SUSPECT, False),
        (Presence.ORPHAN, False),
        (Presence.LEAVING, False),
    ],
)
def test_a_container_may_hold_roles_until_it_is_suspected_or_leaves(
    whole: ClusterView, presence: Presence, expected: bool
) -> None:
    spares = (free("c7", "h4", SpareSlotId("job", 0)), free("c8", "h4", SpareSlotId("other", 0)))
    view = changed(whole, *spares, *(of_container(each, presence=presence) for each in ("c4", "c7")))
    assert view.holder("c4") == (view.containers["c4"] if expected else None)
    assert view.spares_of("job") == ([view.containers["c7"]] if expected else [])


def test_there_is_no_holder_without_a_container(whole: ClusterView) -> None:
    assert whole.holder(None) is None
    assert whole.holder("c9") is None


def test_a_container_is_found_by_its_grant(whole: ClusterView) -> None:
    assert whole.container_of(whole.containers["c5"].skein_id) is whole.containers["c5"]
    assert whole.container_of("unknown") is None


# ---- tasks and processors ----


def test_a_processor_and_its_tasks_are_found_by_each_other(whole: ClusterView) -> None:
    assert whole.job_tasks(PROCESSOR) == (FIRST, SECOND)
    assert whole.job_tasks(ANOTHER.processor) == whole.job_tasks(NONE) == ()
    assert whole.processor_of(SECOND) == PROCESSOR
    assert whole.processor_of(THIRD) is whole.processor_of(NOWHERE) is None


def test_every_processor_of_every_job_is_listed(whole: ClusterView) -> None:
    job = whole.jobs["job"]
    other = replace(job, name="other", model=JobModel("other", {NONE: Processor((NOWHERE,), (0,))}))
    view = replace(whole, jobs={"job": job, "other": other})
    assert list(view.processors()) == [(job, PROCESSOR), (other, NONE)]


def test_the_processors_in_a_container_are_those_of_its_tasks(whole: ClusterView) -> None:
    view = changed(whole, of_view(assigned={"c4": {FIRST: 0, SECOND: 0}, "c5": {NOWHERE: 0}}))
    assert view.processors_in("c4") == {PROCESSOR}
    assert view.processors_in("c5") == view.processors_in("c9") == frozenset()


@pytest.mark.parametrize(
    ("container", "change", "expected"),
    [
        ("c4", unchanged, [FIRST, SECOND]),
        ("c5", unchanged, []),
        ("c9", unchanged, []),
        ("c5", of_records(SECOND, active=1), [SECOND]),
        ("c7", of_records(FIRST, moving={0: "c7"}), []),
    ],
)
def test_an_active_is_in_the_container_where_the_active_copy_is_placed(
    whole: ClusterView, container: str, change: Change, expected: list[TaskId]
) -> None:
    assert turned(whole, change).view.actives_in(container) == expected


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ({}, None),
        ({NOWHERE: 0}, None),
        ({FIRST: 1}, 1),
        ({FIRST: 0, SECOND: 1, THIRD: 1}, 1),
        ({FIRST: 1, SECOND: 0}, 0),
        ({NOWHERE: 0, FIRST: 1, SECOND: 1}, 1),
    ],
)
def test_a_container_is_the_home_of_the_slot_of_most_of_its_tasks(
    whole: ClusterView, assigned: dict[TaskId, int], expected: int | None
) -> None:
    view = changed(whole, of_processor(tasks=(FIRST, SECOND, THIRD)), of_view(assigned={"c4": assigned}))
    assert view.home("c4") == (SlotId(PROCESSOR, expected) if expected is not None else None)


@pytest.mark.parametrize(
    ("case", "assigned", "changes", "expected"),
    [
        ("of its tasks", {FIRST: 0}, {"slot": SpareSlotId("other", 0)}, "job"),
        ("of its tasks, which is gone", {NOWHERE: 0}, {"slot": SLOT}, None),
        ("of its slot", {}, {"slot": SpareSlotId("job", 0)}, "job"),
        ("of its slot, which is gone", {}, {"slot": SpareSlotId("other", 0), "revisions": {"job": 1}}, None),
        ("the one that it has loaded", {}, {"slot": None, "revisions": {"other": 2, "job": 1}}, "job"),
        ("none is known", {}, {"slot": None, "revisions": {"other": 2}}, None),
    ],
)
def test_a_container_serves_the_job(
    whole: ClusterView, case: str, assigned: dict[TaskId, int], changes: dict[str, Any], expected: str | None
) -> None:
    view = changed(whole, of_view(assigned={"c4": assigned}), of_container("c4", **changes))
    job = view.job_of(view.containers["c4"])
    assert (job.name if job is not None else None) == expected, case


# ---- requests ----


def request(number: int, slot: Slot, skein_id: str = "") -> ContainerRequest:
    """Return a request for any host."""
    return ContainerRequest(number, slot, None, RequestKind.ANY, RequestState.WAITING, 0, skein_id)


def test_a_request_is_found_by_its_id_once_it_has_one(whole: ClusterView) -> None:
    asked, asking = request(1, SLOT, "s9"), request(2, SLOT)
    view = replace(whole, requests={2: asking, 1: asked})
    assert view.request_of("s9") is asked
    assert view.request_of("s8") is view.request_of("") is None


def test_requests_of_a_job_are_for_its_slots_or_for_its_spare_containers(whole: ClusterView) -> None:
    slots: tuple[Slot, ...] = (
        *(SLOT, SpareSlotId("job", 0), SharedSlotId("job", 1)),
        *(SpareSlotId("other", 0), SlotId(NONE, 0)),
    )
    view = replace(whole, requests={number: request(number, each) for number, each in enumerate(slots)})
    assert [each.slot for each in view.requests_of("job")] == [slots[0], slots[2]]
    assert [each.slot for each in view.requests_of("job", are_spare=True)] == [slots[1]]


# ---- cells ----


@pytest.mark.parametrize(
    ("case", "cells", "is_orphaned", "answers"),
    [
        ("no cell is watched", (), False, True),
        ("it answers", (cell(),), False, True),
        ("another one is lost", (cell(2, state=CellState.LOST),), False, True),
        ("it is silent as yet", (cell(state=CellState.AWAITED),), False, False),
        ("it is lost", (cell(state=CellState.LOST),), True, False),
        ("it came again", (cell(attempt="a2"),), True, False),
    ],
)
def test_a_container_ends_with_the_attempt_of_its_cell(
    whole: ClusterView, case: str, cells: tuple[Cell, ...], is_orphaned: bool, answers: bool
) -> None:
    view = changed(whole, of_cells(*cells))
    container = replace(CONTAINER, attempt="a1")
    assert view.is_orphaned(container) is is_orphaned, case
    assert view.is_of_cell_that_answers(container) is answers, case


@pytest.mark.parametrize(
    ("host", "number", "expected"), [("h1", 2, 1), ("h2", 1, 2), ("h1", 1, 0), ("h1", 3, 0), ("h3", 1, 0)]
)
def test_a_host_may_end_another_cell_too(whole: ClusterView, host: str, number: int, expected: int) -> None:
    view = changed(whole, of_cells(cell(3, am_host="h1"), cell(1, am_host="h1"), cell(2, am_host="h2")))
    assert view.other_am(host, number) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (unchanged, ""),
        (drained("h2"), ""),
        (drained("h1"), "h1 is drained"),
        (of_cells(cell(state=CellState.LOST)), "cell 1 is lost"),
        (of_container("c4", is_leaving=True), "c4 is being stopped"),
    ],
)
def test_nothing_stays_on_a_drained_host_in_a_lost_cell_or_in_a_process_that_is_asked_to_end(
    whole: ClusterView, change: Change, expected: str
) -> None:
    view = changed(whole, change)
    assert view.must_leave(view.containers["c4"]) == expected


def test_the_processes_of_a_pool_are_those_of_the_cell_that_has_some(whole: ClusterView) -> None:
    waiting = (PoolProcess("h1", NodeOffer()),)
    assert changed(whole, of_cells(cell(1), cell(2))).processes == ()
    assert changed(whole, of_cells(cell(1), cell(2, processes=waiting))).processes == waiting
