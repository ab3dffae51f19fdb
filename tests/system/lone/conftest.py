"""Tests of this folder need a broker or ZooKeeper, or have servers of their own; none of them deploys a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from embedded.cluster import LocalCluster
from tests.kernel_lab import Child
from tests.servers import shared_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """ZooKeeper and Kafka. Who hurts one of them starts servers of their own."""
    with shared_cluster(hosts=0) as cluster:
        yield cluster


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
