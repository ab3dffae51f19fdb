"""Implementations of the clock port (`standby.shared.clock`) that a test controls."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from standby.shared.clock import RealClock
from tests.patience import LOOK_SECONDS, NEVER_SECONDS, soon

T = TypeVar("T")

#: The monotonic time of a new clock, in hours that no test waits for.
_BEGAN_SECONDS = NEVER_SECONDS

#: Of virtual time: less than that after which an answer of Kafka's counts no more.
_STEP = 3.0

#: For waits in a hurry: virtual seconds that pass while such a wait takes one.
_HURRY = 50


class WallClock(RealClock):
    """The real one, with another wall clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms  # type: ignore[method-assign]


class HandClock:
    """Follows the real clock, or runs faster, until it is held; then time passes only with `advance`.

    While it is held, threads that poll at an interval poll again soon: their results do not depend on how often they
    poll. The threads that `hold` names wait in virtual time: each of their waits advances the clock and returns at
    once. So their waits end after as many polls as on the real clock, and no other thread's time-out expires too
    early.
    """

    def __init__(self, rate: float = 1.0) -> None:
        """``rate``: how many seconds pass in a real one, until it is held."""
        self.began_ms = 1_700_000_000_000
        self._rate = rate
        self._held_at: float | None = None
        self._waiting: tuple[str, ...] = ()
        self._hurried: tuple[str, ...] = ()
        #: How far each of those is ahead, on its own thread.
        self._own = threading.local()
        # Not from zero, which code may take for "never".
        self._moved = _BEGAN_SECONDS - rate * time.monotonic()
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], object]]] = {}
        self._looks: Counter[str] = Counter()

    # ---- by a test ----

    def hold(self, *waiting: str) -> None:
        """Have no time pass from now on but by `advance`, and by the waits of threads whose names begin so."""
        self._waiting = waiting
        if self._held_at is None:
            self._held_at = time.monotonic()

    def hurry(self, *waiting: str) -> None:
        """Have the waits of threads whose names begin so be short, and only they themselves see a long time pass.

        So what they wait for causes no time-out elsewhere.
        """
        self._hurried = waiting

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        with self._changed:
            self._moved += seconds
            over = [key for key, (at, _) in self._due.items() if at <= self.monotonic()]
            acts = [self._due.pop(key)[1] for key in over]
            self._changed.notify_all()
        for act in acts:
            act()

    def let_pass(self, seconds: float, *threads: str) -> None:
        """Let so much time pass in steps, each of which threads with these names see."""
        left = seconds
        while left > 0:
            self.advance(min(left, _STEP))
            left -= _STEP
            for each in threads:
                self.await_looks(each)

    def await_looks(self, thread: str) -> None:
        """Return when a thread with such a name has gone round since: it has seen what the time is."""
        before = self._looks[thread]
        soon(lambda: self._looks[thread] >= before + 2, f"{thread} does not look")

    # ---- the port ----

    def monotonic(self) -> float:
        return self._common() + self._ahead

    def monotonic_ms(self) -> int:
        return round(self.monotonic() * 1000)

    def now_ms(self) -> int:
        return self.began_ms + int((self._common() - _BEGAN_SECONDS) * 1000)

    def pace(self, seconds: float) -> float:
        """Return ``seconds``, or less: see the class."""
        name = threading.current_thread().name
        self._looks[name] += 1
        if self._hurried and name.startswith(self._hurried):
            self._own.seconds = self._ahead + seconds
            return seconds / _HURRY
        if self._held_at is None:
            return seconds / self._rate
        if name.startswith(self._waiting):
            self.advance(seconds)
            assert self.monotonic() < 2 * _BEGAN_SECONDS, f"{name} waits for hours"
            return 0.0
        return min(seconds, LOOK_SECONDS)

    def sleep(self, seconds: float) -> None:
        """Wait for `pace`."""
        time.sleep(self.pace(seconds))

    def completed(self, futures: Iterable[Future[T]], seconds: float) -> Iterator[Future[T]]:
        """Yield each future as it ends."""
        left, deadline = set(futures), self.monotonic() + seconds
        while left:
            self._looks[threading.current_thread().name] += 1
            done, left = concurrent.futures.wait(left, LOOK_SECONDS, concurrent.futures.FIRST_COMPLETED)
            yield from done
            if left and self.monotonic() >= deadline:
                raise concurrent.futures.TimeoutError

    def later(self, seconds: float, act: Callable[[], object]) -> Callable[[], None]:
        """Have ``act`` called when so much time has passed."""
        key = object()
        with self._changed:
            self._due[key] = self._common() + seconds, act
        threading.Thread(target=self._ring, args=(key,), daemon=True).start()

        def call_off() -> None:
            with self._changed:
                self._due.pop(key, None)
                self._changed.notify_all()

        return call_off

    def _common(self) -> float:
        held_at = self._held_at
        return self._moved + self._rate * (time.monotonic() if held_at is None else held_at)

    @property
    def _ahead(self) -> float:
        """How far the present thread is ahead of the others."""
        return float(getattr(self._own, "seconds", 0.0))

    def _ring(self, key: object) -> None:
        """Wait for what is due, which the real clock may bring as well, and do it, unless `advance` does."""
        with self._changed:
            while (due := self._due.get(key)) is not None and due[0] > self.monotonic():
                left = due[0] - self.monotonic()
                self._changed.wait(None if self._held_at is not None else min(left, LOOK_SECONDS))
            due = self._due.pop(key, None)
        if due is not None:
            due[1]()


def held(*waiting: str) -> HandClock:
    """Return a clock that is held from its beginning, on a whole second; see `HandClock.hold`."""
    clock = HandClock()
    clock.hold(*waiting)
    clock.advance(_BEGAN_SECONDS - clock.monotonic())
    return clock


class WaitClock(HandClock):
    """No time passes but what is waited; each wait takes nothing, and lets something happen."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.waits = 0
        self._meanwhile = meanwhile
        self.hold("")

    def sleep(self, seconds: float) -> None:
        """Let so much time pass at once."""
        super().sleep(seconds)
        self.waits += 1
        self._meanwhile()
