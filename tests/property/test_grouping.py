"""Regrouping: a partition of the tasks, of the right sizes, with as few moves as there can be."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
from hypothesis import given, settings

from appmaster.planning.state.grouping import GROUPERS, Grouper, balanced, group, regroup
from tests.examples import examples

PROPERTY = settings(max_examples=examples(150))


@st.composite
def running(draw: st.DrawFn) -> dict[int, tuple[int, ...]]:
    """Return any grouping that a job may have come to, numbers with gaps included."""
    tasks = draw(st.integers(0, 12))
    numbers = draw(st.lists(st.integers(0, 8), min_size=1, max_size=6, unique=True))
    places = draw(st.lists(st.sampled_from(numbers), min_size=tasks, max_size=tasks))
    return {
        number: tuple(task for task, place in enumerate(places) if place == number)
        for number in sorted(numbers)
    }


def skewed(tasks: Sequence[int], processors: int) -> Sequence[Sequence[int]]:
    """One large group, and the rest as small as can be."""
    first = len(tasks) - processors + 1
    return [tasks[:first], *([each] for each in tasks[first:])]


def moved(before: Mapping[int, tuple[int, ...]], after: Mapping[int, tuple[int, ...]]) -> set[int]:
    """Return the tasks of ``before`` that are in another processor in ``after``."""
    old = {task: number for number, tasks in before.items() for task in tasks}
    return {task for number, tasks in after.items() for task in tasks if old.get(task, number) != number}


GROUPER = st.sampled_from([*GROUPERS.values(), skewed])


def least_moves(
    present: Mapping[int, tuple[int, ...]], tasks: int, kept: set[int], sizes: Sequence[int]
) -> int:
    """Return how few tasks can leave their processor when ``kept`` stay: the best of all ways to give sizes out."""
    leaving = sum(task < tasks for number, group in present.items() if number not in kept for task in group)
    held = [sum(task < tasks for task in present[number]) for number in sorted(kept)]
    return leaving + min(
        sum(max(0, has - size) for has, size in zip(held, order, strict=False))
        for order in set(itertools.permutations(sizes, len(held)))
    )


@PROPERTY
@given(present=running(), tasks=st.integers(1, 14), count=st.integers(1, 6), grouper=GROUPER)
def test_regrouping_moves_the_least(
    present: dict[int, tuple[int, ...]], tasks: int, count: int, grouper: Grouper
) -> None:
    after = regroup(present, tasks, count, grouper)

    assert sorted(task for group_tasks in after.values() for task in group_tasks) == list(range(tasks))
    sizes = sorted(map(len, group(tasks, count, grouper).values()))
    assert sorted(map(len, after.values())) == sizes
    kept = set(present) & set(after)
    assert len(moved(present, after)) == least_moves(present, tasks, kept, sizes)


@PROPERTY
@given(present=running(), tasks=st.integers(1, 14), count=st.integers(1, 6), grouper=GROUPER)
def test_numbers_that_stay_are_the_lowest_and_new_ones_too(
    present: dict[int, tuple[int, ...]], tasks: int, count: int, grouper: Grouper
) -> None:
    after = regroup(present, tasks, count, grouper)
    kept = [number for number in present if number in after]
    assert kept == sorted(present)[: len(after)]
    new = sorted(set(after) - set(present))
    free = (number for number in itertools.count() if number not in kept)
    assert new == list(itertools.islice(free, len(new)))


@PROPERTY
@given(present=running(), tasks=st.integers(1, 14), count=st.integers(1, 6), grouper=GROUPER)
def test_regrouping_is_stable_and_independent_of_order(
    present: dict[int, tuple[int, ...]], tasks: int, count: int, grouper: Grouper
) -> None:
    after = regroup(present, tasks, count, grouper)
    assert regroup(after, tasks, count, grouper) == after
    mirrored = {number: group_tasks[::-1] for number, group_tasks in reversed(list(present.items()))}
    assert regroup(mirrored, tasks, count, grouper) == after


@PROPERTY
@given(tasks=st.integers(1, 14), more=st.integers(0, 10), count=st.integers(1, 6))
def test_growing_input_moves_nothing(tasks: int, more: int, count: int) -> None:
    present = group(tasks, count, balanced)
    # Fewer tasks than containers: the processors that were missing may now come, and take what is new.
    after = regroup(present, tasks + more, count, balanced)
    assert moved(present, after) == set()
    sizes = [len(each) for each in after.values()]
    assert max(sizes) - min(sizes) <= 1
