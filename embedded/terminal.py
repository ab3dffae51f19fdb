"""Progress on a terminal, or now and then a line where there is none."""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

#: How often a log file or a pipe gets a line.
QUIET_SECONDS: Final = 5.0


class ProgressLine:
    """One line that is written over as things go on.

    Where the stream is no terminal, a line of its own at most every :data:`QUIET_SECONDS`.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._last = ""
        self._last_written = float("-inf")

    def show(self, text: str) -> None:
        """Say how things stand now."""
        if text == self._last:
            return
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
        elif time.monotonic() - self._last_written < QUIET_SECONDS:
            return
        else:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        self._last = text
        self._last_written = time.monotonic()

    def close(self, text: str = "") -> None:
        """Say how it ended, if there is something to say, and leave the line."""
        if self._is_terminal and self._last:
            self._stream.write("\r\x1b[K")
        if text:
            self._stream.write(f"{text}\n")
        self._stream.flush()
        self._last = ""
