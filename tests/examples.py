"""How many examples the property tests try: a fixed few in the gate, many and random ones in the soak."""

from __future__ import annotations

import os

#: Whether Hypothesis looks for new examples (`make soak`) rather than trying the same ones each time.
EXPLORES = os.environ.get("STANDFAST_HYPOTHESIS") == "explore"

_MORE = 20


def examples(gate: int) -> int:
    """Return how many examples to try, ``gate`` of which are enough for the gate."""
    return gate * _MORE if EXPLORES else gate
