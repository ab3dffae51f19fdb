"""A task's stores and output in memory, with the semantics of `standby.api`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from examples.flights import flights, flights_plain
from standby.api import Output, Store

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


class MemoryStore(Store):
    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        return {key: self.data[key] for key in keys if key in self.data}

    def __contains__(self, key: bytes) -> bool:
        return key in self.data

    def range(
        self, start: bytes = b"", stop: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        found = (each for each in self.data.items() if start <= each[0] and (stop is None or each[0] < stop))
        return iter(sorted(found, reverse=reverse))

    def prefix(self, prefix: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return (each for each in self.range(prefix, None, reverse) if each[0].startswith(prefix))

    def put(self, key: bytes, value: bytes) -> None:
        self.data[key] = value

    def put_many(self, pairs: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        self.data.update(pairs)

    def delete(self, key: bytes) -> None:
        self.data.pop(key, None)

    def delete_many(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self.delete(key)


class MemoryOutput(Output):
    def __init__(self) -> None:
        self.topics: dict[str, list[tuple[bytes, dict[str, Any]]]] = defaultdict(list)

    def emit(
        self,
        key: bytes | None,
        value: bytes | None,
        topic: str | None = None,
        headers: Mapping[str, bytes] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        assert key is not None
        assert value is not None
        assert headers is None
        assert timestamp_ms is None
        self.topics[topic or "flight-delays"].append((key, json.loads(value)))


class Job:
    """The flights job over tables in memory: one task, batch after batch."""

    def __init__(self) -> None:
        self.stores = {"aircraft": MemoryStore(), "carriers": MemoryStore()}
        self.output = MemoryOutput()
        self.offset = 0

    def run(self, batch: Sequence[tuple[bytes, bytes | None]]) -> None:
        flights.totals(flights_plain.clean_table(table(batch, self.offset)), self.stores, self.output)
        self.offset += len(batch)

    def state(self) -> dict[str, dict[bytes, dict[str, Any]]]:
        return {
            name: {key: json.loads(value) for key, value in store.data.items()}
            for name, store in self.stores.items()
        }


def table(batch: Sequence[tuple[bytes, bytes | None]], first_offset: int = 0) -> pa.Table:
    """Return the rows as a feed hands them to the transform."""
    return pa.table(
        {
            "_task": pa.array([0] * len(batch), pa.int32()),
            "_offset": pa.array(range(first_offset, first_offset + len(batch)), pa.int64()),
            "key": pa.array([key for key, _ in batch], pa.binary()),
            "value": pa.array([value for _, value in batch], pa.binary()),
        }
    )


def by_key(pairs: Iterable[tuple[bytes, dict[str, Any]]]) -> dict[bytes, list[dict[str, Any]]]:
    """Return the values of each key, in order."""
    found: dict[bytes, list[dict[str, Any]]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found
