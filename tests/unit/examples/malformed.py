"""Records that no producer should send, and some will: what they are called, and their values."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tests.unit.examples.fakes import FLIGHT, Record

#: What is no JSON object, or none whose fields are there.
NO_OBJECTS: Mapping[str, bytes | None] = {
    "no value": None,
    "an empty value": b"",
    "an open brace": b"{",
    "a list": b"[]",
    "null": b"null",
    "a number": b"17",
    "a text": b'"flight"',
    "no JSON": b"not JSON at all",
    "no text": b"\xff\xfe\x00\x01",
    "a deep list": b"[" * 100_000,
    "deep objects": b'{"flight":' * 5_000,
    "no fields": b"{}",
}

VIEW: Mapping[str, str] = {"id": "v1", "page": "/", "at": "2024-03-01T09:00:05Z"}
ORDER: Mapping[str, Any] = {"id": "o1", "amount": 12.5, "currency": "EUR"}

#: What is no whole number.
_NO_NUMBERS: tuple[Any, ...] = (
    *("abc", "1.5", "1e3", "99999999999", "--1", "1 2", "0x10", "1_000", "１２"),
    *(1.5, True, [], {"a": 1}),
)

_NO_HOURS = (
    *("yesterday", "2013-13-01T10:00:00Z", "2013-02-30T10:00:00Z", "2013-01-01 10:00:00", "2013-01-01"),
    *("9" * 400, "+294248-01-01T00:00:00Z", "-294248-01-01T00:00:00Z"),
)


def changed(record: Mapping[str, Any], field: str, value: Any) -> bytes:
    """Return the record as JSON with one field changed."""
    return json.dumps({**record, field: value}).encode()


def each_of(record: Mapping[str, Any], fields: Iterable[str], values: Iterable[Any]) -> dict[str, bytes]:
    """Return the record with each of the fields changed to each of the values, by what was changed."""
    changes = itertools.product(fields, values)
    return {f"{name}={str(value)[:30]!r}": changed(record, name, value) for name, value in changes}


def truncated(record: Mapping[str, Any]) -> bytes:
    """Return the record's JSON without its end."""
    return json.dumps(record).encode()[:-1]


#: What the flights job drops.
NO_FLIGHTS: Mapping[str, bytes | None] = {
    **NO_OBJECTS,
    "a truncated flight": truncated(FLIGHT),
    "flights in a list": json.dumps([FLIGHT, FLIGHT]).encode(),
    **each_of(FLIGHT, ("year", "month", "day", "carrier", "flight", "origin"), ("", "NA", None)),
    **each_of(FLIGHT, ("sched_dep_time", "minute", "time_hour"), ("", "NA", None)),
    **each_of(FLIGHT, ("time_hour",), (*_NO_HOURS, 17, [], {})),
    **each_of(FLIGHT, ("dep_delay", "arr_delay", "air_time", "distance", "minute"), _NO_NUMBERS),
    "flown nowhere": changed(FLIGHT, "distance", "NA"),
}

#: What the flights job takes as it is: odd, and not wrong.
ODD_FLIGHTS: Mapping[str, bytes] = {
    "a number as such": changed(FLIGHT, "flight", 1545),
    "spaces": changed(FLIGHT, "dep_delay", " 12 "),
    "a sign": changed(FLIGHT, "arr_delay", "+5"),
    "another script": changed(FLIGHT, "carrier", "ЮТ"),
    "half a surrogate pair": changed(FLIGHT, "carrier", "\ud800"),
    "a field too many": changed(FLIGHT, "remark", {"any": ["thing"]}),
    "no air time": changed(FLIGHT, "air_time", "NA"),
}

#: What the visits job drops.
NO_VIEWS: Mapping[str, bytes | None] = {
    **NO_OBJECTS,
    "a truncated view": truncated(VIEW),
    **each_of(VIEW, VIEW, (None,)),
    # "09:00" would be another time every day.
    **each_of(VIEW, ("at",), ("", "NA", "now", "09:00", "2024", "2024-03-01", "2024-13-01T00:00:00Z")),
    **each_of(VIEW, ("at",), ("+294248-01-01T00:00:00Z", "-294248-01-01T00:00:00Z")),
    **each_of(VIEW, ("at",), (5, 10**14, 2**63 - 1, 10**30, 1.5, True, [], {})),
}

#: What the orders job drops.
NO_ORDERS: Mapping[str, bytes | None] = {
    **NO_OBJECTS,
    "a truncated order": truncated(ORDER),
    **each_of(ORDER, ORDER, (None,)),
    **each_of(ORDER, ("amount",), ("", "12.5", "abc", "NaN", "Infinity", True, [], {})),
    **each_of(ORDER, ("amount",), (math.nan, math.inf)),
    "an amount beyond numbers": b'{"id": "o1", "amount": 1e400, "currency": "EUR"}',
    "a whole amount beyond numbers": b'{"id": "o1", "amount": 1' + b"0" * 400 + b', "currency": "EUR"}',
    **each_of(ORDER, ("currency",), ("", "XXX", 5, [], {})),
}

#: Customers whose name the orders job does not learn, and does not forget another for.
NO_CUSTOMERS: Mapping[str, bytes] = {
    **{name: value for name, value in NO_OBJECTS.items() if value is not None},
    "no name": b'{"name": null}',
}


def kept(values: Mapping[str, bytes | None], parsed: pa.Table) -> list[str]:
    """Return the names of those that a transform has left of rows in this order."""
    names = list(values)
    return [names[offset] for offset in parsed["_offset"].to_pylist()]


def orders_of_all_sorts() -> list[Record]:
    """Return Ada, whatever is no customer, and an order of hers after whatever is none."""
    an_order = json.dumps(ORDER).encode()
    records: list[tuple[str, bytes | None, bytes | None]] = [
        ("customers", b"ada", b'{"name": "Ada"}'),
        *(("customers", b"ada", value) for value in NO_CUSTOMERS.values()),
        *(("orders", b"ada", value) for value in (*NO_ORDERS.values(), an_order)),
        ("orders", None, an_order),
    ]
    return [(topic, offset, key, value) for offset, (topic, key, value) in enumerate(records)]
