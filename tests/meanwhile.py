"""Work that goes on beside a block of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Run ``work`` on a thread of its own for the time of the block; what it raises is raised at the block's end.

    ``work`` is given the event that tells it to end, and so is the block, which may set it earlier.
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
