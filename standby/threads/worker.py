"""A thread that owns something, and the inbox by which all others ask it for work."""

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

#: What a worker is asked for.
Command = Callable[[], object]


def nothing() -> None:
    """Do nothing."""


def fatal(error: BaseException) -> None:
    """Raise ``error``: a worker for which a turn ``failed`` so dies of it, and tells `threading.excepthook`."""
    raise error


class Worker:
    """A daemon thread that runs commands, one after the other, in the order in which they were put.

    By default that is all it does. An owner with more to do gives a ``turn``, which the thread runs again and again
    until the worker is closed; the turn takes commands out itself, with `wait` and `catch_up`, when they suit it.

    What is put before `close` runs; what is put later does not, and the futures of `submit` fail then.

    What a command raises that was `put` is the owner's (``failed``). What one raises of which there is a future is that
    future's alone: `submit` is for who reads it.

    Not a thread pool: a pool waits for its threads at the interpreter's end, and a call that hangs in a foreign library
    would keep the process from ending.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], None] | None = None,
        *,
        failed: Callable[[BaseException], None] | None = None,
        ended: Callable[[], None] = nothing,
    ) -> None:
        """``name`` is the thread's. ``failed`` and ``ended`` are called on it.

        ``failed`` gets whatever a turn, or a command in it, has raised, and the next turn follows; by default that is
        logged, and with `fatal` the thread dies. ``ended`` is called once, after the last turn.
        """
        self._name = name
        self._turn = turn or self._run_next
        self._failed = failed or self._log_failure
        self._ended = ended
        self._inbox: Inbox[Command] = Inbox()
        self._is_closed = False
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # ---- from any thread ----

    def start(self) -> Worker:
        """Begin with what was put until now; return the worker."""
        self._thread.start()
        return self

    def put(self, command: Command) -> None:
        """Have ``command`` run after all that was put before; never blocks."""
        self._inbox.post(command)
        if self._is_over:
            self._refuse_all()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Return the future of ``work``, which runs after all that was put before.

        It fails with what the work raises, or with `Unavailable` when the worker is closed before its turn comes.
        """
        job = _Job(work)
        self.put(job)
        return job.future

    def wake(self) -> None:
        """End a `wait`."""
        self.put(nothing)

    def close(self) -> None:
        """End the thread once all that was put before has run; does not wait."""
        self.put(self.end)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until all that was put before has run, at most so long; return whether it has.

        Of a worker that has ended, that is False at once.
        """
        done = self.submit(nothing)
        wait((done,), timeout_seconds)
        return done.done() and done.exception() is None

    def join(self, timeout_seconds: float | None = None) -> None:
        """Wait for the end of the thread, at most so long; returns at once when it was never started."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)

    # ---- on its thread ----

    @property
    def is_closed(self) -> bool:
        """Whether this turn is the last one."""
        return self._is_closed

    @property
    def has_commands(self) -> bool:
        """Whether commands wait."""
        return not self._inbox.is_empty()

    def wait(self, seconds: float | None) -> bool:
        """Run the oldest command, waiting at most so long for one, or without a bound; return whether there was one."""
        try:
            command = self._inbox.take(seconds)
        except queue.Empty:
            return False
        command()
        return True

    def catch_up(self) -> None:
        """Run all commands that wait."""
        while self.has_commands:
            self._inbox.take()()

    def end(self) -> None:
        """Have this turn be the last one."""
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
            # In this order: whatever is put from now on is refused by whoever puts it.
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
    """Work whose outcome a future tells."""

    work: Callable[[], T]
    future: Future[T] = field(default_factory=Future)

    def __call__(self) -> None:
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001 - the future has it
            settle(self.future, error=error)
        else:
            settle(self.future, result)


def settle(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    """Give the future its outcome, unless it has one: whoever waited may have given up first."""
    with suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
