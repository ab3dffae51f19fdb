"""The one way into the leader: callbacks of every library put events here, one thread takes them out."""

from __future__ import annotations

import queue
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue that is emptied in one go."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[T] = queue.SimpleQueue()

    def post(self, event: T) -> None:
        """Add an event; never blocks, from any thread."""
        self._queue.put(event)

    def drain(self, timeout_seconds: float) -> list[T]:
        """Return all waiting events in order; wait at most so long for the first one."""
        events: list[T] = []
        try:
            events.append(
                self._queue.get(timeout=timeout_seconds) if timeout_seconds > 0 else self._queue.get_nowait()
            )
            while True:
                events.append(self._queue.get_nowait())
        except queue.Empty:
            return events
