"""A cancellable unit of a replica's work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from standby.replica.lifecycle import Signal
from standby.shared.clock import REAL
from standby.shared.model import Fault


class ReportSignal(Protocol):
    """Reports a result of a replica's work. Thread-safe."""

    def __call__(self, signal: Signal, detail: str, fault: Fault = Fault.OTHER, /) -> None:
        """``detail`` is the reason; ``fault`` classifies a failure."""


class CancelScope:
    """A unit of a replica's work; cancelling it makes everything that belongs to it end soon.

    Results of a cancelled run are ignored.
    """

    def __init__(self, pace: Callable[[float], float] = REAL.pace) -> None:
        """``pace`` is `standby.shared.clock.Clock.pace`."""
        self._pace = pace
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._acts: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Cancel the run."""
        with self._lock:
            self._cancelled.set()
            acts, self._acts = self._acts, []
        for act in acts:
            act()

    @contextmanager
    def cutting_off(self, act: Callable[[], None]) -> Iterator[None]:
        """Call ``act`` if the run is cancelled during the block, or was before.

        ``act`` runs on the cancelling thread, so it must not block.
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
        """Return whether the run was cancelled."""
        return self._cancelled.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait for a poll interval, or until the run is cancelled; return whether it was cancelled."""
        return self._cancelled.wait(self._pace(seconds))
