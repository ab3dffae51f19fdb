"""The signals that end a run: the first one asks for its end, a second one hurries it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from standby.shared.clock import REAL, Clock
from standby.threads.latch import Latch

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: What comes within this time is one request, seconds: `timeout` sends its signal to the process and to its group, and
#: a closed terminal's SIGHUP comes from the kernel and from the shell.
_ONE_REQUEST_SECONDS: Final = 0.5


class EndSignals:
    """Ctrl-C, SIGTERM and SIGHUP (a closed terminal), for the block that it manages in the main thread.

    While a run starts, the first one interrupts what is under way. Nothing interrupts the end.
    """

    def __init__(self, clock: Clock = REAL) -> None:
        #: Set by the first signal.
        self.asked = Latch()
        #: Set by the second one: what has not ended yet is to be killed.
        self.hurried = Latch()
        self._clock = clock
        self._asked_at = 0.0
        self._interrupts = True
        self._before: dict[int, Any] = {}

    def __enter__(self) -> EndSignals:
        for number in _SIGNALS:
            # A SIGHUP that is ignored stays so (nohup).
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def until_end(self) -> Iterator[None]:
        """Interrupt nothing from the end of the block on, whatever ended it: what was started is ended then."""
        try:
            yield
        finally:
            self._interrupts = False

    def begun(self) -> None:
        """Interrupt nothing from now on: the run looks at `asked` itself. Raises `KeyboardInterrupt` if it is set."""
        self._interrupts = False
        if self.asked.is_set():
            # A library may have swallowed the exception.
            raise KeyboardInterrupt

    def _receive(self, number: int, _: FrameType | None) -> None:
        now = self._clock.monotonic()
        if self.asked.is_set():
            if now - self._asked_at >= _ONE_REQUEST_SECONDS:
                self.hurried.set()
            return
        self._asked_at = now
        self.asked.set()
        if self._interrupts:
            raise KeyboardInterrupt
