"""Whether an active gets on with its input (design 4.14)."""

from __future__ import annotations

from standby.kernel.active import ActiveTask
from standby.kernel.ends import End


class Progress:
    """Remembers since when there has been input and no commit; all times are monotonic seconds."""

    def __init__(self) -> None:
        self._behind_since: float | None = None
        self._seen = (-1, 0)  # position and tries

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
        seen = (active.committed.total, active.tries)
        if self._behind_since is None or self._seen != seen:
            self._behind_since, self._seen = now, seen
        return now - self._behind_since > timeout_seconds
