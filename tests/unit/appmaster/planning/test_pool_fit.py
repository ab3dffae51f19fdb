"""What slots ask of a pool's processes, which of those wait, and how many copies containers take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from appmaster.planning.placement.pool_fit import (
    capacity,
    demand_of,
    has_room,
    most_copies,
    rests,
    why_no_process,
    why_none_waits,
)
from appmaster.planning.state.model import SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.view import ClusterView, Container
from locality.fit import Demand, PoolProcess
from standby.shared.model import NodeOffer, TaskId
from tests.unit.appmaster.planning.views import (
    SLOT,
    Change,
    a_pool,
    drained,
    free,
    holder_of,
    of_container,
    of_holder,
    of_model,
    of_processor,
    turned,
)

MIXED: Final = of_model(is_mixed=True)
SPARE: Final = SpareSlotId("job", 0)
SHARED: Final = SharedSlotId("job", 0)
THREE_TASKS: Final = of_processor(tasks=tuple(TaskId("job", "main", each) for each in range(3)))

ASKED: Mapping[str, tuple[int, Slot, tuple[Change, ...]]] = {
    "a copy": (2, SLOT, ()),
    "a copy of more tasks": (3, SLOT, (THREE_TASKS,)),
    "a spare container": (3, SPARE, (THREE_TASKS,)),
    "a spare container of a job without processors": (1, SPARE, (of_model(processors={}),)),
    "a spare container of a mixed job": (1, SPARE, (MIXED,)),
    "a container of a mixed job": (1, SHARED, (MIXED,)),
    "a copy, though the job is mixed": (2, SLOT, (MIXED,)),
}


@pytest.mark.parametrize(("tasks", "slot", "changes"), ASKED.values(), ids=ASKED)
def test_for_how_many_tasks_a_process_is_asked(
    whole: ClusterView, tasks: int, slot: Slot, changes: tuple[Change, ...]
) -> None:
    assert demand_of(turned(whole, *changes).view.jobs["job"], slot).tasks == tasks


def takes(host: str, tasks: int, *, is_free: bool = True) -> PoolProcess:
    return PoolProcess(host, NodeOffer(tasks=tasks), is_free)


def test_of_the_processes_of_a_host_that_wait_the_one_that_fits_best_counts(whole: ClusterView) -> None:
    pool = (takes("h4", 5), takes("h4", 3), takes("h4", 1), takes("h5", 2, is_free=False), takes("h6", 1))
    found = rests(turned(whole, a_pool(*pool)), Demand(tasks=2))
    assert found is not None
    assert {host: each[1] for host, each in found.items()} == {"h4": 1}


def test_without_a_pool_there_are_none(whole: ClusterView) -> None:
    assert rests(turned(whole), Demand()) is None


WHY: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "on YARN": ("", ()),
    "one waits": ("", (a_pool(takes("h3", 2), takes("h4", 2)),)),
    "on a drained host": ("h4 is drained", (a_pool(takes("h4", 2)), drained("h4"))),
    "on a closed host": ("h3 is closed", (a_pool(takes("h3", 2)),)),
    "on both": ("h3 is closed; h4 is drained", (a_pool(takes("h4", 2), takes("h3", 2)), drained("h4"))),
    "none that is large enough": ("no process that fits waits", (a_pool(takes("h4", 1)),)),
    "none at all": ("no process waits", (a_pool(takes("h4", 2, is_free=False)),)),
}


@pytest.mark.parametrize(("why", "changes"), WHY.values(), ids=WHY)
def test_why_no_process_can_be_requested(whole: ClusterView, why: str, changes: tuple[Change, ...]) -> None:
    turn = turned(whole, *changes)
    said = why_none_waits(turn, turn.view.jobs["job"], SLOT, {"h3": "is closed"})
    assert said.endswith(why)
    assert bool(said) is bool(why)


def test_a_process_that_is_claimed_can_be_claimed_later(whole: ClusterView) -> None:
    job = whole.jobs["job"]
    assert not why_no_process(turned(whole, a_pool(takes("h4", 2, is_free=False))).view, job, SLOT)
    assert why_no_process(turned(whole, a_pool(takes("h4", 1))).view, job, SLOT)


@pytest.mark.parametrize(
    ("most", "copies", "has"),
    [(0, 9, True), (3, 1, True), (3, 2, False)],
)
def test_a_container_has_room_for_what_it_takes_beyond_what_it_holds(
    whole: ClusterView, most: int, copies: int, has: bool
) -> None:
    turn = turned(whole, of_holder(1, offer=NodeOffer(tasks=most)))
    assert has_room(turn, holder_of(turn.view, 1), copies) is has


@pytest.mark.parametrize(("copies", "has"), [(3, True), (4, False)])
def test_an_empty_container_has_room_for_all_that_it_takes(
    whole: ClusterView, copies: int, has: bool
) -> None:
    turn = turned(whole, free("c9", "h4"), of_container("c9", offer=NodeOffer(tasks=3)))
    assert has_room(turn, turn.view.containers["c9"], copies) is has


def containers(view: ClusterView, *limits: int) -> Sequence[Container]:
    """Return the containers of as many copies, which take so many tasks."""
    changed = turned(
        view, *(of_holder(copy, offer=NodeOffer(tasks=most)) for copy, most in enumerate(limits))
    ).view
    return [holder_of(changed, copy) for copy in range(len(limits))]


@pytest.mark.parametrize(("limits", "tasks", "taken"), [((1, 2, 0), 5, 8), ((9, 9), 5, 10), ((), 5, 0)])
def test_what_containers_take_in_all(
    whole: ClusterView, limits: Sequence[int], tasks: int, taken: int
) -> None:
    assert capacity(containers(whole, *limits), tasks) == taken


def test_containers_of_one_host_take_one_copy_of_a_task(whole: ClusterView) -> None:
    view = turned(whole, of_holder(1, host="h1")).view
    assert capacity((holder_of(view, 0), holder_of(view, 1), holder_of(view, 2)), 5) == 10


@pytest.mark.parametrize(
    ("total", "share", "limits", "most"),
    [
        pytest.param(7, 3, (0, 0, 0), 3, id="no limits"),
        pytest.param(9, 3, (1, 0, 0), 4, id="one takes fewer"),
        pytest.param(9, 3, (1,), 4, id="two are missing, and may take any number"),
    ],
)
def test_how_many_copies_a_container_holds_at_most(
    whole: ClusterView, total: int, share: int, limits: Sequence[int], most: int
) -> None:
    assert most_copies(total, share, containers(whole, *limits)) == most
