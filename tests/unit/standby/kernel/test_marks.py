"""What of a job's code is known to run, at each moment."""

from __future__ import annotations

from standby.kernel.marks import Marks
from standby.model import Offsets, TaskId
from standby.process.ended import Ran

ONE, TWO, OTHER = TaskId("job", "main", 1), TaskId("job", "main", 2), TaskId("other", "main", 1)


def test_a_step_is_alone_and_a_feed_is_all_of_its_tasks() -> None:
    kept: list[tuple[Ran, ...]] = []
    marks = Marks(lambda ran, _: kept.append(ran))
    marks.feed("job", (TWO, ONE))
    with marks.step(TWO, Offsets.of(4, 3)):
        marks.feed("other", (OTHER,))
        marks.feed("other", ())
    marks.feed("job", ())
    assert kept == [
        (Ran(ONE), Ran(TWO)),
        (Ran(TWO, 7),),
        (Ran(TWO, 7), Ran(OTHER)),  # another job's feed is at work beside it
        (Ran(TWO, 7),),
        (Ran(ONE), Ran(TWO)),
        (),
    ]


def test_nothing_ran_where_a_process_ends_for_another_reason() -> None:
    kept: list[tuple[Ran, ...]] = []
    marks = Marks(lambda ran, _: kept.append(ran))
    with marks.step(ONE, Offsets.of(5)):
        marks.forget()
    marks.feed("job", (ONE,))
    assert kept == [(Ran(ONE, 5),), ()]


def test_a_dead_child_is_put_down_to_whom_the_feed_was_at_work_for_last() -> None:
    kept: list[tuple[tuple[Ran, ...], int | None]] = []
    marks = Marks(lambda *entry: kept.append(entry))
    marks.feed("job", (ONE,))
    with marks.step(ONE, Offsets.of(5)):
        marks.lose_child(-9)
        assert kept[-1] == ((Ran(ONE),), -9), "the step did not end the child"
        marks.feed("job", ())
    assert kept[-1] == ((Ran(ONE),), -9), "the feed has ended of that"
