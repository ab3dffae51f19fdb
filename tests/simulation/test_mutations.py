"""The simulator finds planted bugs: each is caught by the invariant that it breaks, within so many stories."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import Failure, run_seed

#: Within so many stories, with room to spare: the slowest to be caught takes 34, those not in `RARE` at most 13.
STORIES = 200


#: Of spare containers: caught in the stories of a job that has some.
OF_SPARES = frozenset(each for each in MUTATIONS if each.startswith("spares-"))


def told(name: str, seed: int) -> Failure | None:
    """Return what broke in the story of a seed for a planted bug, which need not be planted."""
    return run_seed(seed, only=MUTATIONS[name].faults, has_spares=name in OF_SPARES)


def caught(name: str, stories: int) -> int | None:
    """Return the first seed whose story breaks one of a bug's invariants; None when none of so many does."""
    for seed in range(stories):
        failure = told(name, seed)
        if failure is not None and failure.invariant.startswith(MUTATIONS[name].invariants):
            return seed
    return None


#: It takes some thirty stories until each of these is caught.
RARE = ("no-resend", "no-same-host-check", "nothing-is-stuck")


@pytest.mark.simulation
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.acceptance] if each in RARE else [])
        for each in sorted(MUTATIONS)
    ],
)
def test_a_planted_bug_is_caught(name: str) -> None:
    invariants = MUTATIONS[name].invariants
    with MUTATIONS[name].plant():
        seed = caught(name, STORIES)
    assert seed is not None, f"{name}: none of {invariants} caught it in {STORIES} stories"
    # The same story without the bug breaks none of them.
    found = told(name, seed)
    assert found is None or not found.invariant.startswith(invariants), found
