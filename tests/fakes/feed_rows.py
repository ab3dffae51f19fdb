"""Tables as a feed makes them: rows at positions of the input."""

from __future__ import annotations

import pyarrow as pa

from standby.feed.batches import ROWS, ROWS_OF_SEVERAL
from standby.shared.model import TaskId

#: Topic, offset, and the timestamp in microseconds.
Place = tuple[str | None, int, int | None]


def task(partition: int) -> TaskId:
    return TaskId("job", "main", partition)


def rows(*places: tuple[int | None, int | None]) -> pa.Table:
    """Return rows at (task, offset); the value is the row's place in the list."""
    columns = {
        "key": [b""] * len(places),
        "value": [str(number).encode() for number in range(len(places))],
        "timestamp": [0] * len(places),
        "_task": [each[0] for each in places],
        "_offset": [each[1] for each in places],
    }
    return pa.table(columns, schema=ROWS)


def of_two(*places: Place) -> pa.Table:
    """Return rows of partition 0 of two inputs; the value is the row's place in the list."""
    columns = {
        "key": [b""] * len(places),
        "value": [str(number).encode() for number in range(len(places))],
        "timestamp": [each[2] for each in places],
        "_task": [0] * len(places),
        "_offset": [each[1] for each in places],
        "_topic": [each[0] for each in places],
    }
    return pa.table(columns, schema=ROWS_OF_SEVERAL)
