"""A thread that does blocking work in order, and that can be given up when it hangs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Ends the thread when its turn comes.
_END: Final = None


class Lane:
    """Runs what it is given, one after the other, on one daemon thread.

    Not a thread pool: a pool waits for its threads at the interpreter's end, and a call that hangs in a
    foreign library would keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Return the future of ``work``, which runs after everything submitted before."""
        future: Future[T] = Future()
        self._work.put((work, future))
        return future

    def close(self) -> None:
        """End the thread once everything submitted has run; does not wait."""
        self._work.put(_END)

    def _run(self) -> None:
        while (item := self._work.get()) is not _END:
            work, future = item
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - this thread's outermost loop; the future has it
                settle(future, error=error)
            else:
                settle(future, result)
            # The last work done must not keep its objects alive until there is more to do.
            del item, work, future


def settle(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    """Give the future its outcome, unless it has one: whoever waited may have given up first."""
    with suppress(InvalidStateError):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


class Run:
    """One stretch of a replica's work; cancelling it makes everything that belongs to it end soon.

    Results of a cancelled run are not listened to any more.
    """

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._acts: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Have it end soon."""
        with self._lock:
            self._cancelled.set()
            acts, self._acts = self._acts, []
        for act in acts:
            act()

    @contextmanager
    def cutting_off(self, act: Callable[[], None]) -> Iterator[None]:
        """Have ``act`` called when the run is cancelled inside of the block, or was before.

        On the thread that cancels, so it must not block.
        """
        with self._lock:
            is_late = self._cancelled.is_set()
            if not is_late:
                self._acts.append(act)
        if is_late:
            act()
        try:
            yield
        finally:
            with self._lock:
                if act in self._acts:
                    self._acts.remove(act)

    def is_cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._cancelled.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait so long, or until the run is cancelled; return whether it was."""
        return self._cancelled.wait(seconds)
