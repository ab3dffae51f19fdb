"""A malformed record is dropped, as each example's README says; it never ends the job. On Spark: test_spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from examples.flights import flights, flights_plain
from examples.orders import orders, orders_plain
from standby.replica.outbox import Emitted
from tests.unit.examples.fakes import FLIGHT, Task, rows, table
from tests.unit.examples.malformed import NO_FLIGHTS, ODD_FLIGHTS, kept, orders_of_all_sorts


def bodies(records: Sequence[Emitted]) -> list[Any]:
    """Return the values, which must be JSON as the standard has it: no NaN."""
    return [json.loads(each.value or b"", parse_constant=pytest.fail) for each in records]


def test_what_is_no_flight_is_dropped_whatever_it_is() -> None:
    values = {**NO_FLIGHTS, **ODD_FLIGHTS, "without a carrier": json.dumps(FLIGHT).encode()}
    keyed = [(None if name == "without a carrier" else b"N1", value) for name, value in values.items()]
    cleaned = flights_plain.clean_table(table(keyed))
    assert kept(values, cleaned) == list(ODD_FLIGHTS)
    task = Task(flights.totals, ("aircraft", "carriers"), "flight-delays", "unassigned-flights")
    emitted = task.run(cleaned)
    assert [each["flights"] for each in bodies(emitted)] == list(range(1, len(ODD_FLIGHTS) + 1))


def test_what_is_no_order_is_dropped_whatever_it_is() -> None:
    parsed = orders_plain.parse_table(rows(orders_of_all_sorts()))
    emitted = Task(orders.enrich, ("customers", "waiting"), "orders-with-names").run(parsed)
    assert bodies(emitted) == [{"order": "o1", "euros": 12.5, "customer": "Ada"}]
