"""Whether an active gets on with its input, and a replica on its way to active (design 4.14)."""

from __future__ import annotations

from standby.kernel.active import ActiveTask
from standby.kernel.ends import End
from standby.replica.lag import LagClock


class Progress:
    """Remembers since when there has been input and no commit; all times are monotonic seconds."""

    def __init__(self) -> None:
        self._behind_since: float | None = None
        self._seen = (-1, 0, 0)  # position, tries, and the last commit
        self._lag = LagClock()
        self._asked_ms = -1
        self.lag_ms: int | None = None
        """For how long the active has been behind the end of its input, as of the last look; None: not known."""

    def look(self, active: ActiveTask | None, end: End | None, now_ms: int) -> None:
        """Take note of how far the active is; ``now_ms`` is Unix time."""
        if active is None or end is None:
            self.lag_ms = None
            return
        if end.asked_ms != self._asked_ms:
            self._asked_ms = end.asked_ms
            self._lag.end_seen(end.offset, end.asked_ms)
        self.lag_ms = self._lag.lag_ms(active.committed.total, now_ms)

    def is_stuck(
        self, active: ActiveTask | None, end: End | None, now: float, timeout_seconds: float
    ) -> bool:
        """Return whether ``active`` has had waiting input and committed nothing for too long.

        While the input's end is not known (the broker is away) nothing is held against it.
        """
        if active is None or end is None or end.offset <= active.committed.total:
            self._behind_since = None
            return False
        # Input that is tried again after a failure of the job's code is judged by `task.on.error`.
        # What one record brings may take many commits.
        seen = (active.committed.total, active.tries, active.last_commit_ms)
        if self._behind_since is None or self._seen != seen:
            self._behind_since, self._seen = now, seen
        return now - self._behind_since > timeout_seconds


class Way:
    """Remembers since when a replica that is to be active has got no further; all times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._reached: object = None

    def rest(self) -> None:
        """Hold nothing against it for now."""
        self._since = None

    def is_stuck(self, reached: object, now: float, timeout_seconds: float) -> bool:
        """Return whether it has not got beyond ``reached`` for too long."""
        if self._since is None or reached != self._reached:
            self._since, self._reached = now, reached
        return now - self._since > timeout_seconds
