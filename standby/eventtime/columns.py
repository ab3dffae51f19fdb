"""Between Arrow columns and plain lists."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from standby.api import Output, RowError


def event_times(column: pa.ChunkedArray) -> list[int]:
    """Return a column of times as milliseconds since 1970.

    The column is a timestamp of any unit, cut to the millisecond, or whole numbers, taken for milliseconds.
    Raises `RowError` for a row without a time, and `ValueError` for any other type: such rows are for the job's
    transform to leave out.
    """
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise RowError(row, "has no event time")
    if pa.types.is_timestamp(column.type):
        if column.type.unit in {"us", "ns"}:
            # A cast would round towards 1970, from both sides.
            column = pc.floor_temporal(column, unit="millisecond")
        column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise ValueError(f"event times are timestamps or whole numbers, not {column.type}")
    return column.to_pylist()  # type: ignore[no-any-return]


def emit_rows(rows: pa.Table, numbers: Iterable[int], out: Output, topic: str) -> int:
    """Send the columns `key` and `value` of some rows to ``topic``, late ones say; return how many there were."""
    chosen = list(numbers)
    if chosen:
        taken = rows.select(["key", "value"]).take(pa.array(chosen, pa.int64()))
        for key, value in zip(taken["key"].to_pylist(), taken["value"].to_pylist(), strict=True):
            out.emit(key, value, topic)
    return len(chosen)
