"""For how long a leader may take itself for the leader without having asked."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Lease:
    """A term on a clock that only goes forward, renewed by proofs that nobody else leads; any thread may use it.

    It bounds nuisance, no more (rule `epoch-check`): a leader that was stopped or cut off sends no assignment, and asks
    YARN for nothing, before it has renewed the lease. What keeps two leaders apart is the check of the epoch in every
    write.
    """

    def __init__(self, now_ms: Callable[[], int], lasts_ms: int) -> None:
        self._now_ms = now_ms
        self.lasts_ms = lasts_ms
        self._lock = threading.Lock()
        self._until_ms: int | None = None

    def renew(self, asked_ms: int) -> None:
        """Extend the term: what was asked at ``asked_ms`` of the clock has been answered with yes.

        It counts from the question, since nobody knows when after it the answer was true.
        """
        with self._lock:
            until = asked_ms + self.lasts_ms
            self._until_ms = until if self._until_ms is None else max(until, self._until_ms)

    @property
    def is_valid(self) -> bool:
        """Whether the term has begun and is not over."""
        with self._lock:
            return self._until_ms is not None and self._now_ms() < self._until_ms
