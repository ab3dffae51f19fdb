"""How long a leader may consider itself the leader without asking ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Lease:
    """A term on a monotonic clock, renewed by each proof that no other candidate leads; any thread may use it.

    It only limits disturbance (rule `epoch-check`): a leader that was stopped or cut off plans nothing, starts none of
    the planner's actions, and asks nothing of YARN before it has renewed the lease. The term is shorter than the
    silence after which another candidate leads; only a leader whose port refuses, whose process has ended, is replaced
    sooner. What keeps two leaders apart is the check of the epoch in every write.
    """

    def __init__(self, now_ms: Callable[[], int], lasts_ms: int) -> None:
        self._now_ms = now_ms
        self.lasts_ms = lasts_ms
        self._lock = threading.Lock()
        self._until_ms: int | None = None

    def renew(self, asked_ms: int) -> None:
        """Extend the term after a positive answer to a question that was asked at ``asked_ms`` of the clock.

        The term counts from the question, because it is unknown when after it the answer was true.
        """
        with self._lock:
            until = asked_ms + self.lasts_ms
            self._until_ms = until if self._until_ms is None else max(until, self._until_ms)

    @property
    def is_valid(self) -> bool:
        """Whether the term has begun and has not ended."""
        with self._lock:
            return self._until_ms is not None and self._now_ms() < self._until_ms
