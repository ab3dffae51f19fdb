"""Splits the rows of a micro-batch by task, wherever the transform runs.

A job with several inputs has an additional column, ``_topic``, and gets the rows of a task merged: each topic's rows
keep their order, and the topic whose highest timestamp so far is the lowest goes first. Kafka Streams chooses in the
same way between partitions that both have records available. It is exact within a batch, and best effort from one
batch to the next: how much of each topic a batch has depends on what was there to be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from standby.errors import BadConfiguration
from standby.ports import TaskBatch
from standby.shared.model import Offsets, TaskId

#: The columns that a transform gets or, without one, the step.
ROWS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("_task", pa.int32()),
        ("_offset", pa.int64()),
    ]
)

#: The same for a job with several inputs.
ROWS_OF_SEVERAL: Final = ROWS.append(pa.field("_topic", pa.string()))

#: The headers of a record, in the format of Spark's Kafka source: a name may occur twice, and a value may be
#: missing. Null for a record without headers.
HEADERS: Final = pa.field(
    "headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
)

#: Columns that a transform must not change: they identify the task and the offset of a row.
RESERVED: Final = ("_task", "_offset")

#: The same with several inputs.
RESERVED_OF_SEVERAL: Final = (*RESERVED, "_topic")

#: Earlier than every timestamp: for rows of a topic before its first timestamp.
_NEVER: Final = -(2**63)


def rows_of(inputs: Sequence[str], *, has_headers: bool = False) -> pa.Schema:
    """Return the columns for a job with these ``inputs``, with or without ``task.input.headers``."""
    schema = ROWS if len(inputs) == 1 else ROWS_OF_SEVERAL
    return schema.append(HEADERS) if has_headers else schema


def check_schema(schema: Any, inputs: Sequence[str], transform: str) -> None:
    """Raise `BadConfiguration` unless the Arrow ``schema`` has the reserved columns with their types.

    With several ``inputs`` it also needs ``timestamp``, of any unit, because the inputs are merged by it. A
    transform may replace it, for example by an event time.
    """
    several = len(inputs) > 1
    for name in RESERVED_OF_SEVERAL if several else RESERVED:
        expected = ROWS_OF_SEVERAL.field(name).type
        _check_once(schema, name, transform, "it must be kept as it is")
        if schema.field(name).type != expected:
            raise BadConfiguration(
                f"task.transform: {transform} returns {name!r} as {schema.field(name).type}; it must stay {expected}"
            )
    if several:
        _check_once(schema, "timestamp", transform, "rows of several inputs are merged by it")
        found = schema.field("timestamp").type
        if not pa.types.is_timestamp(found):
            raise BadConfiguration(
                f"task.transform: {transform} returns 'timestamp' as {found}; it must be a timestamp: rows of "
                "several inputs are merged by it"
            )


def _check_once(schema: Any, name: str, transform: str, why: str) -> None:
    count = schema.names.count(name)
    if count == 0:
        raise BadConfiguration(
            f"task.transform: {transform} returns no column {name!r}; {why}, "
            f"the result has {', '.join(schema.names) or 'no columns'}"
        )
    if count > 1:
        raise BadConfiguration(f"task.transform: {transform} returns {count} columns called {name!r}")


def split(
    rows: pa.Table,
    spans: Mapping[TaskId, tuple[Offsets, Offsets]],
    inputs: Sequence[str],
    transform: str = "",
) -> tuple[TaskBatch, ...]:
    """Return the batch of each task in ``spans`` that advances, in the tasks' order, rows by rising ``_offset``.

    ``spans`` has each task's start and end offsets, in the order of ``inputs``. A task whose rows were all
    filtered still gets its batch: its committed offsets must advance. Rows of one offset keep their order; rows of
    several inputs are merged as described above. Raises `BadConfiguration` when a row belongs to no task, or is
    outside of its task's span: then the transform has changed a reserved column, and committing would lose or
    duplicate records.
    """
    check_schema(rows.schema, inputs, transform)
    moved = {task: span for task, span in sorted(spans.items()) if span[1] != span[0]}
    parts = _by_partition(rows)
    batches = []
    assigned = 0
    for task, (start, end) in moved.items():
        own = parts.get(task.partition)
        if own is None:
            own = rows.slice(0, 0)
        if len(inputs) == 1:
            own = _in_order(own, task, "", (start.each[0], end.each[0]), transform)
        else:
            own = _merged(own, task, inputs, (start, end), transform)
        assigned += own.num_rows
        batches.append(TaskBatch(task=task, start=start, end=end, rows=own))
    if assigned != rows.num_rows:
        raise BadConfiguration(
            f"task.transform: {transform} changed '_task': {rows.num_rows - assigned} of {rows.num_rows} rows belong "
            f"to no partition of this batch ({', '.join(str(task.partition) for task in moved)})"
        )
    return tuple(batches)


#: With more pieces per partition than this, rows are sorted and copied instead.
_MOST_PIECES: Final = 4


def _by_partition(rows: pa.Table) -> dict[int | None, pa.Table]:
    """Return the rows of each value in ``_task``, in their original order.

    Usually there are a few long pieces, each of one partition, which are combined without copying. Filtering all
    rows once per task would cost more than the rest of `split`.
    """
    pieces = _pieces(rows.column("_task"))
    values = {value for value, _, _ in pieces}
    if len(pieces) > _MOST_PIECES * len(values):
        rows = rows.take(pc.sort_indices(rows.column("_task")))  # a stable sort
        pieces = _pieces(rows.column("_task"))
    found: dict[int | None, list[pa.Table]] = {}
    for value, start, length in pieces:
        found.setdefault(value, []).append(rows.slice(start, length))
    return {value: each[0] if len(each) == 1 else pa.concat_tables(each) for value, each in found.items()}


def _pieces(column: pa.ChunkedArray) -> list[tuple[int | None, int, int]]:
    """Return value, start and length of each run of equal values."""
    if len(column) == 0:
        return []
    ends = pc.run_end_encode(column.combine_chunks())
    found, start = [], 0
    for value, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        found.append((value, start, end - start))
        start = end
    return found


def _merged(
    rows: pa.Table,
    task: TaskId,
    inputs: Sequence[str],
    span: tuple[Offsets, Offsets],
    transform: str,
) -> pa.Table:
    """Return a task's rows of several inputs in one order."""
    topics = rows.column("_topic")
    parts = [
        _in_order(rows.filter(pc.equal(topics, topic)), task, topic, between, transform)
        for topic, between in zip(inputs, zip(span[0].each, span[1].each, strict=True), strict=True)
    ]
    strangers = rows.num_rows - sum(each.num_rows for each in parts)
    if strangers:
        raise BadConfiguration(
            f"task.transform: {transform} changed '_topic': {strangers} of {rows.num_rows} rows of {task} belong to "
            f"none of its inputs ({', '.join(inputs)})"
        )
    parts = [each for each in parts if each.num_rows] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    # The times of each part never decrease, and the sort is stable: the order within a topic is kept, and for equal
    # times the topic that is listed first goes first.
    times = pa.chunked_array([chunk for each in parts for chunk in _risen(each).chunks], pa.int64())
    return pa.concat_tables(parts).take(pc.sort_indices(times))


