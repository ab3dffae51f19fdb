"""A bound on bytes a second that several threads keep together."""

from __future__ import annotations

import threading
from collections.abc import Callable

from standby.replica.throttle import Throttle


class RateLimiter:
    """Says how long whoever has taken something must wait; from any thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now`` is monotonic."""
        self._now = now
        self._lock = threading.Lock()
        self._throttle = Throttle()

    def take(self, amount: int, per_second: int) -> float:
        """Return how many seconds to wait after ``amount`` bytes; 0 as rate: no bound."""
        with self._lock:
            return self._throttle.take(amount, per_second, self._now())
