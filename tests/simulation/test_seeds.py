"""Random stories: whatever fails, every invariant holds on the way and the job is whole at the end."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

#: How many stories a test run tells; ``make simulate`` tells as many as one likes.
STORIES = int(os.environ.get("STANDFAST_STORIES", "100"))

#: Processes that tell them; the tests beside this one have the other processors.
JOBS = int(os.environ.get("STANDFAST_STORY_JOBS", "1"))

#: The same stories each time, unless the environment asks for others: about one story in some thousands still
#: finds something new, and what it finds is no fault of the change under test.
FIRST_SEED = 300_000


def first_seed() -> int:
    """Return where the seeds begin: named by the environment, ``fresh`` ones every minute, or always the same."""
    named = os.environ.get("STANDFAST_SEED", "")
    if named == "fresh":
        return int(dt.datetime.now(dt.timezone.utc).timestamp()) // 60 * 10_000
    return int(named or FIRST_SEED)


@pytest.mark.simulation
@pytest.mark.timeout(10 * PATIENCE_SECONDS)
@pytest.mark.parametrize(
    ("stories", "more"),
    [
        (STORIES, ()),
        (max(1, STORIES // 5), ("--pool",)),
        (max(1, STORIES // 5), ("--spares",)),
        (max(1, STORIES // 10), ("--pool", "--spares")),
    ],
)
def test_no_story_breaks_an_invariant(stories: int, more: tuple[str, ...]) -> None:
    first = first_seed()
    print(f"seeds from {first}; STANDFAST_SEED={first} tells the same stories again")
    seeds = f"{first}-{first + stories - 1}"
    # It forks. Tests before this one may have left Kafka clients to the garbage collector, and a child in which it
    # frees one, without the client's threads, ends with a segmentation fault.
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", seeds, "--jobs", str(JOBS), *more],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout
