"""What tests of the kernel in memory share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.fakes.peers import PeerNet
from tests.memory_lab import MakeLab, MemoryLab


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[MakeLab]:
    """Makes labs whose containers are closed after the test."""
    with ExitStack() as open_ones:
        yield lambda tasks=2, /, **config: open_ones.enter_context(
            closing(MemoryLab(tmp_path, tasks, **config))
        )


@pytest.fixture
def lab(make_lab: MakeLab) -> MemoryLab:
    """A job of two tasks."""
    return make_lab()


@pytest.fixture
def net() -> Iterator[PeerNet]:
    """Containers that fetch state from each other."""
    with closing(PeerNet()) as made:
        yield made
