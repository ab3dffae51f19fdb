"""Keeps what this process and its children print within bounds, where YARN has them print to a file.

YARN's shell opens the file, and the JVM, Spark's workers and the witness have it open as well: to rename it would
change nothing for them. So the file stays what it is: its end is copied to a file beside it, and it is cut.
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

#: What is behind the name of the file with what was printed before.
FORMER: Final = ".1"

#: How often the files are looked at, seconds: in between they may grow above their bound.
_LOOK_SECONDS: Final = 2.0

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Printed:
    descriptor: int
    path: Path


class LogFiles:
    """Bounds the files that ``descriptors`` (standard output and error) lead to, each with the one before it.

    What they lead to otherwise, such as a terminal or a pipe, is nobody's affair here.
    """

    def __init__(self, most_bytes: int, descriptors: Iterable[int] = (1, 2)) -> None:
        """Take ``most_bytes`` for a file and its former part together; each has half of them."""
        self._most_bytes = most_bytes // 2
        self._files = tuple(_regular(descriptors))
        for each in self._files:
            # Of everybody who has inherited it: behind a cut, others would go on far beyond the new end.
            flags = fcntl.fcntl(each.descriptor, fcntl.F_GETFL)
            fcntl.fcntl(each.descriptor, fcntl.F_SETFL, flags | os.O_APPEND)

    def start(self) -> None:
        """Look from time to time, as long as the process lives."""
        if self._files:
            threading.Thread(target=self._run, name="log-files", daemon=True).start()

    def look(self) -> None:
        """Cut each file that has grown too long; lines that are printed at that very moment may be lost."""
        for each in self._files:
            try:
                if os.fstat(each.descriptor).st_size > self._most_bytes:
                    self._cut(each)
            except OSError as error:
                # Its disk may be full: then the former part cannot be kept, and room is wanted all the more.
                with suppress(OSError):
                    os.ftruncate(each.descriptor, 0)
                _log.warning("%s: cut without keeping what was in it: %s", each.path, error.strerror)

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
                # Somebody else has moved it: theirs is not overwritten, and nothing is kept of ours.
                os.ftruncate(printed.descriptor, 0)
                return
            with part.open("wb") as target:
                # YARN's own users read it as they read the file itself.
                os.fchmod(target.fileno(), mode)
                source.seek(max(0, os.fstat(source.fileno()).st_size - self._most_bytes))
                while piece := source.read(_PIECE_BYTES):
                    target.write(piece)
            part.replace(former)
            os.ftruncate(printed.descriptor, 0)


def _regular(descriptors: Iterable[int]) -> Iterator[_Printed]:
    """Yield what leads to a file that can be cut, each file once."""
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
