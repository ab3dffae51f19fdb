"""Every test in this folder runs on real servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernel_lab import Child


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def kafka_bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker that runs already (`STANDFAST_KAFKA`), or the session's cluster."""
    return os.environ.get("STANDFAST_KAFKA") or str(request.getfixturevalue("cluster").kafka_bootstrap)


@pytest.fixture
def start_child() -> Iterator[Callable[..., Child]]:
    """Starts kernels in processes of their own; what is left of them ends with the test."""
    children: list[Child] = []

    def start(*args: object, **more: object) -> Child:
        children.append(Child(*args, **more))  # type: ignore[arg-type]
        return children[-1]

    yield start
    for each in children:
        each.end()
