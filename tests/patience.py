"""How long tests wait: for an expected event, for an event that must not happen, and between two polls.

Every real waiting time of the tests is one of these, or a multiple; `tests.lint_patience` rejects any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

#: For an expected event. Only a failing test waits this long: far longer than anything takes on a busy
#: machine.
PATIENCE_SECONDS = 120.0

#: Longer than any test: an event that happens before this has passed did not wait for it.
NEVER_SECONDS = 36_000.0

#: For one attempt that is repeated until `PATIENCE_SECONDS` are over, such as a request that may be lost.
TRY_SECONDS = 10.0

#: Between two polls of a condition that has no event.
LOOK_SECONDS = 0.01

#: For an event that must not happen, if no other event shows that the work has reached that point. Such a
#: check finds only immediate events, and on a slow machine not even those, so it proves little. It never
#: fails wrongly.
A_MOMENT_SECONDS = 0.3

#: Random moments of faults are drawn from this span.
STRIKE_SECONDS = 0.3

#: How long a thread stands still at most, and all of one test together (`tests.stalls`): a test may rely on
#: `PATIENCE_SECONDS`, and on a product that notices a silence of some seconds.
STALL_SECONDS = 0.8
STALLS_SECONDS = 4.0

#: A poll costs CPU time that the awaited work needs. So a pause is this part of the time that has passed,
#: which is also the most by which a wait is prolonged.
_PAUSE_PART = 1 / 20
_LONGEST_PAUSE_SECONDS = 0.2

_Found = TypeVar("_Found")


def looks(seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Yield for every poll of a condition without an event: at once, then after pauses, and last when time is up."""
    begun = time.monotonic()
    passed = 0.0
    while True:
        yield
        if passed >= seconds:
            return
        pause = min(max(LOOK_SECONDS, passed * _PAUSE_PART), _LONGEST_PAUSE_SECONDS)
        time.sleep(min(pause, seconds - passed))
        passed = time.monotonic() - begun


def soon(
    look: Callable[[], _Found], what: str | Callable[[], str], seconds: float = PATIENCE_SECONDS
) -> _Found:
    """Return the result of ``look`` as soon as it is true.

    Raises `AssertionError` with ``what`` after ``seconds``. ``look`` must catch its own exceptions.
    """
    for _ in looks(seconds):
        if found := look():
            return found
    raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
