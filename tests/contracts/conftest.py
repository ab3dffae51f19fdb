"""What the contract suites of a module share besides the servers: one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.jars import classpath


@pytest.fixture(scope="module")
def shared_spark() -> Iterator[list[Path]]:
    """Keeps one JVM for all Spark feeds of a module, and ends it: others have other settings."""
    from standby.adapters.spark.session import Spark
    from standby.config import parse
    from standby.feed.spark import settings_of

    required = {"job.name": "all", "task.inputs": "in", "task.step": "job:step"}
    config = parse({**required, "kafka.bootstrap.servers": "unused:1", "zookeeper.connect": "unused:1"})
    jars = classpath("spark-kafka")
    spark = Spark.acquire(settings_of(config, Path("code")), [path.resolve() for path in jars])
    yield jars
    spark.release()
