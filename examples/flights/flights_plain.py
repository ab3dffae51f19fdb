"""The same cleaning without Spark, for `task.feed: plain`: a function on an Arrow table.

Use it with ``task.transform: flights_plain:clean_table``, and both files in ``job.modules``, if you do not want a JVM
per container.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

import pyarrow as pa

#: The fields that identify a flight, in the order of its id.
_IDENTITY = ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time")

#: The fields with whole numbers.
_NUMBERS = ("dep_delay", "arr_delay", "air_time", "distance", "minute")

_WHOLE = re.compile(r"[+-]?[0-9]{1,10}")
_HOUR = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_SCHEMA = pa.schema(
    {
        "_task": pa.int32(),
        "_offset": pa.int64(),
        "key": pa.binary(),
        "flight": pa.string(),
        "status": pa.string(),
        "scheduled": pa.int64(),
        "dep_delay": pa.int32(),
        "arr_delay": pa.int32(),
        "air_time": pa.int32(),
        "distance": pa.int32(),
    }
)


def clean_table(rows: pa.Table) -> pa.Table:
    """Return one typed row per flight; invalid records are dropped, as in `flights.clean`."""
    cleaned = []
    for row in rows.select(["_task", "_offset", "key", "value"]).to_pylist():
        flight = _flight(row.pop("value"))
        if flight is not None and row["key"] is not None:
            cleaned.append({**row, **flight})
    return pa.Table.from_pylist(cleaned, schema=_SCHEMA)


def _flight(value: bytes | None) -> dict[str, Any] | None:
    raw = _texts(value)
    numbers = {name: _number(raw[name]) for name in _NUMBERS if name in raw}
    hour, minute = _unix_seconds(raw.get("time_hour", "")), numbers.pop("minute", None)
    # An invalid number is not a missing value: the kind of the flight cannot be determined.
    if hour is None or minute is None or None in numbers.values() or not raw.keys() >= {*_IDENTITY}:
        return None
    if "tailnum" not in raw:
        status = "unassigned"
    elif "dep_delay" not in raw:
        status = "cancelled"
    else:
        status = "diverted" if "arr_delay" not in raw else "flown"
    if status == "flown" and "distance" not in raw:
        return None
    return {
        "flight": "/".join(raw[name] for name in _IDENTITY),
        "status": status,
        "scheduled": hour // 60 + minute,
        **{name: numbers.get(name) for name in _NUMBERS if name != "minute"},
    }


def _texts(value: bytes | None) -> dict[str, str]:
    """Return the fields of a record as strings; none if the record is not a JSON object."""
    try:
        parsed = json.loads(value or b"")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(parsed, dict):
        return {}
    fields = ((name, each) for name, each in parsed.items() if each is not None)
    texts = ((name, each if isinstance(each, str) else json.dumps(each)) for name, each in fields)
    # Half of a surrogate pair has no UTF-8.
    trimmed = ((name, each.encode("utf-8", "replace").decode().strip(" ")) for name, each in texts)
    return {name: each for name, each in trimmed if each not in ("", "NA")}


def _number(text: str) -> int | None:
    number = int(text) if _WHOLE.fullmatch(text) else None
    return number if number is not None and -(2**31) <= number < 2**31 else None


def _unix_seconds(text: str) -> int | None:
    if not _HOUR.fullmatch(text):
        return None
    try:
        return int(dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
    except ValueError:
        return None
