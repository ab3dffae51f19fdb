"""What of the job's code a container runs at this moment, kept where it outlives the process (rule `fair-blame`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from standby.shared.exits import Ran
from standby.shared.model import Offsets, TaskId

#: Keeps what runs, and with which status the child has ended whose death ends the process (None: none has).
Keep = Callable[[tuple[Ran, ...], "int | None"], None]


def keep_nothing(ran: tuple[Ran, ...], child: int | None) -> None:
    """Keep nothing: nobody would look at it."""


class Marks:
    """Of all jobs of a container; from any thread.

    What ends the process while a step runs is put down to its task, and while a transform runs here to all tasks whose
    input it was given. It is so whichever thread it happens on: native code that a step calls has threads of its own.
    Outside of both no code of the job runs in this process, so its end is put down to no task. A feed's child runs the
    job's transform all the time: its death is put down to all tasks that it was at work for.
    """

    def __init__(self, keep: Keep = keep_nothing) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        #: Of each job the tasks whose feed is at work, or was at work last.
        self._fed: Mapping[str, tuple[Ran, ...]] = {}
        #: Of each job what its code runs on in this process at this moment.
        self._running: Mapping[str, tuple[Ran, ...]] = {}
        self._child: int | None = None

    def feed(self, job: str, tasks: Collection[TaskId]) -> None:
        """Take note of the tasks that a job's feed begins to work for.

        Its end is not to be told: where its child has died, it has ended of that.
        """
        with self._lock:
            self._fed = {**self._fed, job: tuple(Ran(each) for each in sorted(tasks))}

    def step(self, task: TaskId, start: Offsets) -> AbstractContextManager[None]:
        """Have the block known as the task's step, of a batch that begins at ``start``."""
        return self.transform({task: start})

    @contextmanager
    def transform(self, starts: Mapping[TaskId, Offsets]) -> Iterator[None]:
        """Have the block known as code of a job that is given the input of these tasks, each from its start on."""
        ran = tuple(Ran(task, start.total) for task, start in sorted(starts.items()))
        jobs = {each.task.job for each in ran}
        with self._lock:
            self._running = {**self._running, **{job: _of(job, ran) for job in jobs}}
            self._write()
        try:
            yield
        finally:
            with self._lock:
                self._running = {job: each for job, each in self._running.items() if job not in jobs}
                self._write()

    def lose_child(self, job: str, status: int | None) -> None:
        """Take note that the child of a job's feed is dead, which ends the process: no step is to blame for that.

        ``status`` is the child's exit code or minus its signal, None when that is not known.
        """
        with self._lock:
            self._running, self._child = {job: self._fed.get(job, ())}, status
            self._write_for_good()

    def hang_in_child(self, job: str) -> None:
        """Take note that the process ends because a job's feed does not: of its step, or of what the child runs."""
        with self._lock:
            self._running = {job: self._running.get(job) or self._fed.get(job, ())}
            self._write_for_good()

    def forget(self) -> None:
        """Take note that the process ends for another reason than what it runs: the last thing to be said."""
        with self._lock:
            self._running, self._child = {}, None
            self._write_for_good()

    def _write(self) -> None:
        running = self._running
        self._keep(tuple(each for job in sorted(running) for each in running[job]), self._child)

    def _write_for_good(self) -> None:
        """Keep what is to be said of the end; what runs on until then changes nothing of it."""
        self._write()
        self._keep = keep_nothing


def _of(job: str, ran: tuple[Ran, ...]) -> tuple[Ran, ...]:
    return tuple(each for each in ran if each.task.job == job)
