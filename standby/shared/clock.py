"""Time as a port: what is asked of a clock, and the real one.

Who decides by time gets a clock, or is told the time; who reads the machine's all the same is listed in pyproject.toml.
A test gives a clock that it moves by hand, so a time-out is over when the test says so, however slow the machine is.

There are two kinds of waiting. A *time-out* decides something: it is a comparison with `Clock.monotonic`, or one of the
waits below. A *pace* only spares work between two looks, and what is decided is the same however often one looks:
whoever keeps one waits for `Clock.pace`, which a clock of a test makes short.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Tells the time and waits; from any thread."""

    def monotonic(self) -> float:
        """Return seconds since some moment; they never go back."""
        ...

    def monotonic_ms(self) -> int:
        """Return the same in milliseconds."""
        ...

    def now_ms(self) -> int:
        """Return Unix milliseconds; somebody may set them back."""
        ...

    def pace(self, seconds: float) -> float:
        """Return for how long to wait between two looks that need not be closer than ``seconds``."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `pace`."""
        ...

    def completed(self, futures: Iterable[Future[T]], seconds: float) -> Iterator[Future[T]]:
        """Yield each future as it ends; raises `concurrent.futures.TimeoutError` when the time is over before."""
        ...

    def later(self, seconds: float, act: Callable[[], object]) -> Callable[[], None]:
        """Have ``act`` called on another thread after so long; return what calls that off."""
        ...


class RealClock:
    """The machine's."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    @staticmethod
    def monotonic_ms() -> int:
        """Return monotonic milliseconds."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def now_ms() -> int:
        """Return Unix milliseconds."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def pace(seconds: float) -> float:
        """Return ``seconds``."""
        return seconds

    @staticmethod
    def completed(futures: Iterable[Future[T]], seconds: float) -> Iterator[Future[T]]:
        """Yield each future as it ends; see `Clock.completed`."""
        return concurrent.futures.as_completed(futures, seconds)

    @staticmethod
    def later(seconds: float, act: Callable[[], object]) -> Callable[[], None]:
        """Have ``act`` called after so long; see `Clock.later`."""
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()
        return timer.cancel


#: The only one that a process needs.
REAL: Final = RealClock()


def boot_ms() -> int:
    """Return the milliseconds since the machine started, those included in which it slept.

    Linux stops the monotonic clock while a machine is suspended, and nobody else's: a leader that slept would take its
    term for longer than it was.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def have_ended(clock: Clock, futures: Iterable[Future[T]], seconds: float) -> bool:
    """Wait until all futures have ended, at most so long; return whether they have."""
    try:
        for _ in clock.completed(futures, seconds):
            pass
    except concurrent.futures.TimeoutError:
        return False
    return True
