"""The lag of a standby behind its active, and the steady part of a stream. Pure.

Times are seconds of the monotonic clock that all processes of a machine share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Written:
    """A state's database was written."""

    at: float
    offset: int
    """Its changelog position at that time."""


def delays(active: Sequence[Written], standby: Sequence[Written], begin: float, end: float) -> list[float]:
    """Return for each commit of the active in [begin, end) the delay until the standby had it.

    An active writes its database as soon as the transaction is committed (rule `commit-first`). So during this delay a
    promotion would have had to replay the commit. Commits that the standby never received are omitted: the caller
    compares the last positions. Both sequences are in order of time; a delay may be slightly negative if the standby
    was the first to write.
    """
    found: list[float] = []
    place = 0
    before = -1
    for each in active:
        if each.offset <= before:
            # The same position was written again: not a commit.
            continue
        before = each.offset
        while place < len(standby) and standby[place].offset < each.offset:
            place += 1
        if place == len(standby):
            break
        if begin <= each.at < end:
            found.append(standby[place].at - each.at)
    return found


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a running contestant."""

    at: float
    ends: tuple[int, ...]
    """End of each output partition, as readers of committed records see it."""
    cpu_seconds: float
    resident_bytes: int = 0


def steady(samples: Sequence[Sample], warm_seconds: float, seconds: float) -> tuple[Sample, Sample] | None:
    """Return the two samples between which the throughput is computed; None if there are too few.

    Both samples found new output, because output arrives in batches: between the middles of two batches, records of one
    would be counted with the time of another. The first is the first such sample ``warm_seconds`` after the first
    output. The second is the last one within ``seconds`` of it, otherwise the next.
    """
    news = [now for before, now in pairwise(samples) if now.ends != before.ends]
    if not news:
        return None
    warm = [each for each in news if each.at >= news[0].at + warm_seconds]
    if len(warm) < 2:
        return None
    first, *later = warm
    inside = [each for each in later if each.at <= first.at + seconds]
    return first, (inside[-1] if inside else later[0])
