"""What each container is told to hold, when it is told so again, and when it is told to exit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from appmaster.planning.containers.assignments import (
    assignment_of,
    assignments,
    has_closed,
    is_assignment_sent,
    is_up_to_date,
)
from appmaster.planning.state.actions import Action, FenceTasks, SendAssignment, SendExit, WaiveFence
from appmaster.planning.state.job import EVERY_HOST, PlannerPolicy
from appmaster.planning.state.model import SpareSlotId
from appmaster.planning.state.reasons import FailureReason, HandoverMotive, Reason
from appmaster.planning.state.view import ClusterView, Handover, Presence
from standby.shared.model import Phase, ProcessorId, Wanted
from tests.unit.appmaster.planning.views import (
    FIRST,
    HELD,
    PROCESSOR,
    SECOND,
    UNSETTLED,
    Change,
    free,
    of_container,
    of_holder,
    of_job,
    of_records,
    of_status,
    of_view,
    turned,
)

WRITING: Final = of_view(writing={FIRST: "1-9"})


def wanted(view: ClusterView, container: str, *changes: Change) -> tuple[Wanted, ...]:
    view = turned(view, *changes).view
    found = assignment_of(view, view.containers[container])
    assert found is not None
    return found


def decided(
    view: ClusterView, *changes: Change, touched: frozenset[ProcessorId] = frozenset()
) -> list[Action]:
    return list(assignments(turned(view, *changes).view, touched))


def sent(actions: list[Action]) -> list[tuple[str, int]]:
    return [(each.container, each.number) for each in actions if isinstance(each, SendAssignment)]


def exits(actions: list[Action]) -> list[str]:
    return [each.container for each in actions if isinstance(each, SendExit)]


# ---- what it is to hold ----


def handing_over(to: str, to_copy: int) -> Change:
    return of_view(handovers={PROCESSOR: Handover(to_copy, to, 0, Reason(HandoverMotive.ASKED))})


def moving(copy: int) -> tuple[Change, ...]:
    return free("c9", "h4"), of_records(FIRST, SECOND, moving={copy: "c9"})


NEXT: Mapping[str, tuple[set[str], tuple[Change, ...]]] = {
    "no active is handed over": (set(), ()),
    "to a standby": ({"c5"}, (handing_over("c5", 1),)),
    "to the copy that a standby was before": (set(), (handing_over("c5", 2),)),
    "to where a standby moves": ({"c9"}, (*moving(1), handing_over("c9", 1))),
    "to where the active moves": ({"c9"}, (*moving(0), handing_over("c9", 0))),
    "it is done": (set(), (handing_over("c5", 1), of_records(FIRST, SECOND, active=1))),
}


def test_the_copy_that_an_active_is_handed_over_to_is_the_next(whole: ClusterView) -> None:
    for case, (names, changes) in NEXT.items():
        view = turned(whole, *changes).view
        assert {
            name for name in view.containers if any(each.is_next for each in wanted(view, name))
        } == names, case


def test_the_restore_of_a_standby_is_paused_by_host(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[tuple[str, ...], set[str]]] = {
        "nowhere": ((), set()),
        "on one host": (("h2",), {"c5"}),
        "not of an active": (("h1",), set()),
        "everywhere": ((EVERY_HOST,), {"c5", "c6"}),
    }
    for case, (hosts, names) in cases.items():
        paused = of_job(policy=PlannerPolicy(restore_paused=hosts))
        assert {
            name for name in HELD if any(each.is_paused for each in wanted(whole, name, paused))
        } == names, case


def test_a_displaced_copy_is_not_to_be_held(whole: ClusterView) -> None:
    found = wanted(whole, HELD[1], of_records(FIRST, displaced=1))
    assert [each.replica.task for each in found] == [SECOND]


# ---- whether that is sent and applied ----

STATES: Mapping[str, tuple[bool, bool, bool, tuple[Change, ...]]] = {
    "all is done": (True, True, False, (of_holder(1, sent=1, applied=1),)),
    "nothing is sent in this connection": (False, False, False, (of_holder(1, sent=0),)),
    "something else was sent": (False, False, False, (of_records(FIRST, epoch=2),)),
    "what it is to hold is being written": (False, False, False, (WRITING,)),
    "it is not applied yet": (True, False, False, (of_holder(1, applied=1),)),
    "one of two is closed": (True, True, False, (of_status(1, FIRST, phase=Phase.CLOSED),)),
    "both are closed": (True, True, True, (of_holder(1, statuses={}),)),
    "both are closed, but it is not applied": (True, False, False, (of_holder(1, statuses={}, applied=1),)),
    "both were closed before it may have died": (
        True,
        True,
        False,
        (of_holder(1, statuses={}, presence=Presence.BROKEN),),
    ),
}


def test_how_far_a_container_is(whole: ClusterView) -> None:
    for case, (is_sent, is_applied, is_closed, changes) in STATES.items():
        view = turned(whole, *changes).view
        container = view.containers[HELD[1]]
        assert is_assignment_sent(view, container) is is_sent, case
        assert is_up_to_date(view, container) is is_applied, case
        assert has_closed(view, container, (FIRST, SECOND), 1) is is_closed, case


# ---- when it is sent ----


def unapplied(waited_ms: int, copy: int = 0) -> Change:
    return lambda view: of_holder(copy, applied=0, sent_ms=view.now_ms - waited_ms)(view)


EMPTY: Final = free("c9", "h4")
NEW_CONNECTION: Final = tuple(of_holder(each, sent=0, applied=0) for each in (1, 2))
CHANGED: Final = (of_records(FIRST, SECOND, epoch=2), UNSETTLED)

#: The last number that was sent is 3.
SENT: Mapping[str, tuple[list[tuple[str, int]], tuple[Change, ...]]] = {
    "nothing has changed": ([], (of_holder(0, sent=1, applied=1, sent_ms=0),)),
    "the records have": ([("c4", 4), ("c5", 5), ("c6", 6)], CHANGED),
    "the records are being written": ([], (*CHANGED, WRITING)),
    "it has connected again": ([("c5", 4), ("c6", 5)], NEW_CONNECTION),
    "it has not applied it in time": ([("c4", 1)], (unapplied(1_000),)),
    "it still has time": ([], (unapplied(999),)),
    "it is empty": ([], (EMPTY,)),
    "it is empty, and another is new": ([("c8", 4)], (EMPTY, free("c8", "h4", SpareSlotId("job", 1)))),
    "it was told something before": ([("c9", 4)], (EMPTY, of_container("c9", sent=2))),
    "it holds what no record names": (
        [("c9", 4)],
        (EMPTY, lambda view: of_container("c9", statuses=view.containers["c4"].statuses)(view)),
    ),
    "it may be lost, unlike the next": (
        [("c6", 4)],
        (*NEW_CONNECTION, of_holder(1, presence=Presence.BROKEN)),
    ),
}


def test_when_a_container_is_sent_its_assignment(whole: ClusterView) -> None:
    for case, (found, changes) in SENT.items():
        actions = decided(whole, *changes)
        assert (sent(actions), exits(actions)) == (found, []), case


def another_job(view: ClusterView) -> ClusterView:
    return replace(view, jobs={**view.jobs, "other": replace(view.jobs["job"], name="other")})


def test_the_jobs_that_a_container_serves(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[tuple[tuple[str, int], ...], tuple[Change, ...]]] = {
        "it has loaded none": ((("job", 2),), (free("c9", "h4"),)),
        "an older": ((("job", 1),), (free("c9", "h4"), of_container("c9", revisions={"job": 1}))),
        "one that is gone": ((("job", 2),), (free("c9", "h4"), of_container("c9", revisions={"x": 1}))),
        "none is known": ((), (free("c9", "h4", None), another_job)),
    }
    for case, (jobs, changes) in cases.items():
        (action,) = decided(whole, of_job(revision=2), *changes, of_container("c9", sent=2))
        assert isinstance(action, SendAssignment), case
        assert action.jobs == jobs, case


# ---- when it is to exit ----

FAILED: Final = Reason(FailureReason.POISON, "a record cannot be processed")
ENDED: Final = of_job(is_wanted=False)
FENCED: Final = of_job(is_wanted=False, is_fenced=True)
WITHDRAWN: Final = of_records(FIRST, SECOND, active=None, placed={}, in_sync=())
NAMELESS: Final = free("c9", "h4", None)


def leaving(copy: int) -> Change:
    return of_holder(copy, is_leaving=True)


EXITS: Mapping[str, tuple[set[str], tuple[Change, ...]]] = {
    "nobody knows it": ({"c9"}, (free("c9", "h4", presence=Presence.ORPHAN),)),
    "it is being stopped": ({"c5", "c6"}, (leaving(1), leaving(2))),
    "it is being stopped, but is being given an active": (set(), (leaving(1), of_holder(1, binding="1-9"))),
    "it is being stopped, but the records are being written": (set(), (leaving(1), WRITING)),
    "it is being stopped, but has the active": (set(), (leaving(0),)),
    "it is being stopped, but its job is about to be fenced": (set(), (leaving(1), WITHDRAWN, ENDED)),
    "its job is fenced": ({*HELD, "c9"}, (WITHDRAWN, FENCED, free("c9", "h4"))),
    "the only job is fenced": ({*HELD, "c9"}, (WITHDRAWN, FENCED, NAMELESS)),
    "of two jobs it is not known which one it is of": (set(HELD), (WITHDRAWN, FENCED, NAMELESS, another_job)),
    "the job is about to be fenced": (set(), (WITHDRAWN, ENDED)),
}


def test_when_a_container_is_to_exit(whole: ClusterView) -> None:
    for case, (names, changes) in EXITS.items():
        assert set(exits(decided(whole, *changes))) == names, case


def test_a_container_that_is_being_stopped_stays_while_its_processor_is_decided(whole: ClusterView) -> None:
    assert not exits(decided(whole, leaving(1), touched=frozenset({PROCESSOR})))


def test_a_container_is_told_why_its_job_failed(whole: ClusterView) -> None:
    action, *_ = decided(whole, WITHDRAWN, FENCED, of_job(failure=FAILED))
    assert isinstance(action, SendExit)
    assert action.reason == str(FAILED)


@pytest.mark.parametrize("purge", [False, True])
def test_a_container_of_a_job_that_is_deleted_removes_its_state(whole: ClusterView, purge: bool) -> None:
    found = decided(whole, WITHDRAWN, FENCED, of_job(purge=purge))
    assert [each.purge for each in found if isinstance(each, SendExit)] == [purge] * len(HELD)


# ---- when a job is fenced ----


def running_first(view: ClusterView) -> ClusterView:
    job = view.jobs["job"]
    return replace(view, jobs={"other": replace(job, name="other", is_wanted=True), "job": job})


FENCE: Final[list[Action]] = [FenceTasks(1, "job", (FIRST, SECOND))]
WAIVED: Final = of_job(is_fence_waived=True)

FENCES: Mapping[str, tuple[list[Action], tuple[Change, ...]]] = {
    "it runs": ([], (WITHDRAWN,)),
    "it ends": (FENCE, (WITHDRAWN, ENDED)),
    "it has failed": (FENCE, (WITHDRAWN, of_job(failure=FAILED))),
    "none was recorded": (FENCE, (ENDED, of_view(records={}))),
    "one has an active": ([], (WITHDRAWN, ENDED, of_records(SECOND, active=0))),
    "one is being written": ([], (WITHDRAWN, ENDED, WRITING)),
    "it is being fenced": ([], (WITHDRAWN, ENDED, of_job(fence=1))),
    "it is fenced": ([], (WITHDRAWN, FENCED)),
    "it failed just now": ([], (WITHDRAWN, ENDED, lambda view: of_job(fence_again_ms=view.now_ms + 1)(view))),
    "it is time again": (FENCE, (WITHDRAWN, ENDED, lambda view: of_job(fence_again_ms=view.now_ms)(view))),
    "it is waived": ([WaiveFence("job")], (WITHDRAWN, ENDED, WAIVED)),
    "it is waived, but has failed": (FENCE, (WITHDRAWN, of_job(failure=FAILED), WAIVED)),
    "another runs": (FENCE, (WITHDRAWN, ENDED, running_first)),
    "another ends, too": (
        [FenceTasks(5, "job", (FIRST, SECOND)), FenceTasks(6, "other", (FIRST, SECOND))],
        (WITHDRAWN, ENDED, of_view(fences=4), another_job),
    ),
}


def test_a_job_that_ends_is_fenced_once_no_task_has_an_active(whole: ClusterView) -> None:
    for case, (found, changes) in FENCES.items():
        actions = decided(whole, *changes)
        assert [each for each in actions if isinstance(each, FenceTasks | WaiveFence)] == found, case
