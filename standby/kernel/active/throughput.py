"""Measures the recent throughput of a task."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from standby.shared.model import RATE_WINDOW_SECONDS


class Throughput:
    """Counts input offsets per second. Written on one thread, read from any. Times are monotonic seconds."""

    def __init__(self, began: float) -> None:
        self._began: Final = began
        self._lock = threading.Lock()
        #: (second, offsets processed in it), oldest first.
        self._noted: deque[tuple[int, int]] = deque()

    def note(self, count: int, now: float) -> None:
        """Add ``count`` processed offsets."""
        with self._lock:
            second = int(now)
            if self._noted and self._noted[-1][0] == second:
                count += self._noted.pop()[1]
            self._noted.append((second, count))
            self._forget(now)

    def per_second(self, now: float) -> float:
        """Return the mean over the last `RATE_WINDOW_SECONDS`, or since the start if that is shorter."""
        with self._lock:
            self._forget(now)
            total = sum(count for _, count in self._noted)
        return total / min(RATE_WINDOW_SECONDS, max(1.0, now - self._began))

    def _forget(self, now: float) -> None:
        while self._noted and self._noted[0][0] <= now - RATE_WINDOW_SECONDS:
            self._noted.popleft()
