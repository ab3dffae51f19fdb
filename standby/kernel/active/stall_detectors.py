"""Detects actives, and replicas that are becoming active, that make no progress (rule `never-block`)."""

from __future__ import annotations

from standby.kernel.active.active import ActiveTask
from standby.kernel.replay.ends import EndOffset
from standby.replica.lag import LagClock


class InputLag:
    """Measures how long a task has been behind the end of its input, across several claims of its active."""

    def __init__(self) -> None:
        self._clock = LagClock()
        self._asked_ms = -1
        self._committed: int | None = None
        self.ms: int | None = None
        """Milliseconds, as of the last update; None: not known."""

    def look(self, committed: int | None, end: EndOffset | None, now_ms: int) -> None:
        """Update with the committed position and the input's end, where they are known; ``now_ms`` is Unix time."""
        if committed is not None:
            self._committed = committed
        if end is not None and end.asked_ms != self._asked_ms:
            self._asked_ms = end.asked_ms
            self._clock.end_seen(end.offset, end.asked_ms)
        found = self._clock.lag_ms(self._committed, now_ms) if self._committed is not None else None
        # Without a current end, a lag of 0 is not known to be true: keep only a positive one.
        self.ms = found if end is not None or found else None


class InputStallDetector:
    """Remembers since when there has been pending input without a commit. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._behind_since: float | None = None
        self._seen = (-1, 0)  # tries, and batches

    def is_stuck(
        self, active: ActiveTask | None, end: EndOffset | None, now: float, timeout_seconds: float
    ) -> bool:
        """Return whether ``active`` has had pending input but no commit for too long.

        While the input's end is unknown (the broker is away), it does not count as stuck.
        """
        if active is None or end is None or end.offset <= active.committed.total:
            self._behind_since = None
            return False
        # Retries after a failure of the job's code are governed by `task.on.error`. The results of one record may
        # take many commits. Committing the same offsets again is not progress.
        seen = (active.tries, active.batches)
        if self._behind_since is None or self._seen != seen:
            self._behind_since, self._seen = now, seen
        return now - self._behind_since > timeout_seconds


class PromotionStallDetector:
    """Remembers since when a replica that is becoming active has made no progress. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._reached: object = None

    def rest(self) -> None:
        """Restart the measurement."""
        self._since = None

    def is_stuck(self, reached: object, now: float, timeout_seconds: float) -> bool:
        """Return whether it has stayed at ``reached`` for too long."""
        if self._since is None or reached != self._reached:
            self._since, self._reached = now, reached
        return now - self._since > timeout_seconds
