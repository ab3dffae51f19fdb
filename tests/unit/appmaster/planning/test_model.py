"""The model that a job's configuration asks for, at first and after changes: processors, their tasks, their copies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.state.model import (
    JobModel,
    JobSpec,
    Processor,
    SharedSlotId,
    Slot,
    SpareSlotId,
    is_right,
    job_of,
    propose,
    vacant_spares,
)
from appmaster.planning.state.reasons import FailureReason, Reason
from standby.errors import BadConfiguration
from standby.shared.model import ProcessorId, SlotId, TaskId

POISON: Final = Reason(FailureReason.POISON)

ZERO, ONE, TWO = (ProcessorId("job", "main", each) for each in range(3))

#: Four tasks in two processors, each with two copies.
SPEC: Final = JobSpec("main", 4, 2, 1)

#: Processor number → its partitions, and its copies.
Shape = Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]


def shape(model: JobModel) -> Shape:
    """Return what a model's processors have."""
    return {
        processor.number: (tuple(task.partition for task in each.tasks), each.copies)
        for processor, each in model.processors.items()
    }


def with_copies(*copies: tuple[int, ...], parked: Sequence[int] = ()) -> JobModel:
    """Return a model of processors with these copies and no tasks, some of them parked."""
    return JobModel(
        "job",
        {
            ProcessorId("job", "main", number): Processor((), each, POISON if number in parked else None)
            for number, each in enumerate(copies)
        },
    )


# ---- slots ----


def test_every_kind_of_slot_belongs_to_a_job() -> None:
    slots: Mapping[str, Slot] = {
        "job/main:0#1": SlotId(ZERO, 1),
        "job:mixed-2": SharedSlotId("job", 2),
        "job:spare-3": SpareSlotId("job", 3),
    }
    for text, slot in slots.items():
        assert (job_of(slot), str(slot)) == ("job", text)


def test_the_spare_slots_that_are_not_used_come_in_order() -> None:
    used: set[Slot | None] = {SpareSlotId("job", 1), SpareSlotId("other", 0), SharedSlotId("job", 2), None}
    vacant = itertools.islice(vacant_spares("job", used), 3)
    assert list(vacant) == [SpareSlotId("job", each) for each in (0, 2, 3)]


def test_all_first_copies_come_before_any_second_one_and_parked_processors_have_no_slot() -> None:
    cases: tuple[tuple[JobModel, list[tuple[int, int]], int], ...] = (
        (with_copies(), [], 0),
        (with_copies((0, 1), (0, 1)), [(0, 0), (1, 0), (0, 1), (1, 1)], 2),
        (with_copies((1, 3), (0,)), [(0, 1), (1, 0), (0, 3)], 2),
        (with_copies((0, 1), (0, 1), parked=(0,)), [(1, 0), (1, 1)], 2),
    )
    for model, slots, copies in cases:
        assert [(each.processor.number, each.copy) for each in model.slots] == slots, model
        assert model.copies == copies, model


# ---- the model ----


def test_a_first_model_has_every_task_once() -> None:
    model = propose("job", SPEC)
    assert model == JobModel(
        "job",
        {
            ZERO: Processor((TaskId("job", "main", 0), TaskId("job", "main", 2)), (0, 1)),
            ONE: Processor((TaskId("job", "main", 1), TaskId("job", "main", 3)), (0, 1)),
        },
    )
    assert [each.partition for each in model.tasks] == [0, 2, 1, 3]
    assert {task.partition: processor for task, processor in model.processor_of.items()} == {
        **dict.fromkeys((0, 2), ZERO),
        **dict.fromkeys((1, 3), ONE),
    }
    assert (model.version, model.znode) == (1, -1)


def test_model_has_at_most_a_processor_for_each_task_and_a_slot_for_each_copy() -> None:
    for containers, tasks, standbys in ((3, 5, 0), (2, 1, 1), (10, 1, 1), (2, 10, 1), (3, 5, 2), (10, 10, 3)):
        model = propose("job", JobSpec("main", tasks, containers, standbys))
        case = (containers, tasks, standbys)
        assert len(model.processors) == min(containers, tasks), case
        assert all(each.tasks for each in model.processors.values()), case
        assert sorted(model.tasks) == [TaskId("job", "main", each) for each in range(tasks)], case
        slots = [SlotId(each, copy) for each in model.processors for copy in range(1 + standbys)]
        assert sorted(map(str, model.slots)) == sorted(map(str, slots)), case


@pytest.mark.parametrize(
    ("spec", "expected", "containers"),
    [
        (JobSpec("main", 2, 1, 0, is_mixed=True), {0: ((0,), (0,)), 1: ((1,), (0,))}, 1),
        (JobSpec("main", 1, 3, 2, is_mixed=True), {0: ((0,), (0, 1, 2))}, 3),
    ],
)
def test_a_mixed_job_has_a_processor_for_each_task_and_containers_apart_from_them(
    spec: JobSpec, expected: Shape, containers: int
) -> None:
    model = propose("job", spec)
    assert (shape(model), model.is_mixed, model.containers) == (expected, True, containers)


