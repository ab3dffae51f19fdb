"""How much a task has processed lately."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from standby.shared.model import RATE_WINDOW_SECONDS


class Throughput:
    """Counts input offsets by the second; noted on one thread, asked from any. Times are monotonic seconds."""

    def __init__(self, began: float) -> None:
        self._began: Final = began
        self._lock = threading.Lock()
        #: Whole second → what was noted in it, oldest first.
        self._noted: deque[tuple[int, int]] = deque()

    def note(self, count: int, now: float) -> None:
        """Take note that so many offsets were processed."""
        with self._lock:
            second = int(now)
            if self._noted and self._noted[-1][0] == second:
                count += self._noted.pop()[1]
            self._noted.append((second, count))
            self._forget(now)

    def per_second(self, now: float) -> float:
        """Return the mean over the last `RATE_WINDOW_SECONDS`, or over the time since it began where that is less."""
        with self._lock:
            self._forget(now)
            total = sum(count for _, count in self._noted)
        return total / min(RATE_WINDOW_SECONDS, max(1.0, now - self._began))

    def _forget(self, now: float) -> None:
        while self._noted and self._noted[0][0] <= now - RATE_WINDOW_SECONDS:
            self._noted.popleft()
