"""Records which code of the jobs is running, in a place that outlives the process (rule `fair-blame`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from standby.shared.exits import Ran
from standby.shared.model import Offsets, TaskId

#: Stores what is running, and the exit status of the child whose death ends the process (None: no child died).
Keep = Callable[[tuple[Ran, ...], "int | None"], None]


def keep_nothing(ran: tuple[Ran, ...], child: int | None) -> None:
    """Store nothing, when no witness reads it."""


class Marks:
    """The marks of all jobs of a container. Thread-safe.

    A crash of the process while a step runs is attributed to the step's task. A crash while a transform runs in this
    process is attributed to all tasks whose input it was given. This holds for crashes on any thread, because native
    code called by a step may have its own threads. Outside of both, no code of the job runs in this process, so a
    crash is attributed to no task. A feed's child process runs the job's transform all the time: its death is
    attributed to all tasks that it was working for.
    """

    def __init__(self, keep: Keep = keep_nothing) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        #: Job → the tasks of its current, or last, feed.
        self._fed: Mapping[str, tuple[Ran, ...]] = {}
        #: Job → what its code is running on in this process.
        self._running: Mapping[str, tuple[Ran, ...]] = {}
        self._child: int | None = None

    def feed(self, job: str, tasks: Collection[TaskId]) -> None:
        """Record the tasks that a job's feed starts to work for.

        The end of the feed is not recorded: if its child has died, that is what ended the feed.
        """
        with self._lock:
            self._fed = {**self._fed, job: tuple(Ran(each) for each in sorted(tasks))}

    def step(self, task: TaskId, start: Offsets) -> AbstractContextManager[None]:
        """Mark the block as the task's step, on a batch that begins at ``start``."""
        return self.transform({task: start})

    @contextmanager
    def transform(self, starts: Mapping[TaskId, Offsets]) -> Iterator[None]:
        """Mark the block as code of a job that processes the input of these tasks, each from its start on."""
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

    def lose_child(self, job: str, status: int | None, *, has_run: bool = True) -> None:
        """Record that the child of a job's feed died, which ends the process: no step is to blame.

        ``status`` is the child's exit code or negated signal number; None when it is not known. ``has_run``: whether it
        has had input of the tasks.
        """
        with self._lock:
            self._running, self._child = {job: self._fed.get(job, ()) if has_run else ()}, status
            self._write_for_good()

    def hang_in_child(self, job: str, *, has_run: bool = True) -> None:
        """Record that the process ends because a job's feed hangs, in the job's step or in its child.

        ``has_run``: whether the child has had input of the tasks.
        """
        with self._lock:
            self._running = {job: self._running.get(job) or (self._fed.get(job, ()) if has_run else ())}
            self._write_for_good()

    def forget(self) -> None:
        """Record that the process ends for a reason unrelated to jobs' code; later marks are ignored."""
        with self._lock:
            self._running, self._child = {}, None
            self._write_for_good()

    def _write(self) -> None:
        running = self._running
        self._keep(tuple(each for job in sorted(running) for each in running[job]), self._child)

    def _write_for_good(self) -> None:
        """Store the final marks; code that runs until the end no longer changes them."""
        self._write()
        self._keep = keep_nothing


def _of(job: str, ran: tuple[Ran, ...]) -> tuple[Ran, ...]:
    return tuple(each for each in ran if each.task.job == job)
