"""Work that runs concurrently with a block of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
