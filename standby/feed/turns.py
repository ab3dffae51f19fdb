"""Whose batch runs in a Spark session: one at a time, and an own one before those of other containers (decision 48)."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from standby.ports import NotLent
from standby.shared.clock import Clock

#: A batch of another container waits this long, and runs this long; together less than its container waits.
LENT_WAIT_SECONDS: Final = 1.0
LENT_SECONDS: Final = 3.0

#: How long an own batch waits for a lent one before it ends it.
GIVE_WAY_SECONDS: Final = 2.0

#: The same for a rehearsal. It is not worth the work of a lent batch, which ends by itself before.
OVERDUE_SECONDS: Final = LENT_SECONDS + GIVE_WAY_SECONDS


@dataclass(slots=True)
class LentBatch:
    """A batch of another container, while it runs here."""

    group: str
    """Its own: what ends this batch ends no other one."""
    has_given_way: bool = False
    """Whether it was ended for an own batch."""


class Turns:
    """The order of the batches of one session. Thread-safe."""

    def __init__(self, group: str, cancel: Callable[[str], None], clock: Clock) -> None:
        """``cancel`` ends what runs for a group; those of lent batches have names that begin with ``group``."""
        self._group = group
        self._cancel = cancel
        self._clock = clock
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        # Guarded by the condition.
        self._is_taken = False
        self._awaited = 0
        """Number of own batches and rehearsals that wait: no lent batch begins before them."""
        self._lent: LentBatch | None = None
        """The batch that runs, if it is a lent one."""

    @contextlib.contextmanager
    def own(self, *, is_rehearsal: bool = False) -> Iterator[None]:
        """Wait for the end of the batch that runs, and end a lent one if that takes long."""
        seconds = OVERDUE_SECONDS if is_rehearsal else GIVE_WAY_SECONDS
        with self._waiting():
            while not self._take(seconds):
                self._end_lent()
        try:
            yield
        finally:
            self._release()

    @contextlib.contextmanager
    def lent(self) -> Iterator[LentBatch]:
        """Wait until no batch runs and no own one waits; end the block's batch if it takes long.

        Raises `NotLent` when that is not soon.
        """
        batch = LentBatch(f"{self._group}-lent-{next(self._numbers)}")
        with self._changed:
            if not self._changed.wait_for(self._is_free, LENT_WAIT_SECONDS):
                raise NotLent("another batch is running, or one of this container waits")
            self._is_taken, self._lent = True, batch
        with contextlib.ExitStack() as ends:
            ends.callback(self._release)
            ends.callback(self._clock.later(LENT_SECONDS, partial(self._cancel, batch.group)))
            yield batch

    def _is_free(self) -> bool:
        return not self._is_taken and not self._awaited

    def _take(self, seconds: float) -> bool:
        """Wait for the turn of an own batch; return False when it takes so long."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_taken, seconds):
                return False
            self._is_taken = True
            return True

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Let no lent batch begin meanwhile."""
        with self._changed:
            self._awaited += 1
        try:
            yield
        finally:
            with self._changed:
                self._awaited -= 1
                self._changed.notify_all()

    def _end_lent(self) -> None:
        with self._changed:
            batch = self._lent
            if batch is None:
                return
            batch.has_given_way = True
        # It is a call into the JVM, which takes its time; without the lock, so that the batch can end.
        self._cancel(batch.group)

    def _release(self) -> None:
        with self._changed:
            self._is_taken, self._lent = False, None
            self._changed.notify_all()
