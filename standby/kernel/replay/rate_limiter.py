"""A limit in bytes per second, shared by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

#: Burst allowed after an idle time; a smaller one would cause many short waits.
_BURST_SECONDS: Final = 0.1


class RateLimiter:
    """A token bucket that fills at a rate; taking more than its content requires a wait. Thread-safe."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now`` is monotonic."""
        self._now = now
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, amount: int, per_second: int) -> float:
        """Return how many seconds to wait after ``amount`` bytes; ``per_second`` 0: no limit.

        The bytes count as taken, so the next caller waits after this one.
        """
        if per_second <= 0:
            return 0.0
        with self._lock:
            now = self._now()
            start = max(self._free_at, now - _BURST_SECONDS)
            self._free_at = start + amount / per_second
            return max(0.0, self._free_at - now)
