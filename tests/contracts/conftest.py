"""Servers that the contract suites share, one set per test session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from embedded.cluster import LocalCluster


@pytest.fixture(scope="session")
def kafka_bootstrap() -> Iterator[str]:
    """A real broker: the one that `STANDFAST_KAFKA` names, else that of a cluster of our own."""
    if os.environ.get("STANDFAST_KAFKA"):
        yield os.environ["STANDFAST_KAFKA"]
        return
    with LocalCluster.start("contracts", nodes=1, is_temporary=True) as cluster:
        yield cluster.kafka_bootstrap
