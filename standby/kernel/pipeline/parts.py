"""Splits a batch of one task whose rows produce more than one transaction should hold. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from standby.ports import TaskBatch
from standby.shared.model import Offsets

#: Stands for the topic when there is only one input.
_ONLY: Final = ""

#: The record of a row: topic and offset.
_Record = tuple[str, int]


def rows_before(batch: TaskBatch, row: int) -> int:
    """Return the number of rows in a part that ends at ``row`` or earlier: rows of one record are never split."""
    records = _records(batch)
    first: dict[_Record, int] = {}
    for number, each in enumerate(records):
        first.setdefault(each, number)
    while True:
        least = min((first[each] for each in records[row:]), default=row)
        if least >= row:
            return row
        row = least


def head_rows(batch: TaskBatch) -> int:
    """Return the number of rows of the first record and of records that cannot be separated from it."""
    records = _records(batch)
    last = {each: number for number, each in enumerate(records)}
    rows, seen = 1, 0
    while seen < rows:
        rows = max(rows, last[records[seen]] + 1)
        seen += 1
    return rows


def split_part(batch: TaskBatch, rows: int, inputs: Sequence[str]) -> tuple[TaskBatch, TaskBatch | None]:
    """Return the part with the first ``rows`` rows, and the rest; None if nothing is left.

    ``rows`` is a result of `rows_before` or `head_rows`. Offsets that the transform has dropped go with the rows before
    them.
    """
    if rows == batch.rows.num_rows:
        return batch, None
    rest = _records(replace(batch, rows=batch.rows.slice(rows)))
    topics = [_ONLY] if len(inputs) == 1 else inputs
    next_of: dict[str, int] = {}
    for topic, offset in rest:
        next_of.setdefault(topic, offset)
    cut = Offsets(tuple(next_of.get(topic, end) for topic, end in zip(topics, batch.end.each, strict=True)))
    return (
        replace(batch, end=cut, rows=batch.rows.slice(0, rows)),
        replace(batch, start=cut, rows=batch.rows.slice(rows)),
    )


def _records(batch: TaskBatch) -> list[_Record]:
    rows = batch.rows
    offsets = rows["_offset"].to_pylist()
    topics = rows["_topic"].to_pylist() if len(batch.start.each) > 1 else [_ONLY] * len(offsets)
    return list(zip(topics, offsets, strict=True))
