"""The directory of the sockets between this process, its JVM, and Spark's Python workers.

The path of a socket must be short, which that of a container's directory is not. So these are in a directory that
nobody clears after a process was killed; the next start of Spark on the host does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PLACE: Final = Path("/tmp")  # noqa: S108  (only directories of our own are made in it, for this user alone)

_PREFIX: Final = "standfast-sockets-"


class SocketDirectory:
    """A new directory, locked as long as this process is alive."""

    def __init__(self) -> None:
        """Raises `OSError`."""
        _sweep()
        self.path = made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=_PLACE))
        #: The descriptor that holds the lock, until it is taken to be closed.
        self._locks: list[int] = []
        try:
            self._locks.append(os.open(made, os.O_RDONLY))
            fcntl.flock(self._locks[0], fcntl.LOCK_EX)
            # Others look at it only from now on.
            self.path = made.rename(made.with_name(made.name[1:]))
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        """Delete the directory. Thread-safe, and repeatable."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(IndexError):
            os.close(self._locks.pop())


def _sweep() -> None:
    """Delete the directories of processes that have ended."""
    with contextlib.suppress(OSError):
        for path in _PLACE.iterdir():
            if path.name.startswith(_PREFIX):
                _delete_unlocked(path)


def _delete_unlocked(path: Path) -> None:
    # Other users' directories cannot be opened.
    with contextlib.suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
