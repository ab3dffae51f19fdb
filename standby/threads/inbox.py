"""A queue with many writers and one reader."""

from __future__ import annotations

import queue
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """What any thread leaves for the one that takes it out."""

    def __init__(self) -> None:
        # The C implementation of SimpleQueue may be written to from a signal handler, too.
        self._queue: queue.SimpleQueue[T] = queue.SimpleQueue()

    def post(self, item: T) -> None:
        """Add an item; never blocks, from any thread."""
        self._queue.put(item)

    def take(self, timeout_seconds: float | None = None) -> T:
        """Return the oldest item; wait at most so long for one, without a bound by default. Raises `queue.Empty`."""
        return self._queue.get(timeout=None if timeout_seconds is None else max(0.0, timeout_seconds))

    def drain(self, timeout_seconds: float) -> list[T]:
        """Return everything that waits, oldest first; when nothing does, wait at most so long for the first."""
        items: list[T] = []
        try:
            items.append(self.take(timeout_seconds))
            while True:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            return items

    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        return self._queue.empty()
