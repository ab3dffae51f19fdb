"""When a job gets another model, and when a processor of it is parked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from appmaster.planning.jobs.models import exhaustions, next_model, too_often, writes
from appmaster.planning.state.actions import Action, WriteModel
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import OnExhausted, PlannerPolicy
from appmaster.planning.state.model import JobModel, SharedSlotId
from appmaster.planning.state.reasons import FailureReason, Reason, Setback, SetbackKind
from appmaster.planning.state.view import ClusterView
from standby.shared.model import Fault, InputFailures, Phase, ProcessorId, SlotId
from tests.unit.appmaster.planning.views import (
    FIRST,
    ONE,
    PARKED,
    PROCESSOR,
    PROCESSORS,
    SECOND,
    TASKS,
    UNSETTLED,
    Change,
    changed,
    of_holder,
    of_job,
    of_model,
    of_records,
    of_status,
    of_view,
    turned,
    without_container,
)

# ---- the model that is asked for ----


def grown(view: ClusterView) -> ClusterView:
    """Have the job ask for fewer copies of its tasks."""
    spec = replace(view.jobs["job"].spec, standbys=0)
    return of_job(spec=spec, is_model_right=False)(view)


def model(view: ClusterView, *changes: Change) -> tuple[JobModel, str]:
    view = changed(view, *changes)
    return next_model(view, view.jobs["job"])


def copies(found: JobModel) -> list[tuple[int, ...]]:
    return [each.copies for each in found.processors.values()]


def test_a_model_that_is_right_stays(whole: ClusterView) -> None:
    assert model(whole) == (whole.jobs["job"].model, "")
    assert model(whole, grown, of_job(is_model_right=True)) == (whole.jobs["job"].model, "")


def test_the_first_model_is_what_the_job_asks_for(whole: ClusterView) -> None:
    empty = of_job(model=JobModel("job", {}, version=0), is_model_right=False)
    found, why = model(whole, empty, of_view(records={}))
    assert (found.version, copies(found), why) == (1, [(0, 1, 2)], "the first model")


def test_the_active_copy_is_kept_by_a_changed_model(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[int, tuple[Change, ...]]] = {
        "as it is": (0, ()),
        "another one": (2, (of_records(FIRST, SECOND, active=2),)),
        "that of the first task": (2, (of_records(FIRST, active=2),)),
        "none": (0, (of_records(FIRST, SECOND, active=None),)),
        "not known": (0, (of_view(records={}),)),
    }
    for case, (kept, changes) in cases.items():
        found, why = model(whole, grown, *changes)
        assert (found.version, copies(found), why) == (2, [(kept,)], "the job's configuration has changed"), (
            case
        )


def test_a_processor_without_tasks_has_no_active(three: ClusterView) -> None:
    processors = three.jobs["job"].model.processors
    emptied = {**processors, PROCESSORS[1]: replace(processors[PROCESSORS[1]], tasks=())}
    found, _ = model(three, of_model(processors=emptied), of_job(is_model_right=False))
    assert copies(found) == [(0, 1)] * 3


# ---- what makes a processor fail ----

ENDED: Final = of_holder(0, has_ended=True)
POISON: Final = of_records(SECOND, failures=InputFailures(7, 3, "no number"))
FAILED: Final = of_status(0, SECOND, phase=Phase.FAILED, fault=Fault.POISON, detail="no number")
TWICE: Final = Attempts(failures_ms=(90, 91), last=Setback(SetbackKind.LOST, detail="it ended"))


def failing(*slots: SlotId, attempts: Attempts = TWICE) -> Change:
    return of_view(now_ms=100, attempts=dict.fromkeys(slots, attempts))


LIMIT: Final = of_job(policy=PlannerPolicy(retry_count=1, retry_window_ms=50))
MAY_FAIL: Final = of_job(policy=PlannerPolicy(retry_count=2, retry_window_ms=50))
OTHER: Final = SlotId(ProcessorId("other", "main", 0), 0)

POISONED: Final = [FailureReason.POISON]
NO_ACTIVE: Final = of_records(FIRST, SECOND, active=None)

EXHAUSTED: Mapping[str, tuple[list[FailureReason], tuple[Change, ...]]] = {
    "nothing": ([], (UNSETTLED,)),
    "a slot failed too often": ([FailureReason.TOO_OFTEN], (LIMIT, failing(ONE))),
    "a slot may fail": ([], (MAY_FAIL, failing(ONE))),
    "a slot of another job failed": ([], (LIMIT, failing(OTHER))),
    "tasks fail on their input: the active is lost": (POISONED, (UNSETTLED, POISON, without_container(0))),
    "tasks fail on their input: there is no active": (POISONED, (UNSETTLED, POISON, NO_ACTIVE)),
    "tasks fail on their input: the active has ended": (POISONED, (UNSETTLED, POISON, ENDED)),
    "tasks fail on their input: the active runs still": ([], (UNSETTLED, POISON)),
    "it is settled": ([], (POISON, ENDED)),
    "a task failed on its input": (POISONED, (UNSETTLED, FAILED, ENDED)),
    "a task failed otherwise": ([], (UNSETTLED, FAILED, ENDED, of_status(0, SECOND, fault=Fault.REFUSED))),
    "a task failed before": ([], (UNSETTLED, FAILED, ENDED, of_status(0, SECOND, phase=Phase.TAILING))),
    "a task failed under another epoch": ([], (UNSETTLED, FAILED, ENDED, of_status(0, SECOND, epoch=0))),
    "a record is being written": ([], (UNSETTLED, POISON, ENDED, of_view(writing={FIRST: "1-9"}))),
    "the model has no such processor": ([], (UNSETTLED, POISON, ENDED, of_model(processors={}))),
}


def test_when_a_processor_cannot_succeed(whole: ClusterView) -> None:
    for case, (kinds, changes) in EXHAUSTED.items():
        turn = turned(whole, *changes)
        found = [*exhaustions(turn, turn.view.jobs["job"])]
        assert found == [(PROCESSOR, why) for _, why in found], case
        assert [why.kind for _, why in found] == kinds, case


def test_what_a_task_failed_on_is_told(whole: ClusterView) -> None:
    turn = turned(whole, UNSETTLED, FAILED, ENDED)
    ((_, why),) = exhaustions(turn, turn.view.jobs["job"])
    assert why == Reason(FailureReason.POISON, "job/main.1: no number")
    job = changed(whole, LIMIT).jobs["job"]
    assert str(too_often(job, "job/main:0#1", TWICE)) == (
        "job/main:0#1 failed 2 times within 50 ms, 1 are allowed; the last time: it ended"
    )


def test_what_a_container_of_a_mixed_job_failed_with_parks_no_processor(whole: ClusterView) -> None:
    shared = of_view(now_ms=100, attempts={SharedSlotId("job", 0): TWICE, ONE: TWICE})
    turn = turned(whole, LIMIT, shared)
    assert [each for each, _ in exhaustions(turn, turn.view.jobs["job"])] == [PROCESSOR]


def test_processors_are_judged_in_order_and_those_of_other_jobs_hide_none(three: ClusterView) -> None:
    first = ProcessorId("first", "main", 0)
    slots = (SlotId(PROCESSORS[1], 0), SlotId(PROCESSORS[0], 0))
    poison = of_records(*TASKS[2], failures=InputFailures(7, 3), active=None)
    view = changed(three, LIMIT, failing(*slots), poison, of_view(unsettled=frozenset({first, *PROCESSORS})))
    job = view.jobs["job"]
    view = replace(view, jobs={"first": replace(job, name="first"), "job": job})
    assert [each.number for each, _ in exhaustions(turned(view), job)] == [0, 1, 2]


# ---- what is written ----


def written(view: ClusterView, *changes: Change) -> list[Action]:
    return [*writes(turned(view, *changes))]


PARK: Final = of_job(policy=PlannerPolicy(retry_count=1, retry_window_ms=50, on_exhausted=OnExhausted.PARK))


def parks(view: ClusterView, *changes: Change) -> list[ProcessorId]:
    """Return the processors that are parked in the models that are written."""
    found = written(view, *changes)
    models = [each.model for each in found if isinstance(each, WriteModel)]
    return [processor for each in models for processor in each.parked]


def test_when_a_model_is_written(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
        "it is right": (False, ()),
        "it is not": (True, (grown,)),
        "it is being written": (False, (grown, of_job(is_modelling=True))),
        "its job is over soon": (False, (grown, of_job(is_wanted=False))),
    }
    for case, (is_so, changes) in cases.items():
        assert [type(each) for each in written(whole, *changes)] == ([WriteModel] if is_so else []), case


def test_when_a_processor_is_parked(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[list[ProcessorId], tuple[Change, ...]]] = {
        "it failed too often": ([PROCESSOR], (PARK, failing(ONE))),
        "the job is to fail": ([], (LIMIT, failing(ONE))),
        "it is parked": ([], (PARK, failing(ONE), PARKED)),
        "its job gets another model first": ([], (PARK, failing(ONE), grown)),
    }
    for case, (parked, changes) in cases.items():
        assert parks(whole, *changes) == parked, case


def test_the_reason_is_in_the_model_and_in_the_log(whole: ClusterView) -> None:
    (action,) = written(whole, PARK, failing(ONE))
    assert isinstance(action, WriteModel)
    assert action.reason == str(action.model.processors[PROCESSOR].parked)
    assert action.model.version == 2


def test_one_processor_is_parked_at_a_time(three: ClusterView) -> None:
    slots = tuple(SlotId(each, 0) for each in PROCESSORS)
    assert parks(three, PARK, failing(*slots)) == [PROCESSORS[0]]
    processors = three.jobs["job"].model.processors
    first = replace(processors[PROCESSORS[0]], parked=Reason(FailureReason.POISON))
    parked = of_model(processors={**processors, PROCESSORS[0]: first})
    assert parks(three, PARK, parked, failing(*slots)) == [*PROCESSORS[:2]]


@pytest.mark.parametrize("change", [grown, of_job(is_modelling=True), LIMIT])
def test_one_job_hides_no_other(whole: ClusterView, change: Change) -> None:
    job = changed(whole, PARK).jobs["job"]
    first = replace(changed(whole, change).jobs["job"], name="first")
    jobs = of_view(jobs={"first": first, "job": job})
    found = written(whole, jobs, failing(ONE))
    assert [each.job for each in found if isinstance(each, WriteModel)][-1] == "job"
