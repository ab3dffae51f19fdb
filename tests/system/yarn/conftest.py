"""Tests of this folder deploy jobs, or use the same YARN."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedded.cluster import LocalCluster
from tests.servers.shared import shared_cluster

_HOSTS = 3


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """ZooKeeper, Kafka and YARN with three hosts. A test that lets a host or a server die starts it again.

    A test that fails may not get to it; then its hosts are started by tests/conftest.py, so that one failure stays one.
    """
    with shared_cluster(_HOSTS) as cluster:
        yield cluster
