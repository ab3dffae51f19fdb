"""An event that a signal handler may set."""

from __future__ import annotations

import queue
from contextlib import suppress

from standby.threads.inbox import Inbox


class Latch:
    """Set once, by any thread or by a signal handler, and stays set.

    A `threading.Event` has a lock that is not reentrant: a handler that sets it while the thread that it interrupts is
    just entering or leaving a wait for it would wait for that lock without end.
    """

    def __init__(self) -> None:
        self._inbox: Inbox[None] = Inbox()
        self._is_set = False

    def set(self) -> None:
        """Set it; never blocks."""
        self._is_set = True
        self._inbox.post(None)

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until it is set, at most for the time-out, by default for ever; return whether it is set."""
        if not self._is_set:
            with suppress(queue.Empty):
                self._inbox.take(timeout_seconds)
                # For other threads that wait.
                self._inbox.post(None)
        return self._is_set
