"""The Spark transform gives, row for row, what the plain one gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from examples.flights import flights, flights_plain
from examples.flights.source import flights as source
from tests.unit.examples.fakes import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_spark_cleans_as_the_plain_transform_does(spark: SparkSession) -> None:
    records = [(raw.key, raw.value) for raw in source(3_000)]
    records += [(b"x", b""), (b"x", b"{"), (b"x", b"[]"), (b"x", b'{"flight":"1"}'), (b"x", b'{"flight":""}')]
    rows = table(records)
    plain = flights_plain.clean_table(rows)
    cleaned = flights.clean(spark.createDataFrame(rows)).toArrow()
    assert cleaned.sort_by("_offset").to_pylist() == plain.to_pylist()
    assert cleaned.schema.names == plain.schema.names


def test_the_clock_zone_of_the_host_does_not_matter(spark: SparkSession) -> None:
    rows = table([(raw.key, raw.value) for raw in source(50)])
    before = flights.clean(spark.createDataFrame(rows)).toArrow()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    assert flights.clean(spark.createDataFrame(rows)).toArrow().equals(before)
