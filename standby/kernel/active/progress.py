"""Whether an active gets on with its input, and a replica on its way to active (rule `never-block`)."""

from __future__ import annotations

from standby.kernel.active.active import ActiveTask
from standby.kernel.replay.ends import End
from standby.replica.lag import LagClock


class InputLag:
    """For how long a task has been behind the end of its input; goes on where its active claims it anew."""

    def __init__(self) -> None:
        self._clock = LagClock()
        self._asked_ms = -1
        self._committed: int | None = None
        self.ms: int | None = None
        """Milliseconds, as of the last look; None: not known."""

    def look(self, committed: int | None, end: End | None, now_ms: int) -> None:
        """Take note of the committed position and the input's end, where they are known; ``now_ms`` is Unix time."""
        if committed is not None:
            self._committed = committed
        if end is not None and end.asked_ms != self._asked_ms:
            self._asked_ms = end.asked_ms
            self._clock.end_seen(end.offset, end.asked_ms)
        found = self._clock.lag_ms(self._committed, now_ms) if self._committed is not None else None
        # A broker that answers late or not at all does not make good what is missing of a former answer.
        self.ms = found if end is not None or found else None


class Progress:
    """Remembers since when there has been input and no commit; all times are monotonic seconds."""

    def __init__(self) -> None:
        self._behind_since: float | None = None
        self._seen = (-1, 0, 0)  # position, tries, and the last commit

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
