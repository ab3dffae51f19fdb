"""Ctrl-C and SIGTERM as one exception, raised once; later signals never interrupt the clean-up."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        #: The exit status that a shell reports for a process that this signal ended.
        self.exit_status = 128 + number


class Interrupts:
    """While its block runs, the first of the signals raises `Interrupted` in the main thread.

    Any later exception of the block becomes `Interrupted`, with that exception as its cause: inside a client library
    `Interrupted` may surface as an error of the library, and the clean-up may fail.
    """

    def __init__(self) -> None:
        self._is_ignoring = False
        self._number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._number is not None and error is not None and not isinstance(error, Interrupted):
            raise Interrupted(self._number) from error

    def ignore(self) -> None:
        """Ignore all further signals."""
        self._is_ignoring = True

    def _receive(self, number: int, _: FrameType | None) -> None:
        if not self._is_ignoring:
            self._is_ignoring = True
            self._number = number
            raise Interrupted(number)
