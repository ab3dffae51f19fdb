"""A task of an example's job, over what its state is in memory: the real overlay, no database, no broker."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from examples.flights import flights, flights_plain
from standby.feed.batches import ROWS_OF_SEVERAL
from standby.replica.outbox import Emitted, Outbox
from tests.fakes.task_state import TaskState

#: A flight from Newark, as the source has it.
FLIGHT: Mapping[str, str] = {
    "year": "2013",
    "month": "1",
    "day": "1",
    "sched_dep_time": "500",
    "dep_delay": "0",
    "arr_delay": "0",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N1",
    "origin": "EWR",
    "air_time": "60",
    "distance": "400",
    "minute": "0",
    "time_hour": "2013-01-01T10:00:00Z",
}


#: Topic, offset, key, value.
Record = tuple[str, int, bytes | None, bytes | None]


def rows(records: Sequence[Record]) -> pa.Table:
    """Return records of one task as a feed hands them to the transform."""
    columns: dict[str, list[Any]] = {
        "key": [key for _, _, key, _ in records],
        "value": [value for _, _, _, value in records],
        "timestamp": [0] * len(records),
        "_task": [0] * len(records),
        "_offset": [offset for _, offset, _, _ in records],
        "_topic": [topic for topic, _, _, _ in records],
    }
    return pa.table(columns, schema=ROWS_OF_SEVERAL)


class Task:
    """A task that runs a step batch after batch."""

    def __init__(self, step: Callable[..., None], stores: Sequence[str], *topics: str) -> None:
        self.state = TaskState(*stores)
        self._step, self._topics = step, topics

    def run(self, batch: pa.Table) -> list[Emitted]:
        """Return what the step emits for the transform's rows."""
        out = Outbox(self._topics)
        with self.state.batch() as stores:
            self._step(batch, stores, out)
        return list(out.records)


class Job:
    """The flights job: one task, batch after batch."""

    def __init__(self) -> None:
        self.task = Task(flights.totals, ("aircraft", "carriers"), "flight-delays", "unassigned-flights")
        self.outputs: dict[str, list[tuple[bytes, dict[str, Any]]]] = defaultdict(list)
        self.offset = 0

    def run(self, batch: Sequence[tuple[bytes, bytes | None]]) -> None:
        for each in self.task.run(flights_plain.clean_table(table(batch, self.offset))):
            assert each.key is not None
            self.outputs[each.topic].append((each.key, json.loads(each.value or b"")))
        self.offset += len(batch)

    def state(self) -> dict[str, dict[bytes, dict[str, Any]]]:
        return {
            name: {key: json.loads(value) for key, value in self.task.state.of(name).items()}
            for name in self.task.state.stores
        }


def table(batch: Sequence[tuple[bytes | None, bytes | None]], first_offset: int = 0) -> pa.Table:
    """Return flights, as key and value, as a feed hands them to the transform."""
    return rows([("flights", offset, key, value) for offset, (key, value) in enumerate(batch, first_offset)])


def by_key(pairs: Iterable[tuple[bytes, dict[str, Any]]]) -> dict[bytes, list[dict[str, Any]]]:
    """Return the values of each key, in order."""
    found: dict[bytes, list[dict[str, Any]]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found
