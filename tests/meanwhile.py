"""Work that runs concurrently with a test, and calls that it holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from tests.patience import PATIENCE_SECONDS

T = TypeVar("T")


def background(act: Callable[[], T]) -> Future[T]:
    """Call ``act`` on a thread of its own, which ends no later than the process; return what will come of it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(act())
        except BaseException as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Run ``work`` on a separate thread during the block; its exception is raised at the block's end.

    ``work`` gets the event that asks it to end; so does the block, which may set it earlier.
    """
    done, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(done)
        except BaseException as error:  # noqa: BLE001 - raised again at the end of the block
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        done.set()
        thread.join()
    assert not errors, errors


class Hold:
    """A function that does not return until the test lets it; as a probe, it holds at one point only."""

    def __init__(self, at: str = "") -> None:
        self._at = at
        self._reached, self._may_go_on = threading.Event(), threading.Event()

    def __call__(self, *passed: object) -> None:
        if not self._at or self._at in passed:
            self._reached.set()
            assert self._may_go_on.wait(PATIENCE_SECONDS)

    def await_reached(self) -> None:
        assert self._reached.wait(PATIENCE_SECONDS), "it is not called"

    def let_go(self) -> None:
        self._may_go_on.set()
