"""Polls Kafka for the end offsets of a job's changelogs and inputs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from standby.errors import StandfastError
from standby.kernel.ports import Broker
from standby.shared.clock import REAL

_log: Final = logging.getLogger(__name__)

#: Time-out of a request. A request waits for a dead broker until the other brokers know of its death, and the ends
#: of their own partitions arrive in the same answer. So three requests and a pause must fit into `_STALE_MS`.
_ANSWER_SECONDS: Final = 1.0

#: After this time an answer is stale, and the end counts as unknown.
_STALE_MS: Final = 4_000


@dataclass(frozen=True, slots=True)
class EndOffset:
    """The end of a partition."""

    offset: int
    asked_ms: int
    """When the request was sent: the partition had reached ``offset`` at that time."""


class _Known:
    """The ends of all partitions of one kind. Each partition becomes stale by itself."""

    def __init__(self, what: str, ask: Callable[..., Mapping[int, int]]) -> None:
        self._what = what
        self._ask = ask
        # Only ever replaced as a whole, because other threads read it.
        self._ends: Mapping[int, EndOffset] = {}
        self._missing: frozenset[int] = frozenset()

    def get(self, partition: int, now_ms: int) -> EndOffset | None:
        """Return the end of a partition; None when it is not known at present."""
        end = self._ends.get(partition)
        # A time in the future means that the clock was set back: the answer counts as stale.
        return end if end is not None and abs(now_ms - end.asked_ms) < _STALE_MS else None

    def ask(self, partitions: Collection[int], now_ms: int) -> None:
        """Request the ends of ``partitions``. One without an answer keeps its former end until that is stale."""
        reason = ""
        try:
            found = self._ask(partitions, timeout_seconds=_ANSWER_SECONDS)
        except StandfastError as error:
            found, reason = {}, f": {error}"
        before = {each: end for each, end in self._ends.items() if each in partitions}
        self._ends = {**before, **{each: EndOffset(offset, now_ms) for each, offset in found.items()}}
        missing = frozenset(partitions).difference(found)
        if not missing <= self._missing:
            numbers = ", ".join(map(str, sorted(missing)))
            _log.warning("no broker reports the end of %s partition %s%s", self._what, numbers, reason)
        self._missing = missing


class EndOffsetPoller:
    """A thread that requests the ends of the watched partitions every ``interval_ms``."""

    def __init__(
        self,
        broker: Broker,
        interval_ms: int,
        clock: Callable[[], int],
        watched: Callable[[], tuple[Collection[int], Collection[int]]],
        name: str,
        pace: Callable[[float], float] = REAL.pace,
    ) -> None:
        """``watched`` returns the changelog partitions and the input partitions to request."""
        self._interval = interval_ms / 1000
        self._clock = clock
        self._pace = pace
        self._watched = watched
        self._changelog = _Known("changelog", broker.changelog_ends)
        self._input = _Known("input", broker.input_ends)
        self._is_closed = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name}-ends", daemon=True)
        self._thread.start()

    def changelog(self, partition: int) -> EndOffset | None:
        """Return the end of a changelog partition; None when it is not known at present."""
        return self._changelog.get(partition, self._clock())

    def input(self, partition: int) -> EndOffset | None:
        """Return the end of an input partition; None when it is not known at present."""
        return self._input.get(partition, self._clock())

    def look(self) -> None:
        """Send a request at once, because there are new partitions."""
        self._wake.set()

    def close(self) -> None:
        """Stop asking; does not wait."""
        self._is_closed = True
        self._wake.set()

    def _run(self) -> None:
        while not self._is_closed:
            try:
                for known, partitions in zip((self._changelog, self._input), self._watched(), strict=True):
                    known.ask(partitions, self._clock())
            except Exception:  # noqa: BLE001 - this thread's outermost loop
                # If this thread ended, every lag of the job would silently remain unknown.
                _log.exception("requesting the ends of the partitions failed")
            self._wake.wait(self._pace(self._interval))
            self._wake.clear()
