"""What of a job's code is known to run, at each moment."""

from __future__ import annotations

from contextlib import nullcontext

from standby.kernel.marks import Marks
from standby.shared.exits import Ran
from standby.shared.model import Offsets, TaskId

ONE, TWO, OTHER = TaskId("job", "main", 1), TaskId("job", "main", 2), TaskId("other", "main", 1)


def test_only_a_step_or_a_transform_that_runs_can_have_ended_the_process() -> None:
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


def test_nothing_runs_while_a_feed_waits_for_input() -> None:
    """One task is fed, and a library ends the process: its input had not been handed out."""
    kept: list[tuple[Ran, ...]] = [()]
    marks = Marks(lambda ran, _: kept.append(ran))
    marks.feed("job", (ONE,))
    assert kept[-1] == ()


def test_nothing_ran_where_a_process_ends_for_another_reason() -> None:
    kept: list[tuple[Ran, ...]] = []
    marks = Marks(lambda ran, _: kept.append(ran))
    with marks.step(ONE, Offsets.of(5)):
        marks.forget()
    with marks.step(ONE, Offsets.of(6)):
        pass
    assert kept == [(Ran(ONE, 5),), ()]


def test_a_dead_child_is_put_down_to_whom_its_feed_was_at_work_for_last() -> None:
    kept: list[tuple[tuple[Ran, ...], int | None]] = []
    marks = Marks(lambda *entry: kept.append(entry))
    marks.feed("job", (TWO,))
    marks.feed("job", (ONE,))
    marks.feed("other", (OTHER,))
    with marks.step(ONE, Offsets.of(5)):
        marks.lose_child("job", -9)
    assert kept[-1] == ((Ran(ONE),), -9), "neither the step nor the other job's feed ended the child"


def test_a_dead_child_that_has_had_no_input_is_put_down_to_nobody() -> None:
    kept: list[tuple[tuple[Ran, ...], int | None]] = []
    marks = Marks(lambda *entry: kept.append(entry))
    marks.feed("job", (ONE,))
    marks.lose_child("job", -9, has_run=False)
    assert kept[-1] == ((), -9)


def test_a_feed_that_does_not_end_is_put_down_to_the_step_that_runs_and_else_to_all_that_it_is_at_work_for() -> (
    None
):
    kept: list[tuple[Ran, ...]] = []
    for is_stepping in (True, False):
        marks = Marks(lambda ran, _: kept.append(ran))
        marks.feed("job", (ONE, TWO))
        with marks.step(TWO, Offsets.of(7)) if is_stepping else nullcontext():
            marks.hang_in_child("job")
        assert kept[-1] == ((Ran(TWO, 7),) if is_stepping else (Ran(ONE), Ran(TWO)))


def test_a_feed_that_does_not_end_and_whose_child_has_had_no_input_is_put_down_to_a_step_only() -> None:
    kept: list[tuple[Ran, ...]] = []
    for is_stepping in (True, False):
        marks = Marks(lambda ran, _: kept.append(ran))
        marks.feed("job", (ONE, TWO))
        with marks.step(TWO, Offsets.of(7)) if is_stepping else nullcontext():
            marks.hang_in_child("job", has_run=False)
        assert kept[-1] == ((Ran(TWO, 7),) if is_stepping else ())
