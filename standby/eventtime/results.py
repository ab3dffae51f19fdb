"""What a batch of rows came to in windows or sessions, and how their rows are checked. Pure."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple


class WindowResult(NamedTuple):
    """One window's or session's result for one key."""

    key: bytes
    start_ms: int
    """The window's first millisecond; a session's first row."""
    end_ms: int
    """The first millisecond behind the window, as in Kafka Streams, Spark and Flink; a session's last row."""
    value: Any
    """`Aggregate.result`."""


@dataclass(slots=True)
class Results:
    """What the rows of one call led to."""

    results: list[WindowResult] = field(default_factory=list)
    """In the order of the rows that led to them; of one row, in the order of time, then key."""
    late: list[int] = field(default_factory=list)
    """Which rows came too late for any window, by their place in the batch: they are in no result."""
    dropped: int = 0
    """How often a row came too late for a window: with hopping windows a row may miss some and be in others.

    Kafka Streams' `dropped-records` counts the same.
    """


def check_rows(
    keys: Sequence[bytes | None],
    times: Sequence[int],
    marks: Sequence[int],
    values: Sequence[Any] | None = None,
) -> None:
    """Raise `ValueError` unless all are of one length, and the watermark never falls."""
    if not len(keys) == len(times) == len(marks) or (values is not None and len(values) != len(keys)):
        lengths = ", ".join(str(len(each)) for each in (keys, times, marks, values) if each is not None)
        raise ValueError(f"keys, times, marks and values are of different lengths: {lengths}")
    if not all(map(operator.le, marks, islice(marks, 1, None))):
        raise ValueError("marks fall: they must be what Watermark.advance returned, in the same order")
