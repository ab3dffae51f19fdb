"""From the rows of a micro-batch to what each task gets of it: the same rules for both feeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from standby.errors import BadConfiguration
from standby.model import TaskId
from standby.ports import TaskBatch

#: What a transform is given and, without one, what the state step gets. Both feeds give these types.
ROWS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("_task", pa.int32()),
        ("_offset", pa.int64()),
    ]
)

#: Columns that a transform must leave as they are: they say which task a row belongs to, and where.
RESERVED: Final = ("_task", "_offset")


def check_schema(schema: Any, transform: str) -> None:
    """Raise `BadConfiguration` unless the Arrow ``schema`` has the reserved columns with their types."""
    for name in RESERVED:
        expected = ROWS.field(name).type
        count = schema.names.count(name)
        if count == 0:
            raise BadConfiguration(
                f"task.transform: {transform} returns no column {name!r}; it must be kept as it is, "
                f"the result has {', '.join(schema.names) or 'no columns'}"
            )
        if count > 1:
            raise BadConfiguration(f"task.transform: {transform} returns {count} columns called {name!r}")
        if schema.field(name).type != expected:
            raise BadConfiguration(
                f"task.transform: {transform} returns {name!r} as {schema.field(name).type}; it must stay {expected}"
            )


def split(
    rows: pa.Table, spans: Mapping[TaskId, tuple[int, int]], transform: str = ""
) -> tuple[TaskBatch, ...]:
    """Return the batch of each task in ``spans`` that advances, in the tasks' order, rows by rising ``_offset``.

    ``spans`` has each task's start and end offset. A task whose rows were all filtered still gets its
    batch: its committed offset must advance. Rows of one offset stay in the order in which they came.
    Raises `BadConfiguration` when a row belongs to no task, or lies outside its task's span: then the
    transform has touched a reserved column, and committing would lose or double records.
    """
    check_schema(rows.schema, transform)
    moved = {task: span for task, span in sorted(spans.items()) if span[1] > span[0]}
    column = rows.column("_task")
    batches = []
    assigned = 0
    for task, (start, end) in moved.items():
        own = rows if _holds_only(column, task.partition) else rows.filter(pc.equal(column, task.partition))
        own = _sorted(own)
        if own.num_rows:
            offsets = pc.min_max(own.column("_offset")).as_py()
            if own.column("_offset").null_count or offsets["min"] < start or offsets["max"] >= end:
                raise BadConfiguration(
                    f"task.transform: {transform} changed '_offset': {task} has rows with offsets from "
                    f"{offsets['min']} to {offsets['max']} in the batch [{start}, {end})"
                )
        assigned += own.num_rows
        batches.append(TaskBatch(task=task, start=start, end=end, rows=own))
    if assigned != rows.num_rows:
        raise BadConfiguration(
            f"task.transform: {transform} changed '_task': {rows.num_rows - assigned} of {rows.num_rows} rows belong "
            f"to no partition of this batch ({', '.join(str(task.partition) for task in moved)})"
        )
    return tuple(batches)


def from_offsets(rows: pa.Table, positions: Mapping[int, int], transform: str = "") -> pa.Table:
    """Return the rows that do not lie below ``positions`` (partition → offset); other partitions' rows stay.

    Rows whose reserved columns the transform has spoiled stay as well: `split` has the words for those.
    """
    check_schema(rows.schema, transform)
    for partition, position in positions.items():
        is_below = pc.and_(
            pc.equal(rows.column("_task"), partition), pc.less(rows.column("_offset"), position)
        )
        rows = rows.filter(pc.invert(pc.fill_null(is_below, False)))
    return rows


def _holds_only(column: pa.ChunkedArray, value: int) -> bool:
    if len(column) == 0:
        return True
    extremes = pc.min_max(column).as_py()
    return bool(column.null_count == 0 and extremes["min"] == extremes["max"] == value)


def _sorted(rows: pa.Table) -> pa.Table:
    """Return ``rows`` by rising offset, copied only when they are not so already (Kafka's order)."""
    offsets = rows.column("_offset")
    if rows.num_rows < 2 or offsets.null_count:
        return rows
    if pc.all(pc.less_equal(offsets.slice(0, len(offsets) - 1), offsets.slice(1))).as_py():
        return rows
    return rows.take(pc.sort_indices(rows, sort_keys=[("_offset", "ascending")]))
