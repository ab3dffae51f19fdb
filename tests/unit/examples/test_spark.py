"""The Spark transforms give, row for row, what the plain ones give; and the visits' one, which has no plain one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from examples.flights import flights, flights_plain
from examples.flights.source import flights as source
from examples.orders import orders, orders_plain
from examples.visits import visits
from tests.unit.examples.fakes import FLIGHT, Task, rows, table
from tests.unit.examples.malformed import (
    NO_FLIGHTS,
    NO_VIEWS,
    ODD_FLIGHTS,
    VIEW,
    kept,
    orders_of_all_sorts,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def sorted_rows(cleaned: DataFrame) -> pa.Table:
    return cleaned.toArrow().sort_by("_offset")


def test_flights_are_cleaned_as_the_plain_transform_does(spark: SparkSession) -> None:
    records: list[tuple[bytes | None, bytes | None]] = [(raw.key, raw.value) for raw in source(3_000)]
    records += [(b"x", value) for value in (*NO_FLIGHTS.values(), *ODD_FLIGHTS.values())]
    records += [(None, json.dumps(FLIGHT).encode())]
    plain = flights_plain.clean_table(table(records))
    cleaned = sorted_rows(flights.clean(spark.createDataFrame(table(records))))
    assert cleaned.to_pylist() == plain.to_pylist()
    assert cleaned.schema.names == plain.schema.names


def test_the_clock_zone_of_the_host_does_not_matter(spark: SparkSession) -> None:
    batch = table([(raw.key, raw.value) for raw in source(50)])
    before = flights.clean(spark.createDataFrame(batch)).toArrow()
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        assert flights.clean(spark.createDataFrame(batch)).toArrow().equals(before)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_orders_are_parsed_as_the_plain_transform_does(spark: SparkSession) -> None:
    batch = rows(orders_of_all_sorts())
    plain = orders_plain.parse_table(batch)
    parsed = sorted_rows(orders.parse(spark.createDataFrame(batch)))
    assert parsed.select(plain.schema.names).to_pylist() == plain.to_pylist()


def test_what_is_no_view_is_dropped_whatever_it_is(spark: SparkSession) -> None:
    values = {**NO_VIEWS, "a view": json.dumps(VIEW).encode()}
    keyed = [(b"ada", value) for value in values.values()]
    records = [*keyed, (None, values["a view"])]
    views = rows([("page-views", offset, key, value) for offset, (key, value) in enumerate(records)])
    parsed = visits.parse(spark.createDataFrame(views)).toArrow()
    assert kept(values, parsed) == ["a view"]
    assert parsed["at"].cast(pa.int64()).to_pylist() == [1_709_283_605_000_000]
    assert Task(visits.visits, ("seen", "visits"), "visits", "late-views").run(parsed) == []
