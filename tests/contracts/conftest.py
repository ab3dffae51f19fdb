"""Shared by the contract suites in addition to the servers: one JVM per module, and the deletion of all topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.topics import delete_made_topics


@pytest.fixture(autouse=True)
def _deleted_topics() -> Iterator[None]:
    """Deletes the topics of each test when all that it set up has ended."""
    yield
    delete_made_topics()


@pytest.fixture(scope="module")
def shared_spark() -> Iterator[None]:
    """Keeps one JVM for all Spark feeds of a module, and ends it: others have other settings."""
    from standby.adapters.spark.session import Spark
    from standby.config import parse
    from standby.feed.spark import settings_of

    required = {"job.name": "all", "task.inputs": "in", "task.step": "job:step"}
    config = parse({**required, "kafka.bootstrap.servers": "unused:1", "zookeeper.connect": "unused:1"})
    spark = Spark.acquire(settings_of(config, Path("code")))
    yield
    spark.release()
