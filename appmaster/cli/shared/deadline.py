"""The time that a command may take."""

from __future__ import annotations

from standby.shared.clock import REAL, Clock


class Deadline:
    """A point in time, ``seconds`` after its creation; every wait of a command is limited by the same one."""

    def __init__(self, seconds: float, clock: Clock = REAL) -> None:
        #: As given; infinite for a command without a time limit.
        self.seconds = seconds
        self._clock = clock
        self._end = clock.monotonic() + seconds

    @property
    def left_seconds(self) -> float:
        """Return the remaining time, 0 once it is over."""
        return max(0.0, self._end - self._clock.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.left_seconds == 0.0

    def within(self, seconds: float) -> Deadline:
        """Return the deadline of a step that may take ``seconds``, but no longer than the whole."""
        return self.beyond(min(seconds, self.left_seconds))

    def beyond(self, seconds: float) -> Deadline:
        """Return the deadline of a step that may take ``seconds``, even if the whole is over by then."""
        return Deadline(seconds, self._clock)

    def sleep(self, seconds: float) -> None:
        """Let this time pass."""
        self._clock.sleep(seconds)
