"""A queue with many writers and one reader."""

from __future__ import annotations

import queue
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items from any thread for one consuming thread."""

    def __init__(self) -> None:
        # The C implementation of SimpleQueue may also be used from a signal handler.
        self._queue: queue.SimpleQueue[T] = queue.SimpleQueue()

    def post(self, item: T) -> None:
        """Add an item; never blocks. Thread-safe."""
        self._queue.put(item)

    def take(self, timeout_seconds: float | None = None) -> T:
        """Return the oldest item; wait for one at most for the time-out, by default for ever. Raises `queue.Empty`."""
        return self._queue.get(timeout=None if timeout_seconds is None else max(0.0, timeout_seconds))

    def drain(self, timeout_seconds: float) -> list[T]:
        """Return all items, oldest first; if there is none, wait for the first at most for the time-out."""
        items: list[T] = []
        try:
            items.append(self.take(timeout_seconds))
            while True:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            return items

    def is_empty(self) -> bool:
        """Return whether there is no item."""
        return self._queue.empty()
