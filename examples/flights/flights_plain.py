"""The same cleaning without Spark, for `task.feed: plain`: a function of an Arrow table.

Use it with ``task.transform: flights_plain:clean_table`` where a JVM per container is not wanted.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa

_NUMBER = pa.int32()
_SCHEMA = pa.schema(
    {
        "_task": pa.int32(),
        "_offset": pa.int64(),
        "key": pa.binary(),
        "flight": pa.string(),
        "status": pa.string(),
        "scheduled": pa.int64(),
        "dep_delay": _NUMBER,
        "arr_delay": _NUMBER,
        "air_time": _NUMBER,
        "distance": _NUMBER,
    }
)


def clean_table(rows: pa.Table) -> pa.Table:
    """Return one typed row per flight; records that are no flight are dropped, as `flights.clean` does."""
    cleaned = []
    for row in rows.select(["_task", "_offset", "key", "value"]).to_pylist():
        flight = _flight(row.pop("value"))
        if flight is not None:
            cleaned.append({**row, **flight})
    return pa.Table.from_pylist(cleaned, schema=_SCHEMA)


def _flight(value: bytes | None) -> dict[str, Any] | None:
    try:
        parsed = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    texts = ((name, text.strip()) for name, text in parsed.items() if isinstance(text, str))
    raw = {name: text for name, text in texts if text not in ("", "NA")}

    def number(name: str) -> int | None:
        text = raw.get(name)
        return None if text is None else int(text)

    hour, minute = raw.get("time_hour"), number("minute")
    if raw.get("flight") is None or hour is None or minute is None:
        return None
    if raw.get("tailnum") is None:
        status = "unassigned"
    elif number("dep_delay") is None:
        status = "cancelled"
    else:
        status = "diverted" if number("arr_delay") is None else "flown"
    moment = dt.datetime.fromisoformat(hour.replace("Z", "+00:00"))
    names = ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time")
    return {
        "flight": "/".join(text for text in (raw.get(name) for name in names) if text is not None),
        "status": status,
        "scheduled": int(moment.timestamp()) // 60 + minute,
        "dep_delay": number("dep_delay"),
        "arr_delay": number("arr_delay"),
        "air_time": number("air_time"),
        "distance": number("distance"),
    }
