"""Keeps a Spark transform warm with rehearsals: runs over recent rows.

In a JVM without an earlier run, the first one loads thousands of classes. Rehearsals are repeated until they take
about the same time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from standby.shared.clock import REAL, Clock

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger(__name__)

#: Minimum and maximum number of runs of the first warm-up.
FEWEST: Final = 6
MOST: Final = 30

#: Times have settled when the best of this many runs is at least `SETTLED` times the best of the same number before.
_WINDOW: Final = 3
SETTLED: Final = 0.75

#: Minimum interval of a warm transform's rehearsals, however often `run` is called. Compiled code stays compiled;
#: rehearsals keep workers alive and pages in memory.
KEEP_SECONDS: Final = 10.0

#: A rehearsal that takes this long hangs, for example in a regular expression. The first one in a JVM takes some 20 s
#: on a busy machine. One that was only slow, and ended as hanging, would be the last.
HUNG_SECONDS: Final = 180.0

#: Real rows of at most this many bytes are kept for the next rehearsal: reading them needs a new consumer.
_KEPT_BYTES: Final = 1 << 20


class WarmUp:
    """The rehearsals of one transform, and their progress."""

    def __init__(
        self,
        rehearse: Callable[[pa.Table | None], None],
        interrupt: Callable[[], None],
        clock: Clock = REAL,
    ) -> None:
        """``rehearse`` runs the transform over these rows, or over synthetic ones if there are none.

        ``interrupt`` ends a run from another thread.
        """
        self._rehearse = rehearse
        self._interrupt = interrupt
        self._clock = clock
        self._due_at = clock.monotonic()
        self._cancelled = threading.Event()
        self._has_hung = False
        """Whether a rehearsal hung. No other follows: it would hang as well, and may keep a task slot for good."""
        self._has_run = False
        self._has_real_rows = False
        self._rows: pa.Table | None = None
        self._took: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether the first warm-up, or a real batch, has been completed."""
        return self._has_run

    @property
    def seconds(self) -> float | None:
        """Time of the last rehearsal; None before one had real rows.

        Without those, the code for the job's own expressions has not been used.
        """
        return self._took if self._has_real_rows else None

    def count_batch(self) -> None:
        """Record that a real batch was run: it warms up as well, and resets an earlier `cancel`."""
        self._note(has_real_rows=True)
        self._cancelled.clear()

    def cancel(self) -> None:
        """Make a running or the next `run` return soon. Thread-safe.

        It applies to the next one as well, because it may be called just before `run` begins, for a waiting
        promotion.
        """
        self._cancelled.set()

    def run(self, recent: Callable[[], pa.Table | None]) -> None:
        """Rehearse until the times have settled, if it is the first time or the first time with real rows.

        Otherwise run a single batch. Raises like ``recent`` and ``rehearse``.
        """
        try:
            is_due = self._clock.monotonic() >= self._due_at
            # The first real rows are used at once, not at the next due time.
            is_waiting_for_rows = self._has_run and not self._has_real_rows
            if self._has_hung or self._cancelled.is_set() or not (is_due or is_waiting_for_rows):
                return
            rows = recent() if self._rows is None else self._rows
            if not is_due and rows is None:
                return
            is_first = not self._has_run or (rows is not None and not self._has_real_rows)
            took: list[float] = []
            for _ in range(MOST if is_first else 1):
                began = self._clock.monotonic()
                call_off = self._clock.later(HUNG_SECONDS, self._end_hung)
                try:
                    self._rehearse(rows)
                finally:
                    call_off()
                if self._cancelled.is_set():
                    return
                self._took = self._clock.monotonic() - began
                took.append(self._took)
                if len(took) >= FEWEST and _have_settled(took):
                    break
            self._note(has_real_rows=rows is not None)
            if rows is not None and rows.nbytes <= _KEPT_BYTES:
                self._rows = rows
        finally:
            self._cancelled.clear()

    def _note(self, *, has_real_rows: bool) -> None:
        self._has_run = True
        self._has_real_rows = self._has_real_rows or has_real_rows
        self._due_at = self._clock.monotonic() + KEEP_SECONDS

    def _end_hung(self) -> None:
        """Interrupt the rehearsal, on the clock's thread."""
        _LOG.warning("a rehearsal takes more than %.0f s and is the last one; batches warm up", HUNG_SECONDS)
        self._has_hung = True
        self._cancelled.set()
        self._interrupt()


def _have_settled(took: list[float]) -> bool:
    return min(took[-_WINDOW:]) >= SETTLED * min(took[-2 * _WINDOW : -_WINDOW])
