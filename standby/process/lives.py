"""How a process that ends is started again: soon after a long life, later after each short one. Pure.

For the supervisor of a candidate, for a node of a pool, and for the masters and nodes of `standfast run`.
"""

from __future__ import annotations

from typing import Final

#: A life longer than this counts as good: the next one begins soon, seconds.
GOOD_LIFE_SECONDS: Final = 30.0

#: The status of a life that could not begin (``EX_OSERR``).
NOT_STARTED: Final = 71

_FIRST_SECONDS: Final = 0.2
_LONGEST_SECONDS: Final = 10.0
_MOST_DOUBLINGS: Final = 10


def backoff_seconds(short_lives: int) -> float:
    """Return the pause before the next life after this many short ones in a row."""
    return min(_FIRST_SECONDS * float(2 ** min(short_lives, _MOST_DOUBLINGS)), _LONGEST_SECONDS)
