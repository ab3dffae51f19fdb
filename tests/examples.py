"""The number of examples of the property tests: a few fixed ones in the gate, many random ones in the soak."""

from __future__ import annotations

import os

#: Whether Hypothesis searches for new examples (`make soak`) rather than using the same ones each time.
EXPLORES = os.environ.get("STANDFAST_HYPOTHESIS") == "explore"

_MORE = 20


def examples(gate: int) -> int:
    """Return how many examples to try; for the gate, ``gate``."""
    return gate * _MORE if EXPLORES else gate
