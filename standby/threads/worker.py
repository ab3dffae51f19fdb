"""A thread that owns something, with an inbox through which other threads submit work."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from standby.errors import Unavailable
from standby.threads.inbox import Inbox

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

#: A command for a worker.
WorkerCommand = Callable[[], object]


def do_nothing() -> None:
    """Do nothing."""


def fatal(error: BaseException) -> None:
    """Raise ``error``: as ``failed`` of a worker, it ends the thread and calls `threading.excepthook`."""
    raise error


class Worker:
    """A daemon thread that runs commands sequentially, in the order in which they were put.

    By default it does nothing else. An owner with more to do passes a ``turn``, which the thread runs repeatedly
    until the worker is closed; the turn itself takes commands with `wait` and `catch_up`.

    Commands put before `close` are run; later ones are not, and their futures of `submit` fail.

    An error of a command that was `put` goes to the owner (``failed``). An error of a command of `submit` goes only to
    its future, so the caller has to read the future.

    This is not a thread pool: a pool waits for its threads when the interpreter exits, and a call that hangs in a
    foreign library would prevent the process from ending.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], None] | None = None,
        *,
        failed: Callable[[BaseException], None] | None = None,
        ended: Callable[[], None] = do_nothing,
    ) -> None:
        """``name`` is the thread's. ``failed`` and ``ended`` are called on the thread.

        ``failed`` gets the error of a turn, or of a command in it, and then the next turn follows; by default the
        error is logged, and with `fatal` the thread ends. ``ended`` is called once, after the last turn.
        """
        self._name = name
        self._turn = turn or self._run_next
        self._failed = failed or self._log_failure
        self._ended = ended
        self._inbox: Inbox[WorkerCommand] = Inbox()
        self._is_closed = False
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # ---- from any thread ----

    def start(self) -> Worker:
        """Start the thread; return the worker."""
        self._thread.start()
        return self

    def put(self, command: WorkerCommand) -> None:
        """Run ``command`` after all earlier commands; never blocks."""
        self._inbox.post(command)
        if self._is_over:
            self._refuse_all()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Return the future of ``work``, which runs after all earlier commands.

        It fails with the error of the work, or with `Unavailable` when the worker is closed before.
        """
        job = _Job(work)
        self.put(job)
        return job.future

    def wake(self) -> None:
        """End a `wait`."""
        self.put(do_nothing)

    def close(self) -> None:
        """End the thread after all earlier commands; does not wait."""
        self.put(self.end)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until all earlier commands have run, at most for the time-out; return whether they have.

        Returns False at once if the worker has ended.
        """
        done = self.submit(do_nothing)
        wait((done,), timeout_seconds)
        return done.done() and done.exception() is None

    def join(self, timeout_seconds: float | None = None) -> None:
        """Wait for the end of the thread, at most for the time-out; returns at once when it was never started."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)

    # ---- on its thread ----

    @property
    def is_closed(self) -> bool:
        """Whether this turn is the last one."""
        return self._is_closed

    @property
    def has_commands(self) -> bool:
        """Whether commands are waiting."""
        return not self._inbox.is_empty()

    def wait(self, seconds: float | None) -> bool:
        """Run the oldest command, waiting at most ``seconds`` (None: for ever); return whether there was one."""
        try:
            command = self._inbox.take(seconds)
        except queue.Empty:
            return False
        command()
        return True

    def catch_up(self) -> None:
        """Run all waiting commands."""
        while self.has_commands:
            self._inbox.take()()

    def end(self) -> None:
        """Make this turn the last one."""
        self._is_closed = True

    def _run(self) -> None:
        try:
            while not self._is_closed:
                try:
                    self._turn()
                except BaseException as error:  # noqa: BLE001 - this thread's outermost loop
                    self._failed(error)
            self._ended()
        finally:
            # The order matters: commands put from now on are refused by `put`.
            self._is_over = True
            self._refuse_all()

    def _run_next(self) -> None:
        self.wait(None)

    def _log_failure(self, error: BaseException) -> None:
        _log.error("%s: an unexpected error", self._name, exc_info=error)

    def _refuse_all(self) -> None:
        for command in self._inbox.drain(0):
            if isinstance(command, _Job):
                settle(command.future, error=Unavailable(f"{self._name} has ended"))


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    """Work with a future for its outcome."""

    work: Callable[[], T]
    future: Future[T] = field(default_factory=Future)

    def __call__(self) -> None:
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001 - the future receives it
            settle(self.future, error=error)
        else:
            settle(self.future, result)


def settle(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    """Set the outcome of a future, unless it has one: the waiting thread may have given up first."""
    with suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
