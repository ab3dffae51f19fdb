"""One stretch of a replica's work, which can be called off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from standby.replica.lifecycle import Signal
from standby.shared.clock import REAL
from standby.shared.model import Fault


class Tell(Protocol):
    """Tells what came of the work of a replica; from any thread."""

    def __call__(self, signal: Signal, detail: str, fault: Fault = Fault.OTHER, /) -> None:
        """``detail`` says why; ``fault`` what a replica failed of."""


class Run:
    """One stretch of a replica's work; cancelling it makes everything that belongs to it end soon.

    Results of a cancelled run are not listened to any more.
    """

    def __init__(self, pace: Callable[[float], float] = REAL.pace) -> None:
        """``pace`` is `standby.shared.clock.Clock.pace`."""
        self._pace = pace
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._acts: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Have it end soon."""
        with self._lock:
            self._cancelled.set()
            acts, self._acts = self._acts, []
        for act in acts:
            act()

    @contextmanager
    def cutting_off(self, act: Callable[[], None]) -> Iterator[None]:
        """Have ``act`` called when the run is cancelled inside of the block, or was before.

        On the thread that cancels, so it must not block.
        """
        with self._lock:
            is_late = self._cancelled.is_set()
            if not is_late:
                self._acts.append(act)
        if is_late:
            act()
        try:
            yield
        finally:
            with self._lock:
                if act in self._acts:
                    self._acts.remove(act)

    def is_cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._cancelled.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait between two looks, or until the run is cancelled; return whether it was."""
        return self._cancelled.wait(self._pace(seconds))
