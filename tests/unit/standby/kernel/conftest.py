"""What tests of the kernel in memory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.memory_lab import Make, MemoryLab, starting


@pytest.fixture
def start(lab: MemoryLab) -> Iterator[Make]:
    """Starts containers of the test's lab; they are closed after it."""
    with starting(lab) as one:
        yield one
