"""Keeps asking Kafka where the changelogs and the inputs of a job end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from standby.errors import StandfastError
from standby.kernel.ports import Broker

_log: Final = logging.getLogger(__name__)

#: An answer older than this says nothing about the present: the end counts as unknown.
_STALE_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class End:
    """Where a partition ends."""

    offset: int
    asked_ms: int
    """When the question was asked: at least this much existed then."""


class Ends:
    """One thread that asks every ``interval_ms`` about the partitions that somebody wants to know of."""

    def __init__(
        self,
        broker: Broker,
        interval_ms: int,
        clock: Callable[[], int],
        watched: Callable[[], tuple[Collection[int], Collection[int]]],
        name: str,
    ) -> None:
        """``watched`` returns the changelog partitions and the input partitions to ask about."""
        self._broker = broker
        self._interval = interval_ms / 1000
        self._clock = clock
        self._watched = watched
        self._changelog: dict[int, End] = {}
        self._input: dict[int, End] = {}
        self._is_closed = False
        self._wake = threading.Event()
        self._was_away = False
        self._thread = threading.Thread(target=self._run, name=f"{name}-ends", daemon=True)
        self._thread.start()

    def changelog(self, partition: int) -> End | None:
        """Return where a changelog partition ends; None when that is not known at present."""
        return self._fresh(self._changelog.get(partition))

    def input(self, partition: int) -> End | None:
        """Return where an input partition ends; None when that is not known at present."""
        return self._fresh(self._input.get(partition))

    def look(self) -> None:
        """Ask at once: there is something new to ask about."""
        self._wake.set()

    def close(self) -> None:
        """Stop asking; does not wait."""
        self._is_closed = True
        self._wake.set()

    def _fresh(self, end: End | None) -> End | None:
        return end if end is not None and self._clock() - end.asked_ms < _STALE_MS else None

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._ask()
                self._was_away = False
            except StandfastError as error:
                if not self._was_away:
                    _log.warning("the ends of the partitions are not known: %s", error)
                self._was_away = True
            except Exception:  # noqa: BLE001 - this thread's outermost loop
                # Without it every lag of the job would be unknown for good, and nothing would say so.
                _log.exception("asking for the ends of the partitions")
            self._wake.wait(self._interval)
            self._wake.clear()

    def _ask(self) -> None:
        changelog, inputs = self._watched()
        asked_ms = self._clock()
        ends = self._broker.changelog_ends(changelog)
        self._changelog = {each: End(offset, asked_ms) for each, offset in ends.items()}
        asked_ms = self._clock()
        ends = self._broker.input_ends(inputs)
        self._input = {each: End(offset, asked_ms) for each, offset in ends.items()}
