"""Time as a port: the interface of a clock, and the real one.

Code that makes time-based decisions gets a clock, or the time as an argument; exceptions are listed in
pyproject.toml. Tests use a clock that they advance explicitly, so a time-out does not depend on the speed of the
machine.

There are two kinds of waiting. A *time-out* decides something: it is a comparison with `Clock.monotonic`, or one of
the waits below. A *pace* is a poll interval, which does not affect decisions: code waits for `Clock.pace`, which the
clock of a test shortens.
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
    """A clock. Thread-safe."""

    def monotonic(self) -> float:
        """Return seconds since some moment; never decreases."""
        ...

    def monotonic_ms(self) -> int:
        """Return the same in milliseconds."""
        ...

    def now_ms(self) -> int:
        """Return Unix milliseconds; the clock may be set back."""
        ...

    def pace(self, seconds: float) -> float:
        """Return how long to wait for a poll interval of ``seconds``."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `pace`."""
        ...

    def completed(self, futures: Iterable[Future[T]], seconds: float) -> Iterator[Future[T]]:
        """Yield each future as it ends. Raises `concurrent.futures.TimeoutError` after ``seconds``."""
        ...

    def later(self, seconds: float, act: Callable[[], object]) -> Callable[[], None]:
        """Call ``act`` on another thread after ``seconds``; return a function that cancels this."""
        ...


class RealClock:
    """The clock of the machine."""

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
        """Call ``act`` after ``seconds``; see `Clock.later`."""
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()
        return timer.cancel


#: The only instance that a process needs.
REAL: Final = RealClock()


def boot_ms() -> int:
    """Return the milliseconds since the machine was booted, including the time in which it was suspended.

    Linux stops the monotonic clock while a machine is suspended, but the clocks of other machines continue: a
    suspended leader would otherwise believe that its lease is still valid.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def have_ended(clock: Clock, futures: Iterable[Future[T]], seconds: float) -> bool:
    """Wait until all futures have ended, at most ``seconds``; return whether they have."""
    try:
        for _ in clock.completed(futures, seconds):
            pass
    except concurrent.futures.TimeoutError:
        return False
    return True
