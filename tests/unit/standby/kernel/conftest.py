"""What tests of the kernel in memory share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.memory_lab import MemoryContainer, MemoryLab


@pytest.fixture
def start(lab: MemoryLab) -> Iterator[Callable[..., MemoryContainer]]:
    """Starts containers of the test's lab; they are closed after it."""
    made: list[MemoryContainer] = []

    def one(host: str, **more: Any) -> MemoryContainer:
        made.append(lab.container(host, **more))
        return made[-1]

    yield one
    for each in made:
        each.replicas.close(5)
