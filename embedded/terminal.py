"""Progress on a terminal, or as occasional lines in a file or pipe."""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

#: Minimum interval between lines in a log file or a pipe.
QUIET_SECONDS: Final = 5.0


class ProgressLine:
    """A progress line that is overwritten in place.

    If the stream is not a terminal, a new line is written at most every :data:`QUIET_SECONDS`.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._last = ""
        self._last_written = float("-inf")

    def show(self, text: str) -> None:
        """Show the current progress."""
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
        """Clear the progress line and print ``text``, if any."""
        if self._is_terminal and self._last:
            self._stream.write("\r\x1b[K")
        if text:
            self._stream.write(f"{text}\n")
        self._stream.flush()
        self._last = ""
