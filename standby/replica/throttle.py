"""Limits throughput in bytes per second. Pure."""

from __future__ import annotations

from typing import Final

#: Burst allowed after an idle time; a smaller one would cause many short waits.
_BURST_SECONDS: Final = 0.1


class Throttle:
    """A token bucket that fills at a rate; taking more than its content requires a wait."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def take(self, amount: int, per_second: int, now: float) -> float:
        """Return the seconds to wait for ``amount`` bytes taken at ``now``; ``per_second`` 0: no limit.

        The bytes count as taken, so the next caller waits after this one.
        """
        if per_second <= 0:
            return 0.0
        start = max(self._free_at, now - _BURST_SECONDS)
        self._free_at = start + amount / per_second
        return max(0.0, self._free_at - now)
