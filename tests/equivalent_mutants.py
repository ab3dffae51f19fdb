"""Changes of the pure parts that no test can detect, because the behaviour stays the same: for tests/mutants.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CLAIM: Final = "standby/replica/claim.py"

_LAG: Final = "standby/replica/lag.py"

_SHOWN: Final = "how much of a value that is not ours is shown is no rule"

#: Module, line before, line after → why the behaviour stays the same.
EQUIVALENT: Final[Mapping[tuple[str, str, str], str]] = {
    **{
        (_CLAIM, line, line.replace(":80]", f": {length}]")): _SHOWN
        for line in (
            'raise CorruptState(f"{value[:80]!r} is no commit record") from error',
            'f"the committed offset has metadata that is not ours, {metadata[:80]!r}: another client commits with "',
        )
        for length in (79, 81)
    },
    **{
        (_CLAIM, "newest = max(claimed, default=0)", f"newest = max(claimed, default= {default})"): (
            "where nothing is committed nothing is newer: an epoch is 1 or more"
        )
        for default in (-1, 1)
    },
    **{
        (_LAG, "_SAMPLES: Final = 64", f"_SAMPLES: Final = {samples}"): "how many looks are kept is no rule"
        for samples in (63, 65)
    },
    (_LAG, "self._ends = deque(list(self._ends)[::2])", "self._ends = deque(list(self._ends)[:: 3])"): (
        "how many looks are dropped is no rule"
    ),
    (_LAG, "if newest is not None and at_ms < newest:", "if newest is not None and at_ms <= newest:"): (
        "of two equal times either is the earlier one"
    ),
}
