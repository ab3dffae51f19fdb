"""Keeps asking Kafka where the changelogs and the inputs of a job end."""

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

#: How long a question may take. Until the others know that a broker has died it is waited for, and where their own
#: partitions end comes with the same answer: three questions and a pause must be over before that is stale.
_ANSWER_SECONDS: Final = 1.0

#: An answer older than this says nothing about the present: the end counts as unknown.
_STALE_MS: Final = 4_000


@dataclass(frozen=True, slots=True)
class End:
    """Where a partition ends."""

    offset: int
    asked_ms: int
    """When the question was asked: at least this much existed then."""


class _Known:
    """The ends of the partitions of one kind, each judged by itself."""

    def __init__(self, what: str, ask: Callable[..., Mapping[int, int]]) -> None:
        self._what = what
        self._ask = ask
        # Replaced as a whole: other threads read it.
        self._ends: Mapping[int, End] = {}
        self._missing: frozenset[int] = frozenset()

    def get(self, partition: int, now_ms: int) -> End | None:
        """Return where a partition ends; None when that is not known at present."""
        end = self._ends.get(partition)
        # One of the future is as old as can be: the clock was set back.
        return end if end is not None and abs(now_ms - end.asked_ms) < _STALE_MS else None

    def ask(self, partitions: Collection[int], now_ms: int) -> None:
        """Ask about ``partitions``; one without an answer keeps the end that it had, until that is stale."""
        reason = ""
        try:
            found = self._ask(partitions, timeout_seconds=_ANSWER_SECONDS)
        except StandfastError as error:
            found, reason = {}, f": {error}"
        before = {each: end for each, end in self._ends.items() if each in partitions}
        self._ends = {**before, **{each: End(offset, now_ms) for each, offset in found.items()}}
        missing = frozenset(partitions).difference(found)
        if not missing <= self._missing:
            numbers = ", ".join(map(str, sorted(missing)))
            _log.warning("nobody says where %s partition %s ends%s", self._what, numbers, reason)
        self._missing = missing


class Ends:
    """One thread that asks every ``interval_ms`` about the partitions that somebody wants to know of."""

    def __init__(
        self,
        broker: Broker,
        interval_ms: int,
        clock: Callable[[], int],
        watched: Callable[[], tuple[Collection[int], Collection[int]]],
        name: str,
        pace: Callable[[float], float] = REAL.pace,
    ) -> None:
        """``watched`` returns the changelog partitions and the input partitions to ask about."""
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

    def changelog(self, partition: int) -> End | None:
        """Return where a changelog partition ends; None when that is not known at present."""
        return self._changelog.get(partition, self._clock())

    def input(self, partition: int) -> End | None:
        """Return where an input partition ends; None when that is not known at present."""
        return self._input.get(partition, self._clock())

    def look(self) -> None:
        """Ask at once: there is something new to ask about."""
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
                # Without it every lag of the job would be unknown for good, and nothing would say so.
                _log.exception("asking for the ends of the partitions")
            self._wake.wait(self._pace(self._interval))
            self._wake.clear()
