"""The gap in the output that a failure or a hand-over caused, from the brokers' timestamps of the records. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

#: Partition → the LogAppendTime of each output record of its task, Unix milliseconds, ascending.
Appends = Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A failure or hand-over that was caused, and the period of its effects; Unix milliseconds."""

    tasks: tuple[int, ...]
    """Partitions whose actives were lost or moved."""
    calm_from_ms: int
    """Start of the undisturbed time before it, with input at the same rate."""
    begun_ms: int
    """Just before the first signal was sent."""
    done_ms: int
    """When the failure was complete: later output comes from a successor.

    A host's ports are silenced after its processes, which may take longer than the takeover."""
    restored_ms: int
    """When every replica was in sync again."""
    settled_ms: int
    """When the new standbys were warm as well, and used no more than their normal share of the machine."""
    fenced_ms: Mapping[int, int] = field(default_factory=dict)
    """Partition → when the former active was fenced; if known, it replaces ``done_ms``."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The silence of one task around a failure."""

    partition: int
    last_ms: int
    """Its last output before the failure, Unix milliseconds."""
    first_ms: int
    """Its first output after it."""

    @property
    def length_ms(self) -> int:
        """Return the time without output."""
        return self.first_ms - self.last_ms


def gaps(disturbance: Disturbance, appends: Appends) -> tuple[Gap, ...]:
    """Return the gap of each affected task with output before and after the failure, longest first."""
    found = []
    for partition in disturbance.tasks:
        times = appends.get(partition, ())
        after = bisect_right(times, disturbance.fenced_ms.get(partition, disturbance.done_ms))
        if 0 < after < len(times):
            found.append(Gap(partition, times[after - 1], times[after]))
    return tuple(sorted(found, key=lambda gap: -gap.length_ms))


def longest_before_ms(disturbance: Disturbance, appends: Appends) -> dict[int, int]:
    """Return the longest interval between two outputs of each affected task in the undisturbed time before the failure.

    This is the reference for a gap: the same task, the same rate, the same machine a moment earlier. A task with fewer
    than two outputs in that time has none.
    """
    longest = longest_between_ms(appends, disturbance.calm_from_ms, disturbance.begun_ms)
    return {partition: longest[partition] for partition in disturbance.tasks if partition in longest}


def longest_between_ms(appends: Appends, begin_ms: int, end_ms: int) -> dict[int, int]:
    """Return the longest interval between two outputs of each task in a time; a task with fewer than two has none."""
    found = {}
    for partition, times in appends.items():
        within = times[bisect_left(times, begin_ms) : bisect_left(times, end_ms)]
        if len(within) > 1:
            found[partition] = max(after - before for before, after in pairwise(within))
    return found