def _risen(rows: pa.Table) -> pa.ChunkedArray:
    """Return the highest timestamp up to each row."""
    times = pc.cumulative_max(pc.cast(rows.column("timestamp"), pa.int64()), skip_nulls=True)
    return pc.fill_null(pc.fill_null_forward(times), _NEVER)


def _in_order(rows: pa.Table, task: TaskId, topic: str, span: tuple[int, int], transform: str) -> pa.Table:
    """Return the rows of one topic by offset. Raises `BadConfiguration` for offsets outside of ``span``."""
    rows = _sorted(rows)
    if rows.num_rows:
        start, end = span
        offsets = pc.min_max(rows.column("_offset")).as_py()
        if rows.column("_offset").null_count or offsets["min"] < start or offsets["max"] >= end:
            raise BadConfiguration(
                f"task.transform: {transform} changed '_offset': {task} has rows {f'of {topic} ' if topic else ''}"
                f"with offsets from {offsets['min']} to {offsets['max']} in the batch [{start}, {end})"
            )
    return rows


def _sorted(rows: pa.Table) -> pa.Table:
    """Return ``rows`` sorted by offset; copied only if they are not sorted already (Kafka's order)."""
    offsets = rows.column("_offset")
    if rows.num_rows < 2 or offsets.null_count:
        return rows
    if pc.all(pc.less_equal(offsets.slice(0, len(offsets) - 1), offsets.slice(1))).as_py():
        return rows
    return rows.take(pc.sort_indices(rows, sort_keys=[("_offset", "ascending")]))
