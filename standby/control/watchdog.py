"""Detects a stuck control loop: heartbeats without it would be misleading."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watchdog:
    """Calls ``on_stuck`` when a count has not increased over ``looks`` consecutive checks.

    It counts checks, not seconds, because a suspended process does not check either.
    """

    def __init__(
        self,
        count: Callable[[], int],
        on_stuck: Callable[[], None],
        *,
        looks: int = 40,
        interval_seconds: float = 0.5,
    ) -> None:
        self._count = count
        self._on_stuck = on_stuck
        self._looks = looks
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching, because the loop ended normally."""
        self._stopped.set()

    def _watch(self) -> None:
        last, same = self._count(), 0
        while not self._stopped.wait(self._interval_seconds):
            count = self._count()
            same = same + 1 if count == last else 0
            last = count
            if same >= self._looks:
                self._on_stuck()
                return
