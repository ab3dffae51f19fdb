"""Measures how far a replica is behind the changelog, in time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

_SAMPLES: Final = 64


class LagClock:
    """Determines since when a replica has been behind the changelog's end.

    The lag is the time since the replica last had everything that existed. Each observed end is recorded with its
    time. When the position has reached a recorded end, the replica counts as having been at the end at that time.
    """

    def __init__(self) -> None:
        #: The newest observation, and every `_stride`-th of the earlier ones.
        self._ends: deque[tuple[int, int]] = deque()
        self._stride = 1
        self._looks = 0
        self._at_end_ms: int | None = None

    def end_seen(self, end: int, at_ms: int) -> None:
        """Record that the changelog ended at ``end`` at ``at_ms`` (the time of the request, not of the answer)."""
        newest = self._ends[-1][1] if self._ends else self._at_end_ms
        if newest is not None and at_ms < newest:
            # The host's clock was set back. Cap earlier times at this one: otherwise the replica would count as not
            # behind until the clock has caught up.
            self._ends = deque((noted, min(noted_ms, at_ms)) for noted, noted_ms in self._ends)
            if self._at_end_ms is not None:
                self._at_end_ms = min(self._at_end_ms, at_ms)
        if not self._ends:
            self._stride = self._looks = 1
        elif self._looks % self._stride:
            # The newest observation is always kept; those between two kept ones are not needed.
            self._ends.pop()
        elif len(self._ends) == _SAMPLES:
            # This reduces the precision for a replica that is far behind, evenly over the whole range.
            self._ends = deque(list(self._ends)[::2])
            self._stride *= 2
        self._looks += 1
        self._ends.append((end, at_ms))

    def applied(self, position: int) -> int | None:
        """Return when (Unix milliseconds) the replica last had everything; None when that is not known.

        ``position`` is the changelog offset applied up to.
        """
        while self._ends and self._ends[0][0] <= position:
            self._at_end_ms = self._ends.popleft()[1]
        return self._at_end_ms

    def lag_ms(self, position: int, now_ms: int) -> int | None:
        """Return for how long the replica has been behind, 0 when it is not; None when not known."""
        at_end = self.applied(position)
        if not self._ends:
            return None if at_end is None else 0
        if at_end is None:
            return max(0, now_ms - self._ends[0][1])
        return max(0, now_ms - at_end)


def mean_bytes(changes: Sequence[tuple[bytes, bytes | None]], before: float | None) -> float | None:
    """Return the mean size of some changelog records, key and value; ``before`` when there are none."""
    if not changes:
        return before
    return sum(len(key) + len(value or b"") for key, value in changes) / len(changes)
