"""What of a job's code is known to run, at each moment."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from standby.kernel.marks import Marks
from standby.shared.exits import Ran
from standby.shared.model import Offsets, TaskId

ONE, TWO, OTHER = TaskId("job", "main", 1), TaskId("job", "main", 2), TaskId("other", "main", 1)


def test_only_a_step_or_a_transform_that_runs_can_have_ended_the_process() -> None:
    """Not a feed that waits for input: where a library ends the process, none had been handed out."""
    kept: list[tuple[Ran, ...]] = []
    marks = Marks(lambda ran, _: kept.append(ran))
    marks.feed("job", (TWO, ONE))
    with marks.transform({TWO: Offsets.of(4, 3), ONE: Offsets.of(5)}):
        pass
    with marks.step(TWO, Offsets.of(4, 3)), marks.step(OTHER, Offsets.of(1)):
        pass
    assert kept == [
        (Ran(ONE, 5), Ran(TWO, 7)),
        (),
        (Ran(TWO, 7),),
        (Ran(TWO, 7), Ran(OTHER, 1)),  # another job's step runs beside it
        (Ran(TWO, 7),),
        (),
    ]


def test_nothing_ran_where_a_process_ends_for_another_reason() -> None:
    kept: list[tuple[Ran, ...]] = []
    marks = Marks(lambda ran, _: kept.append(ran))
    with marks.step(ONE, Offsets.of(5)):
        marks.forget()
    with marks.step(ONE, Offsets.of(6)):
        pass
    assert kept == [(Ran(ONE, 5),), ()]


@pytest.mark.parametrize("has_run", [True, False])
def test_a_dead_child_is_put_down_to_whom_its_feed_was_at_work_for_last_and_had_given_it_input(
    has_run: bool,
) -> None:
    kept: list[tuple[tuple[Ran, ...], int | None]] = []
    marks = Marks(lambda *entry: kept.append(entry))
    for job, task in (("job", TWO), ("job", ONE), ("other", OTHER)):
        marks.feed(job, (task,))
    with marks.step(ONE, Offsets.of(5)):
        marks.lose_child("job", -9, has_run=has_run)
    told = (Ran(ONE),) if has_run else ()
    assert kept[-1] == (told, -9), "neither the step nor the other job's feed ended the child"


@pytest.mark.parametrize("has_run", [True, False])
def test_a_feed_that_does_not_end_is_put_down_to_the_step_that_runs_and_else_to_all_whose_input_its_child_had(
    has_run: bool,
) -> None:
    kept: list[tuple[Ran, ...]] = []
    for is_stepping in (True, False):
        marks = Marks(lambda ran, _: kept.append(ran))
        marks.feed("job", (ONE, TWO))
        with marks.step(TWO, Offsets.of(7)) if is_stepping else nullcontext():
            marks.hang_in_child("job", has_run=has_run)
        else_to = (Ran(ONE), Ran(TWO)) if has_run else ()
        assert kept[-1] == ((Ran(TWO, 7),) if is_stepping else else_to)