def test_what_is_asked_for_already_is_the_present_model_itself() -> None:
    present = propose("job", SPEC)
    assert propose("job", SPEC, present) is present


def test_two_models_are_equal_whether_or_not_they_are_written() -> None:
    assert propose("job", SPEC) == replace(propose("job", SPEC), znode=7)


def test_a_change_is_the_next_version() -> None:
    present = replace(propose("job", SPEC), version=4, znode=7)
    cases: tuple[tuple[dict[str, Any], Shape], ...] = (
        ({"tasks": 5}, {0: ((0, 2, 4), (0, 1)), 1: ((1, 3), (0, 1))}),
        ({"containers": 3}, {0: ((0, 2), (0, 1)), 1: ((1,), (0, 1)), 2: ((3,), (0, 1))}),
        ({"standbys": 2}, {0: ((0, 2), (0, 1, 2)), 1: ((1, 3), (0, 1, 2))}),
        ({"standbys": 0}, {0: ((0, 2), (0,)), 1: ((1, 3), (0,))}),
    )
    for changes, expected in cases:
        model = propose("job", replace(SPEC, **changes), present)
        assert (shape(model), model.version, model.znode) == (expected, 5, 7), changes


def test_a_mixed_job_with_other_containers_is_the_next_version() -> None:
    mixed = replace(SPEC, is_mixed=True)
    present = propose("job", mixed)
    model = propose("job", replace(mixed, containers=3), present)
    assert (model.processors, model.containers, model.version) == (present.processors, 3, 2)


def test_a_job_that_becomes_mixed_keeps_the_copies_and_the_numbers_that_it_has() -> None:
    model = propose("job", replace(SPEC, is_mixed=True), propose("job", SPEC), {ZERO: 1})
    assert (model.is_mixed, model.containers, model.version) == (True, 2, 2)
    assert shape(model) == {each: ((each,), (0, 1)) for each in range(4)}


@pytest.mark.parametrize(
    ("present", "standbys", "active", "expected"),
    [
        ((0, 1, 2), 1, 0, (0, 1)),
        ((0, 1, 2), 1, 2, (0, 2)),
        ((0, 1, 2), 0, 1, (1,)),
        ((0, 1, 2), 0, None, (0,)),
        ((2,), 1, 2, (0, 2)),
        ((0, 2), 2, 2, (0, 1, 2)),
        ((1, 2), 2, 1, (0, 1, 2)),
        ((3,), 3, 3, (0, 1, 2, 3)),
    ],
)
def test_the_highest_copies_go_but_never_the_active_one_and_the_lowest_free_numbers_are_added(
    present: tuple[int, ...], standbys: int, active: int | None, expected: tuple[int, ...]
) -> None:
    tasks = tuple(TaskId("job", "main", each) for each in range(2))
    model = JobModel("job", {ZERO: Processor(tasks, present)})
    actives = {ZERO: active} if active is not None else None
    assert propose("job", JobSpec("main", 2, 1, standbys), model, actives).processors[ZERO].copies == expected


# ---- parking ----


def test_a_processor_is_parked_and_unparked_by_a_version_of_its_own_and_stays_so_after_other_changes() -> (
    None
):
    parked = propose("job", SPEC).parking(ONE, POISON)
    assert (parked.parked, parked.version) == ({ONE: POISON}, 2)
    larger = propose("job", replace(SPEC, containers=3), parked)
    assert larger.parked == {ONE: POISON}
    assert list(larger.processors) == [ZERO, ONE, TWO]
    assert parked.parking(ONE, None) == replace(propose("job", SPEC), version=3)


# ---- whether a model is right ----


def refuses(tasks: Sequence[int], processors: int) -> Sequence[Sequence[int]]:
    """Refuse to group."""
    raise BadConfiguration("no zone")


EMPTY: Final = JobModel("job", {}, version=0)

RIGHT: Mapping[str, tuple[bool, JobModel, Mapping[str, Any]]] = {
    "it is what is asked for": (True, propose("job", SPEC), {}),
    "a task is missing": (False, propose("job", SPEC), {"tasks": 5}),
    "it is not known how many tasks there are": (True, propose("job", SPEC), {"tasks": 0}),
    "there is none yet": (False, EMPTY, {}),
    "there is none yet, and nothing is known": (True, EMPTY, {"tasks": 0}),
    "the first of one task": (True, propose("job", JobSpec("main", 1, 2, 1)), {"tasks": 1}),
    "there is none yet for one task": (False, EMPTY, {"tasks": 1}),
    "the grouper refuses": (True, propose("job", SPEC), {"grouper": refuses}),
    "there is none yet, and the grouper refuses": (False, EMPTY, {"grouper": refuses}),
}


def test_a_model_is_right_if_nothing_is_asked_for_or_can_be_given_beyond_it() -> None:
    for case, (expected, model, changes) in RIGHT.items():
        assert is_right(model, replace(SPEC, **changes)) is expected, case
