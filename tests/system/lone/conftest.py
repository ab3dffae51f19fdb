"""Tests of this folder need a broker or ZooKeeper, or start their own servers; those that deploy jobs do on a pool."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from kazoo.client import KazooClient

from appmaster.adapters.zookeeper.session import ZooKeeper
from embedded.cluster import LocalCluster
from embedded.servers import KAFKA
from tests.fakes.zookeeper import LoneZooKeeper
from tests.kernel_lab import Child
from tests.topics import delete_made_topics

#: How much of a broker's log is shown after a failure, characters.
_SHOWN: Final = 20_000


@pytest.fixture(scope="module")
def own_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """ZooKeeper and Kafka of the module's own, for tests that damage them, or that have a broker join them.

    If a test has failed, the end of the broker's log is shown, which ends with the cluster.
    """
    before = request.session.testsfailed
    with LocalCluster.start(f"own-{os.getpid()}", nodes=0, is_temporary=True) as cluster:
        yield cluster
        if request.session.testsfailed > before:
            sys.stderr.write(cluster.log(KAFKA).read_text(encoding="utf-8", errors="replace")[-_SHOWN:])


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneZooKeeper]:
    """A ZooKeeper server that no test damages: each has a cluster of its own name there."""
    with LoneZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def name() -> str:
    """The name of a cluster that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def zookeeper(server: LoneZooKeeper, name: str) -> Iterator[ZooKeeper]:
    """A session with the tree of the test's cluster."""
    with ZooKeeper(server.connect, name) as zookeeper:
        zookeeper.tree.prepare()
        yield zookeeper


@pytest.fixture
def client(server: LoneZooKeeper) -> Iterator[KazooClient]:
    """A client of the server that belongs to nobody."""
    client = server.client()
    yield client
    client.stop()
    client.close()


@pytest.fixture(autouse=True)
def _deleted_topics() -> Iterator[None]:
    """Deletes the topics of each test when all that it set up has ended."""
    yield
    delete_made_topics()


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
