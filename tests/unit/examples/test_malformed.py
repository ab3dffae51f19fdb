"""A malformed record is dropped, as each example's README says; it never ends the job. Through both transforms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.flights import flights, flights_plain
from examples.orders import orders, orders_plain
from examples.visits import visits
from standby.feed.batches import ROWS_OF_SEVERAL
from standby.replica.store.overlay import Emitted, Outbox
from tests.fakes.task_state import TaskState
from tests.unit.examples.fakes import FLIGHT
from tests.unit.examples.malformed import (
    NO_CUSTOMERS,
    NO_FLIGHTS,
    NO_ORDERS,
    NO_VIEWS,
    ODD_FLIGHTS,
    ORDER,
    VIEW,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What an example's transform makes of rows, on whichever feed.
Transform = Callable[[pa.Table], pa.Table]

FEEDS = ["plain", pytest.param("spark", marks=pytest.mark.spark)]


def transform_on(
    request: pytest.FixtureRequest, plain: Transform, of_spark: Callable[[DataFrame], DataFrame]
) -> Transform:
    if request.param == "plain":
        return plain
    spark = request.getfixturevalue("spark")
    return lambda rows: of_spark(spark.createDataFrame(rows)).toArrow().sort_by("_offset")


@pytest.fixture(params=FEEDS)
def clean(request: pytest.FixtureRequest) -> Transform:
    return transform_on(request, flights_plain.clean_table, flights.clean)


@pytest.fixture(params=FEEDS)
def parse_orders(request: pytest.FixtureRequest) -> Transform:
    return transform_on(request, orders_plain.parse_table, orders.parse)


def rows_of(values: Sequence[tuple[str, bytes | None, bytes | None]]) -> pa.Table:
    """Return (topic, key, value) as rows of one task, at the offsets 0, 1, 2, …"""
    topics, keys, values_of = zip(*values, strict=True)
    columns = {
        "key": keys,
        "value": values_of,
        "timestamp": [0] * len(keys),
        "_task": [0] * len(keys),
        "_offset": range(len(keys)),
        "_topic": topics,
    }
    return pa.table({name: list(each) for name, each in columns.items()}, schema=ROWS_OF_SEVERAL)


def kept(values: Mapping[str, bytes | None], rows: pa.Table) -> list[str]:
    """Return the names of those that a transform has left."""
    names = list(values)
    return [names[offset] for offset in rows["_offset"].to_pylist()]


def after(step: Callable[..., None], rows: pa.Table, stores: Sequence[str], *topics: str) -> list[Emitted]:
    """Return what the step emits for the rows."""
    out = Outbox(topics)
    with TaskState(*stores).batch() as state:
        step(rows, state, out)
    return out.records


def bodies(records: Sequence[Emitted]) -> list[Any]:
    """Return the values, which must be JSON as the standard has it: no NaN."""
    return [json.loads(each.value or b"", parse_constant=pytest.fail) for each in records]


def test_what_is_no_flight_is_dropped_whatever_it_is(clean: Transform) -> None:
    values = {**NO_FLIGHTS, **ODD_FLIGHTS}
    cleaned = clean(rows_of([("flights", b"N1", value) for value in values.values()]))
    assert kept(values, cleaned) == list(ODD_FLIGHTS)
    emitted = after(flights.totals, cleaned, ("aircraft", "carriers"), "flight-delays", "unassigned-flights")
    assert [each["flights"] for each in bodies(emitted)] == list(range(1, len(ODD_FLIGHTS) + 1))


def test_a_flight_of_nobody_is_dropped(clean: Transform) -> None:
    value = json.dumps(FLIGHT).encode()
    assert clean(rows_of([("flights", None, value), ("flights", b"N1", value)]))["_offset"].to_pylist() == [1]


@pytest.mark.spark
def test_what_is_no_view_is_dropped_whatever_it_is(request: pytest.FixtureRequest) -> None:
    spark = request.getfixturevalue("spark")
    values = {**NO_VIEWS, "a view": json.dumps(VIEW).encode()}
    views = [
        *(("page-views", b"ada", value) for value in values.values()),
        ("page-views", None, values["a view"]),
    ]
    parsed = visits.parse(spark.createDataFrame(rows_of(views))).toArrow()
    assert kept(values, parsed) == ["a view"]
    assert parsed["at"].cast(pa.int64()).to_pylist() == [1_709_283_605_000_000]
    assert after(visits.visits, parsed, ("seen", "visits"), "visits", "late-views") == []


def test_what_is_no_order_is_dropped_whatever_it_is(parse_orders: Transform) -> None:
    customers = [("customers", b"ada", b'{"name": "Ada"}')]
    customers += [("customers", b"ada", value) for value in NO_CUSTOMERS.values()]
    values = {**NO_ORDERS, "an order": json.dumps(ORDER).encode()}
    several = [
        *customers,
        *(("orders", b"ada", value) for value in values.values()),
        ("orders", None, values["an order"]),
    ]
    parsed = parse_orders(rows_of(several))
    found = parsed.filter(pc.equal(parsed["_topic"], "orders"))
    assert [list(values)[offset - len(customers)] for offset in found["_offset"].to_pylist()] == ["an order"]
    emitted = after(orders.enrich, parsed, ("customers", "waiting"), "orders-with-names")
    assert bodies(emitted) == [{"order": "o1", "euros": 12.5, "customer": "Ada"}]
