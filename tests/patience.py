"""How long tests wait: for what has to come, for what must not come, and between two looks.

Every real waiting time of the tests is one of these, or a multiple; `tests.lint_patience` refuses any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

#: For what has to come. Only a test that fails waits so long: far beyond what anything takes on a busy machine.
PATIENCE_SECONDS = 120.0

#: Longer than any test: what comes although this has not passed did not wait for it.
NEVER_SECONDS = 36_000.0

#: For one try of what is tried again until `PATIENCE_SECONDS` are over: a question that may be lost.
TRY_SECONDS = 10.0

#: Between two looks at something that has no event.
LOOK_SECONDS = 0.01

#: For what must not come, where no event shows that the work has got there. Such a check finds only what comes at once,
#: and on a slow machine not even that: that nothing came is no proof that nothing would have. It never fails wrongly.
A_MOMENT_SECONDS = 0.3

#: What strikes at a moment of chance draws it from this span.
STRIKE_SECONDS = 0.3

#: A look costs processor time that what is waited for needs. So a pause is this part of the time that has passed, which
#: is also the most by which a wait is prolonged.
_PAUSE_PART = 1 / 20
_LONGEST_PAUSE_SECONDS = 0.2

_Found = TypeVar("_Found")


def looks(seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Yield for every look at something that has no event: at once, then after pauses, last when time is up."""
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
    """Return what ``look`` returns as soon as that is true.

    Raises `AssertionError` with ``what`` after ``seconds``. A look that may fail catches that itself.
    """
    for _ in looks(seconds):
        if found := look():
            return found
    raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
