"""The signals that end a run: the first one asks for its end, a second one hurries it."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class EndSignals:
    """Ctrl-C and SIGTERM, for the block that it manages in the main thread.

    While a run starts, the first one interrupts what is under way. Nothing interrupts the end.
    """

    def __init__(self) -> None:
        #: Set by the first signal.
        self.asked = threading.Event()
        #: Set by the second one: what has not ended yet is to be killed.
        self.hurried = threading.Event()
        self._interrupts = True
        self._before: dict[int, Any] = {}

    def __enter__(self) -> EndSignals:
        self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begun(self) -> None:
        """Interrupt nothing from now on: the run looks at `asked` itself. Raises `KeyboardInterrupt` if it is set."""
        self._interrupts = False
        if self.asked.is_set():
            # A library may have swallowed the exception.
            raise KeyboardInterrupt

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.asked.is_set():
            self.hurried.set()
            return
        self.asked.set()
        if self._interrupts:
            raise KeyboardInterrupt
