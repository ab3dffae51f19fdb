"""How far a standby is behind its active, and when a stream is steady. Pure.

Times are seconds of one monotonic clock, which all processes of a machine share.
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
    """The changelog position that it had then."""


def delays(active: Sequence[Written], standby: Sequence[Written], begin: float, end: float) -> list[float]:
    """Return for each commit of the active in [begin, end) how long the standby took to have it, too.

    An active writes its database as soon as the transaction is committed (rule `commit-first`), so this is the time for
    which a promotion would have had to replay that commit. Commits that the standby never had are left out: the
    caller compares the last positions. Both sequences are in the order of time; a delay may be a little below
    0, when the standby was the first to write.
    """
    found: list[float] = []
    place = 0
    before = -1
    for each in active:
        if each.offset <= before:
            # The position was written down again: no commit.
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
    """What was seen at one look at a running contestant."""

    at: float
    ends: tuple[int, ...]
    """End of each output partition, as readers of committed records see it."""
    cpu_seconds: float
    resident_bytes: int = 0


def steady(samples: Sequence[Sample], warm_seconds: float, seconds: float) -> tuple[Sample, Sample] | None:
    """Return the two looks between which the throughput counts; None when too little was seen.

    Both are looks that found new output, for output comes in batches: from the middle of one to the middle of
    another one part of it would be counted with the time of another. The first is the first such look
    ``warm_seconds`` after the first output, the second the last within ``seconds`` of it, or else the next.
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
