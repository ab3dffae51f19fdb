"""Which tasks go into which processor: at the first deployment, and when a running job changes. Pure.

A grouper is a function from tasks and a number of processors to groups. For a running job only the *sizes* of its
groups count: state is expensive to move, so every task stays where it is as far as the sizes allow (as Samza wants to
keep the container mapping when the count changes; SEP-23, part 2).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from standby.errors import BadConfiguration, BrokenInvariant

#: Takes the tasks (partition numbers, ascending) and how many processors there may be, at most as many
#: as tasks; returns the groups, the first for processor 0.
Grouper = Callable[[Sequence[int], int], Sequence[Sequence[int]]]


def balanced(tasks: Sequence[int], processors: int) -> tuple[tuple[int, ...], ...]:
    """Return the tasks dealt out in turn (Samza's group-by-container-count)."""
    return tuple(tuple(tasks[first::processors]) for first in range(processors))


def contiguous(tasks: Sequence[int], processors: int) -> tuple[tuple[int, ...], ...]:
    """Return the tasks cut into blocks of consecutive numbers, the larger blocks first."""
    size, larger = divmod(len(tasks), processors)
    starts = [each * size + min(each, larger) for each in range(processors + 1)]
    return tuple(tuple(tasks[start:end]) for start, end in itertools.pairwise(starts))


#: The values of ``job.grouper`` that need no code of the job.
GROUPERS: Final[Mapping[str, Grouper]] = {"balanced": balanced, "range": contiguous}


def group(tasks: int, count: int, grouper: Grouper) -> dict[int, tuple[int, ...]]:
    """Return processor number → its tasks, ascending, for a job that is not deployed yet.

    There are never more processors than tasks. Raises `BadConfiguration` if the grouper omits a task, repeats one,
    invents one, or returns an empty group or too many groups.
    """
    if tasks < 1 or count < 1:
        raise BadConfiguration(f"{tasks} tasks cannot be put into {count} processors")
    numbers = range(tasks)
    most = min(count, tasks)
    return dict(enumerate(_checked(grouper(numbers, most), tasks, most)))


def singletons(tasks: int) -> dict[int, tuple[int, ...]]:
    """Return one processor for each task, with the task's number (``job.hotstandby.mixed``)."""
    return {each: (each,) for each in range(tasks)}


def regroup(
    present: Mapping[int, tuple[int, ...]], tasks: int, count: int, grouper: Grouper
) -> dict[int, tuple[int, ...]]:
    """Return processor number → its tasks for a job that runs as ``present`` and is to have another shape.

    The groups get the sizes that ``grouper`` gives; for these sizes, as few tasks as possible change their processor.
    Processors that stay keep their numbers, added ones take the lowest free numbers, and those with the highest
    numbers are removed. New tasks, and tasks that must move, go to the smallest groups. For an empty ``present`` the
    result is the grouper's own.
    Raises as `group`, and `BrokenInvariant` when ``present`` has a task twice.
    """
    fresh = group(tasks, count, grouper)
    if not present:
        return fresh
    _no_task_twice(present)
    numbers = sorted(present)[: len(fresh)]
    numbers += _lowest_free(numbers, len(fresh) - len(numbers))
    held = {each: [task for task in present.get(each, ()) if task < tasks] for each in numbers}

    # Largest group to largest size keeps the most: for any two groups a >= b and sizes s >= t,
    # min(a, s) + min(b, t) is at least min(a, t) + min(b, s).
    by_size = sorted(numbers, key=lambda each: (-len(held[each]), each))
    sizes = dict(zip(by_size, sorted(map(len, fresh.values()), reverse=True), strict=True))

    # The newest tasks move, so that repeated changes move the same few.
    kept = {each: sorted(held[each])[: sizes[each]] for each in numbers}
    placed = {task for each in kept.values() for task in each}
    smallest = [(len(kept[each]), each) for each in numbers if len(kept[each]) < sizes[each]]
    heapq.heapify(smallest)
    for task in range(tasks):
        if task not in placed:
            size, number = heapq.heappop(smallest)
            kept[number].append(task)
            if size + 1 < sizes[number]:
                heapq.heappush(smallest, (size + 1, number))
    return {each: tuple(sorted(kept[each])) for each in sorted(numbers)}


def _checked(groups: Sequence[Sequence[int]], tasks: int, most: int) -> tuple[tuple[int, ...], ...]:
    """Return ``groups``, each ascending; raises `BadConfiguration` if they are not a partition of the tasks."""
    try:
        found = [[*each] for each in groups]
    except TypeError:
        raise BadConfiguration(f"job.grouper: returned {groups!r}, which is not a list of groups") from None
    if len(found) > most:
        raise BadConfiguration(f"job.grouper: returned {len(found)} groups; {most} were asked for")
    seen: set[int] = set()
    for number, each in enumerate(found):
        if not each:
            raise BadConfiguration(f"job.grouper: group {number} is empty")
        for task in each:
            # bool is an int in Python, and True would pass for task 1.
            if type(task) is not int or not 0 <= task < tasks:
                raise BadConfiguration(f"job.grouper: group {number} has {task!r}, which is not a task")
            if task in seen:
                raise BadConfiguration(f"job.grouper: task {task} is in two places")
            seen.add(task)
    if len(seen) < tasks:
        missing = min(set(range(tasks)) - seen)
        raise BadConfiguration(f"job.grouper: {tasks - len(seen)} tasks are in no group, {missing} the first")
    return tuple(tuple(sorted(each)) for each in found)


def _no_task_twice(present: Mapping[int, tuple[int, ...]]) -> None:
    seen: dict[int, int] = {}
    for number, tasks in present.items():
        for task in tasks:
            if task in seen:
                raise BrokenInvariant(f"one_processor_a_task: task {task} is in {seen[task]} and in {number}")
            seen[task] = number


def _lowest_free(taken: Sequence[int], count: int) -> list[int]:
    """Return the ``count`` lowest numbers that are not in ``taken``."""
    used = set(taken)
    return list(itertools.islice((number for number in itertools.count() if number not in used), count))
