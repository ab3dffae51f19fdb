"""A Spark session for the transforms: other tests in this process have JVMs of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from standby.adapters.spark.session import Spark

    settings = {
        "spark.app.name": "examples",
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    spark = Spark(settings)
    yield spark.session
    spark.release()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a JVM is not in the gate, which has Spark in the feeds' contracts and on YARN."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.acceptance)
