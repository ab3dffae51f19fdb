"""The time that a command may take."""

from __future__ import annotations

import time


class Deadline:
    """A point in time, ``seconds`` after it was made; every wait of a command is bounded by the same one."""

    def __init__(self, seconds: float) -> None:
        #: As it was given.
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left_seconds(self) -> float:
        """Return how much time is left, 0 once it is over."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.left_seconds == 0.0

    def within(self, seconds: float) -> Deadline:
        """Return the end of a step that may take ``seconds`` of its own, and no longer than the whole."""
        return Deadline(min(seconds, self.left_seconds))
