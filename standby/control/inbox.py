"""Where every thread of a container leaves its news for the control loop."""

from __future__ import annotations

import queue

from standby.control.events import Event


class Inbox:
    """A queue of events with many writers and one reader."""

    def __init__(self) -> None:
        # The C implementation of SimpleQueue may be written to from a signal handler, too.
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def post(self, event: Event) -> None:
        """Leave an event; never blocks."""
        self._queue.put(event)

    def drain(self, timeout_seconds: float) -> list[Event]:
        """Return everything that waits, oldest first; when nothing does, wait so long for the first."""
        events: list[Event] = []
        try:
            events.append(self._queue.get(timeout=timeout_seconds))
            while True:
                events.append(self._queue.get_nowait())
        except queue.Empty:
            return events
