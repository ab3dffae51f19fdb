"""A limit in bytes per second, shared by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from standby.replica.throttle import Throttle


class RateLimiter:
    """Computes how long a thread must wait after it has used some of the limit. Thread-safe."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now`` is monotonic."""
        self._now = now
        self._lock = threading.Lock()
        self._throttle = Throttle()

    def take(self, amount: int, per_second: int) -> float:
        """Return how many seconds to wait after ``amount`` bytes. ``per_second`` 0: no limit."""
        with self._lock:
            return self._throttle.take(amount, per_second, self._now())
