"""On which hosts state of a task is known to be: what records remember, and what containers find on their disks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from appmaster.planning.placement.left_state import histories, leftovers
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.view import ClusterView
from locality.history import StateOnDisk
from standby.shared.model import Held, Leftover, TaskId
from tests.unit.appmaster.planning.views import (
    Change,
    holder_of,
    of_holder,
    of_job,
    of_records,
    seen,
    turned,
    without_container,
)

TASK, OTHER = TaskId("job", "main", 0), TaskId("job", "main", 1)

#: What the first task's record remembers; h2 is where copy 1 was at last.
HISTORY: Final = (Held("h8", 5, 3), Held("h2", 4, 2))
LOST: Final = without_container(1)


def found(copy: int, *, ago_ms: int = 0, position: int = 9, run: str = "run1", task: TaskId = TASK) -> Change:
    """Have the container of a copy have found state of a task, besides what it found before."""

    def change(view: ClusterView) -> ClusterView:
        each = Leftover(task, run, position, view.wall(view.now_ms) - ago_ms)
        return of_holder(copy, leftovers=(*holder_of(view, copy).leftovers, each))(view)

    return change


def remembers(*history: Held) -> Change:
    return of_records(TASK, OTHER, history=history)


REMEMBERED: Mapping[str, tuple[tuple[tuple[str, int | None], ...] | None, tuple[Change, ...]]] = {
    "of a copy that is placed": ((("h8", 3), ("h2", 2)), ()),
    "of a lost copy its last host first, with the highest position": ((("h2", 3), ("h8", 3)), (LOST,)),
    "or with that of what was found": ((("h2", 9), ("h8", 3)), (LOST, found(2))),
    "or 0 if none was reported": ((("h2", 0), ("h8", None)), (LOST, remembers(Held("h8", 5)))),
    "or none if nothing is known": ((("h2", None),), (LOST, remembers())),
    "of a copy that was nowhere": ((("h8", 3), ("h2", 2)), (LOST, of_records(TASK, OTHER, hosts={}))),
    "nothing without affinity": (None, (of_job(policy=PlannerPolicy(host_affinity=False)),)),
}


def test_which_hosts_are_remembered(whole: ClusterView) -> None:
    for case, (hosts, changes) in REMEMBERED.items():
        turn, cohort = seen(whole, remembers(*HISTORY), *changes)
        history = histories(turn, (cohort,), 1).get(TASK)
        assert (
            tuple((each.host, each.position) for each in history) if history is not None else None
        ) == hosts, case


EXPIRY_MS: Final = PlannerPolicy().locality_expiry_ms

FOUND: Mapping[str, tuple[Mapping[TaskId, dict[str, int]], tuple[Change, ...]]] = {
    "on several hosts": ({TASK: {"h2": 9, "h3": 8}}, (found(1), found(2, position=8))),
    "not of a run that was deleted, but of others": (
        {OTHER: {"h2": 9}},
        (found(1, run="run0"), found(1, task=OTHER)),
    ),
    "not of a job that is gone": ({}, (found(1, task=TaskId("gone", "main", 0)),)),
    "not for too long, but later": ({OTHER: {"h2": 9}}, (found(1, ago_ms=EXPIRY_MS), found(1, task=OTHER))),
    "just not too long ago": ({TASK: {"h2": 9}}, (found(1, ago_ms=EXPIRY_MS - 1),)),
    "the later one of a host": ({TASK: {"h2": 3}}, (found(1, ago_ms=1), found(1, position=3))),
    "the earlier one does not replace it": ({TASK: {"h2": 3}}, (found(1, position=3), found(1, ago_ms=1))),
    "of one moment the higher position": ({TASK: {"h2": 9}}, (found(1), found(1, position=3))),
}


def test_what_was_found_on_disks_counts(whole: ClusterView) -> None:
    for case, (positions, changes) in FOUND.items():
        on_disks = leftovers(turned(whole, *changes))
        assert {
            task: {each.host: each.position for each in there} for task, there in on_disks.items()
        } == positions, case


def test_a_find_without_a_time_counts(whole: ClusterView) -> None:
    turn = turned(whole, of_holder(1, leftovers=(Leftover(TASK, "run1", 9),)))
    assert leftovers(turn) == {TASK: (StateOnDisk("h2", 9, 0),)}
