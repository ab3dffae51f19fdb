"""Bounds how many bytes a second go through. Pure."""

from __future__ import annotations

from typing import Final

#: What may go through at once after a rest: less would make many short waits of one long one.
_BURST_SECONDS: Final = 0.1


class Throttle:
    """A bucket that fills at a rate; whoever takes more than there is waits for the rest."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def take(self, amount: int, per_second: int, now: float) -> float:
        """Return for how many seconds whoever takes ``amount`` bytes at ``now`` has to wait; 0 as rate: no bound.

        The bytes count as taken: the next one waits behind this one.
        """
        if per_second <= 0:
            return 0.0
        start = max(self._free_at, now - _BURST_SECONDS)
        self._free_at = start + amount / per_second
        return max(0.0, self._free_at - now)
