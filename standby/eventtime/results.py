"""Results of a batch of rows in windows or sessions, and the check of the rows. Pure."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple


class WindowResult(NamedTuple):
    """The result of a window or session for one key."""

    key: bytes
    start_ms: int
    """The window's first millisecond; for a session, the time of its first row."""
    end_ms: int
    """The first millisecond after the window, as in Kafka Streams, Spark and Flink; for a session, the time of its
    last row."""
    value: Any
    """`Aggregate.result`."""


@dataclass(slots=True)
class Results:
    """The results of one call."""

    results: list[WindowResult] = field(default_factory=list)
    """In the order of the rows that caused them; for one row, in the order of time, then key."""
    late: list[int] = field(default_factory=list)
    """Positions of the rows that were too late for any window: they are in no result."""
    dropped: int = 0
    """How often a row was too late for a window: with hopping windows, a row may miss some and be in others.

    Same as Kafka Streams' `dropped-records`.
    """


def check_rows(
    keys: Sequence[bytes | None],
    times: Sequence[int],
    marks: Sequence[int],
    values: Sequence[Any] | None = None,
) -> None:
    """Raise `ValueError` unless all have the same length, and the watermark never decreases."""
    if not len(keys) == len(times) == len(marks) or (values is not None and len(values) != len(keys)):
        lengths = ", ".join(str(len(each)) for each in (keys, times, marks, values) if each is not None)
        raise ValueError(f"keys, times, marks and values are of different lengths: {lengths}")
    if not all(map(operator.le, marks, islice(marks, 1, None))):
        raise ValueError("marks decrease: they must be the results of Watermark.advance, in the same order")
