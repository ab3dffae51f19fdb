"""Contestants of `benchmarks.stategap` without standbys: another process continues, without local state.

Spark's checkpoint is still available, because it is on shared storage; the disk of Quix Streams is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.running import Running

#: The time-out until a session is up and has rehearsed, while another one uses most of the machine.
_WARM_SECONDS: Final = 600.0


class Processes:
    """Starts a contestant's processes, each with a separate empty directory as its disk."""

    def __init__(self, command: Sequence[str], own: str, state: Path, log: Path) -> None:
        """``own``: the option of ``command`` whose value is the process's own directory."""
        self._command, self._own, self._state, self._log = list(command), own, state, log
        self._numbers = count()

    def begin(self, *more: str) -> Running:
        """Return the next process; ``more`` is added to its command."""
        command = list(self._command)
        command[command.index(self._own) + 1] = str(self._state / f"disk-{next(self._numbers)}")
        return Running([*command, *more], self._log)


class Restarted:
    """A contestant that is restarted at once when it is killed."""

    def __init__(self, processes: Processes, tasks: int) -> None:
        self._processes, self._tasks = processes, tuple(range(tasks))
        self._running: Running | None = None

    def start(self) -> None:
        """Start it."""
        self._running = self._processes.begin()

    def ready(self) -> None:
        """Return immediately: there is nothing to wait for."""

    def kill(self) -> tuple[int, ...]:
        """Kill it, and start it again: no failure detection could be faster."""
        assert self._running is not None
        self._running.kill()
        self.start()
        return self._tasks

    def phases(self, killed_ms: int) -> Mapping[str, float]:
        """Return nothing: it does not tell."""
        return {}

    def mend(self) -> None:
        """Do nothing: it was started again."""

    def close(self) -> None:
        """Kill it."""
        if self._running is not None:
            self._running.kill()


class WarmSpark:
    """A contestant with a spare: a second process, whose session has run the same query over dummy records.

    When the first is killed, the second starts the query from the checkpoint at once.
    """

    def __init__(self, processes: Processes, tasks: int, rehearsal: Callable[[], tuple[str, str]]) -> None:
        """``rehearsal`` creates two empty topics, input and output, for the rehearsals of one spare."""
        self._processes, self._tasks, self._rehearsal = processes, tuple(range(tasks)), rehearsal
        self._running: Running | None = None
        self._spare: Running | None = None

    def start(self) -> None:
        """Start it, and its spare."""
        self._running = self._processes.begin()
        self.mend()

    def ready(self) -> None:
        """Wait until the spare is warm."""
        assert self._spare is not None
        self._spare.await_ready(_WARM_SECONDS)

    def kill(self) -> tuple[int, ...]:
        """Kill it, and let the spare continue: no failure detection could be faster."""
        assert self._running is not None
        assert self._spare is not None
        self._running.kill()
        self._running, self._spare = self._spare, None
        self._running.tell("go on")
        return self._tasks

    def phases(self, killed_ms: int) -> Mapping[str, float]:
        """Return nothing: it does not tell."""
        return {}

    def mend(self) -> None:
        """Start the next spare; not earlier, because it would take CPU time from the process that continues."""
        self._spare = self._processes.begin("--rehearse", *self._rehearsal())

    def close(self) -> None:
        """Kill both."""
        for each in (self._running, self._spare):
            if each is not None:
                each.kill()
