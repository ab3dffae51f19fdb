"""Conversions between Arrow columns and plain lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from standby.api import Output, RowError

#: Number of units per millisecond, for finer timestamps.
_PER_MILLISECOND: Final = {"us": 1_000, "ns": 1_000_000}

#: The first number beyond the range of signed 64-bit numbers.
_BEYOND: Final = 1 << 63


def event_times(column: pa.ChunkedArray) -> list[int]:
    """Return a column of times as milliseconds since 1970 UTC.

    The column has timestamps of any unit and time zone, which are truncated to milliseconds, or whole numbers, which
    are interpreted as milliseconds. Raises `RowError` for a row without a time, or with one beyond 64 bits of
    milliseconds (the job's transform should drop such rows), and `ValueError` for any other type.
    """
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise RowError(row, "has no event time")
    if pa.types.is_timestamp(column.type):
        unit = column.type.unit
        # The stored values are instants, whatever the time zone. Arrow's functions that use the time zone are
        # avoided, because in local time an hour may occur twice, or not at all.
        found: list[int] = column.cast(pa.int64()).to_pylist()
        if unit == "s":
            found = [each * 1_000 for each in found]
        elif unit != "ms":
            parts = _PER_MILLISECOND[unit]
            found = [each // parts for each in found]
    elif pa.types.is_integer(column.type):
        found = column.to_pylist()
    else:
        raise ValueError(f"event times are timestamps or whole numbers, not {column.type}")
    if found and not (min(found) >= -_BEYOND and max(found) < _BEYOND):
        row, time = next((row, each) for row, each in enumerate(found) if not -_BEYOND <= each < _BEYOND)
        raise RowError(row, f"has an event time of {time} ms, beyond 64 bits")
    return found


def emit_rows(rows: pa.Table, numbers: Iterable[int], out: Output, topic: str) -> int:
    """Emit the columns `key` and `value` of some rows, such as late ones, to ``topic``; return their number."""
    chosen = list(numbers)
    if chosen:
        taken = rows.select(["key", "value"]).take(pa.array(chosen, pa.int64()))
        out.emit_many(taken["key"].to_pylist(), taken["value"].to_pylist(), topic)
    return len(chosen)
