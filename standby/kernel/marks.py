"""What of the job's code a container runs at this moment, kept where it outlives the process (rule `fair-blame`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from standby.model import Offsets, TaskId
from standby.process.ended import Ran

#: Keeps what runs, and with which status the child has ended whose death ends the process (None: none has).
Keep = Callable[[tuple[Ran, ...], "int | None"], None]


def keep_nothing(ran: tuple[Ran, ...], child: int | None) -> None:
    """Keep nothing: nobody would look at it."""


class Marks:
    """Of all jobs of a container; from any thread.

    While a step runs it is the only code of the job that runs in the process: what ends the process then is put down
    to its task alone. Else it is put down to all tasks of a feed that is at work.
    """

    def __init__(self, keep: Keep = keep_nothing) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        #: Of each job the tasks whose feed is at work; and those whose feed was at work last.
        self._fed: Mapping[str, tuple[Ran, ...]] = {}
        self._last_fed: Mapping[str, tuple[Ran, ...]] = {}
        self._stepped: Mapping[str, Ran] = {}
        self._child: int | None = None
        self._has_lost_child = False

    def feed(self, job: str, tasks: Collection[TaskId]) -> None:
        """Take note of the tasks whose feed is at work; none: it is not."""
        with self._lock:
            self._fed = {**self._fed, job: tuple(Ran(each) for each in sorted(tasks))}
            self._last_fed = {**self._last_fed, **{job: ran for job, ran in self._fed.items() if ran}}
            self._write()

    @contextmanager
    def step(self, task: TaskId, start: Offsets) -> Iterator[None]:
        """Have the block known as the task's step, of a batch that begins at ``start``."""
        with self._lock:
            self._stepped = {**self._stepped, task.job: Ran(task, start.total)}
            self._write()
        try:
            yield
        finally:
            with self._lock:
                self._stepped = {job: each for job, each in self._stepped.items() if job != task.job}
                self._write()

    def lose_child(self, status: int | None) -> None:
        """Take note that a feed's child is dead, which ends the process: no step is to blame for that.

        Nor is it of use that the feed has ended meanwhile: it did so of that. ``status`` is the child's exit code or
        minus its signal, None when that is not known.
        """
        with self._lock:
            self._child, self._has_lost_child = status, True
            self._write()

    def forget(self) -> None:
        """Take note that the process ends for another reason than what it runs: the last thing to be said."""
        with self._lock:
            self._keep((), None)
            self._keep = keep_nothing

    def _write(self) -> None:
        stepped, fed = ({}, self._last_fed) if self._has_lost_child else (self._stepped, self._fed)
        ran: list[Ran] = []
        for job in sorted({*fed, *stepped}):
            ran += (stepped[job],) if job in stepped else fed[job]
        self._keep(tuple(ran), self._child)
