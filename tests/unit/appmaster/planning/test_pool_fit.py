"""What slots ask of a pool's processes, which of those wait, and how many copies containers take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from appmaster.planning.placement.pool_fit import (
    demand_of,
    most_copies,
    rests,
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
    holder_of,
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


WHY: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "on YARN": ("", ()),
    "one waits": ("", (a_pool(takes("h3", 2), takes("h4", 2)),)),
    "on a closed host and on a drained one": (
        "h3 is closed; h4 is drained",
        (a_pool(takes("h4", 2), takes("h3", 2)), drained("h4")),
    ),
    "none that is large enough": ("no process that fits waits", (a_pool(takes("h4", 1)),)),
    "none at all": ("no process waits", (a_pool(takes("h4", 2, is_free=False)),)),
}


@pytest.mark.parametrize(("why", "changes"), WHY.values(), ids=WHY)
def test_why_no_process_can_be_requested(whole: ClusterView, why: str, changes: tuple[Change, ...]) -> None:
    turn = turned(whole, *changes)
    said = why_none_waits(turn, turn.view.jobs["job"], SLOT, {"h3": "is closed"})
    assert said.endswith(why)
    assert bool(said) is bool(why)


def containers(view: ClusterView, *limits: int) -> Sequence[Container]:
    """Return the containers of as many copies, which take so many tasks."""
    changed = turned(
        view, *(of_holder(copy, offer=NodeOffer(tasks=most)) for copy, most in enumerate(limits))
    ).view
    return [holder_of(changed, copy) for copy in range(len(limits))]


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
