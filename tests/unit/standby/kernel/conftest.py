"""What tests of the kernel in memory share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.fakes.peers import PeerNet
from tests.memory_lab import Make, MemoryLab, starting


@pytest.fixture
def start(lab: MemoryLab) -> Iterator[Make]:
    """Starts containers of the test's lab; they are closed after it."""
    with starting(lab) as one:
        yield one


@pytest.fixture
def net() -> Iterator[PeerNet]:
    """Containers that fetch state from each other."""
    with closing(PeerNet()) as made:
        yield made
