"""Code that is interrupted at every line, as by a signal: its handler may run anywhere in the main thread."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from tests.patience import PATIENCE_SECONDS


@contextmanager
def before_each_line(act: Callable[[int], object]) -> Iterator[None]:
    """Call ``act`` with the number of the line before each line of all functions that are called from now on.

    If it waits for something that the interrupted code holds, the test fails after a while.
    """
    numbers = itertools.count()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            act(next(numbers))
        return trace

    def give_up(number: int, frame: FrameType | None) -> NoReturn:
        raise AssertionError("it waits for what it has interrupted")

    tracer, handler = sys.gettrace(), signal.signal(signal.SIGALRM, give_up)
    limit, _ = signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(tracer)
        signal.setitimer(signal.ITIMER_REAL, limit)
        signal.signal(signal.SIGALRM, handler)
