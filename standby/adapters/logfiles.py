"""Limits the size of the files to which YARN redirects the output of this process and its children.

YARN's shell opens the file, and the JVM, Spark's workers and the witness have it open as well, so renaming it would
have no effect for them. Instead, the end of the file is copied to a file beside it, and the file is truncated.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

#: Suffix of the file with earlier output.
FORMER: Final = ".1"

#: How often the files are checked, in seconds; in between they may exceed their limit.
_LOOK_SECONDS: Final = 2.0

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Printed:
    descriptor: int
    path: Path


class LogFiles:
    """Limits the files behind ``descriptors`` (standard output and error), including their former parts.

    Other targets, such as terminals and pipes, are ignored.
    """

    def __init__(self, most_bytes: int, descriptors: Iterable[int] = (1, 2)) -> None:
        """``most_bytes`` is the limit for a file and its former part together; each gets half of it."""
        self._most_bytes = most_bytes // 2
        self._files = tuple(_regular(descriptors))
        for each in self._files:
            # This affects all processes that inherited the file: without O_APPEND, they would write far beyond the
            # new end after a truncation.
            flags = fcntl.fcntl(each.descriptor, fcntl.F_GETFL)
            fcntl.fcntl(each.descriptor, fcntl.F_SETFL, flags | os.O_APPEND)

    def start(self) -> None:
        """Check periodically while the process is alive."""
        if self._files:
            threading.Thread(target=self._run, name="log-files", daemon=True).start()

    def look(self) -> None:
        """Truncate each file that has grown too long; lines printed at that moment may be lost."""
        for each in self._files:
            try:
                if os.fstat(each.descriptor).st_size > self._most_bytes:
                    self._cut(each)
            except OSError as error:
                # The disk may be full: then the former part cannot be kept, and space is needed even more.
                with suppress(OSError):
                    os.ftruncate(each.descriptor, 0)
                _log.warning("%s: truncated without keeping its content: %s", each.path, error.strerror)

    def _run(self) -> None:
        waiting = threading.Event()
        while not waiting.wait(_LOOK_SECONDS):
            self.look()

    def _cut(self, printed: _Printed) -> None:
        former = printed.path.with_name(f"{printed.path.name}{FORMER}")
        part = printed.path.with_name(f".{former.name}")
        mode = stat.S_IMODE(os.fstat(printed.descriptor).st_mode)
        with printed.path.open("rb") as source:
            if not os.path.samestat(os.fstat(source.fileno()), os.fstat(printed.descriptor)):
                # Another process has moved the file: its file is not overwritten, and our output is discarded.
                os.ftruncate(printed.descriptor, 0)
                return
            with part.open("wb") as target:
                # Readable by the same users as the file itself.
                os.fchmod(target.fileno(), mode)
                source.seek(max(0, os.fstat(source.fileno()).st_size - self._most_bytes))
                while piece := source.read(_PIECE_BYTES):
                    target.write(piece)
            part.replace(former)
            os.ftruncate(printed.descriptor, 0)


def _regular(descriptors: Iterable[int]) -> Iterator[_Printed]:
    """Yield the descriptors of regular files, each file once."""
    seen = set()
    for each in descriptors:
        try:
            status = os.fstat(each)
            path = Path(f"/proc/self/fd/{each}").readlink()
        except OSError:
            continue
        key = status.st_dev, status.st_ino
        if stat.S_ISREG(status.st_mode) and status.st_nlink and key not in seen:
            seen.add(key)
            yield _Printed(each, path)
