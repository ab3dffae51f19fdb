"""The effects of a failure in the outputs: each task's silence, lost records, duplicates. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """One output record of a live key."""

    key: int
    number: int
    """The key's count: 1 for its first record, and one more for each further one."""
    due: int
    """When its record was due, Unix nanoseconds."""
    at: int
    """When it could be read, Unix nanoseconds."""


@dataclass(frozen=True, slots=True)
class Exactness:
    """The errors of all outputs together."""

    lost: int
    doubled: int


def exactness(outputs: Iterable[tuple[int, int]], sent: int) -> Exactness:
    """Return what is missing and duplicate in ``outputs`` (key, count) after ``sent`` records were written.

    Each key's counts must be 1, 2, 3 and so on, once each, and the last counts must add up to ``sent``. A gap is a lost
    output. If the sum is less, input was lost; if it is more, input was counted twice. An output that occurs twice was
    sent twice.
    """
    times = Counter(outputs)
    highest: dict[int, int] = {}
    for key, number in times:
        highest[key] = max(highest.get(key, 0), number)
    counted = sum(highest.values())
    holes, copies = counted - len(times), sum(times.values()) - len(times)
    return Exactness(lost=holes + max(0, sent - counted), doubled=copies + max(0, counted - sent))


def are_past(outputs: Sequence[Seen], wanted: Collection[int], tasks: int, since: int) -> bool:
    """Return whether each task of ``wanted`` has an output whose record was due after ``since``, Unix nanoseconds.

    ``outputs`` are in order of arrival. The input that waited before such a record has then been processed.
    """
    found: set[int] = set()
    for each in reversed(outputs):
        # An output that arrived before that moment cannot have been due after it.
        if each.at < since or found.issuperset(wanted):
            break
        if each.due > since:
            found.add(each.key % tasks)
    return found.issuperset(wanted)


def silences(outputs: Sequence[Seen], tasks: int, begin: int, end: int) -> dict[int, float]:
    """Return each task's longest time without a new output, seconds, of those that reach into [begin, end).

    A task without any output after ``begin`` was silent from its last one until ``end``. A key belongs to the task
    with its number modulo ``tasks``.
    """
    last = dict.fromkeys(range(tasks), begin)
    longest = dict.fromkeys(range(tasks), 0)
    for each in sorted(outputs, key=lambda each: each.at):
        task = each.key % tasks
        if each.at >= end:
            break
        if each.at >= begin:
            longest[task] = max(longest[task], each.at - last[task])
        last[task] = each.at
    for task, at in last.items():
        longest[task] = max(longest[task], end - at)
    return {task: each / 1e9 for task, each in longest.items()}
