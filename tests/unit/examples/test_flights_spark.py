"""The Spark transform gives, row for row, what the plain one gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.flights import flights, flights_plain
from examples.flights.source import flights as source
from tests.unit.examples.fakes import table
from tests.unit.examples.malformed import NO_FLIGHTS, ODD_FLIGHTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_cleans_as_the_plain_transform_does(spark: SparkSession) -> None:
    records: list[tuple[bytes, bytes | None]] = [(raw.key, raw.value) for raw in source(3_000)]
    records += [(b"x", value) for value in (*NO_FLIGHTS.values(), *ODD_FLIGHTS.values())]
    rows = table(records)
    plain = flights_plain.clean_table(rows)
    cleaned = flights.clean(spark.createDataFrame(rows)).toArrow()
    assert cleaned.sort_by("_offset").to_pylist() == plain.to_pylist()
    assert cleaned.schema.names == plain.schema.names


def test_the_clock_zone_of_the_host_does_not_matter(spark: SparkSession) -> None:
    rows = table([(raw.key, raw.value) for raw in source(50)])
    before = flights.clean(spark.createDataFrame(rows)).toArrow()
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        assert flights.clean(spark.createDataFrame(rows)).toArrow().equals(before)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
