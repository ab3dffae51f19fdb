"""The examples of docs/state.md do what the page says, on a real database, batch after batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from standby.adapters.rocksdict import RocksDatabase, open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import prefix
from tests.unit.docs.page_examples import examples, load, run

EXAMPLES = examples("state.md")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    made = open_database(tmp_path / "db", Profile.SERVING)
    yield made
    made.close()


class Task:
    """One task: batches of (key, value), outputs in order."""

    def __init__(self, module: ModuleType, store: str, database: RocksDatabase) -> None:
        self._module, self._store, self._database = module, store, database
        self._offset = 0

    def run(self, *records: tuple[str, Any]) -> list[tuple[str, str]]:
        rows = pa.table(
            {
                "_task": pa.array([0] * len(records), pa.int32()),
                "_offset": pa.array(range(self._offset, self._offset + len(records)), pa.int64()),
                "key": pa.array([key.encode() for key, _ in records], pa.binary()),
                "value": pa.array([json.dumps(value).encode() for _, value in records], pa.binary()),
            }
        )
        self._offset += len(records)
        outputs = run(self._module, self._store, self._database, rows, ["out"])
        return [(key, value) for _, key, value in outputs]

    @property
    def size(self) -> int:
        """How many keys the store has."""
        return sum(1 for _ in self._database.items(prefix(self._store)))


def test_the_page_has_the_examples_that_are_tested_here() -> None:
    assert list(EXAMPLES) == [
        "count each key",
        "the last three orders of each user",
        "drop what was seen within an hour",
    ]


def test_count_each_key(database: RocksDatabase, tmp_path: Path) -> None:
    task = Task(load(EXAMPLES["count each key"], tmp_path), "counts", database)
    assert task.run(("a", 0), ("b", 0), ("a", 0)) == [("a", "1"), ("b", "1"), ("a", "2")]
    assert task.run(("a", 0), ("c", 0)) == [("a", "3"), ("c", "1")]
    assert task.size == 3


def test_the_last_three_orders_of_each_user(database: RocksDatabase, tmp_path: Path) -> None:
    task = Task(load(EXAMPLES["the last three orders of each user"], tmp_path), "orders", database)

    def order(user: str, cents: int) -> tuple[str, Any]:
        return user, {"item": "x", "cents": cents}

    assert task.run(order("ann", 1), order("ann", 10), order("an", 5)) == [
        ("ann", "1"),
        ("ann", "11"),
        ("an", "5"),
    ]
    assert task.run(order("ann", 100), order("ann", 1000)) == [("ann", "111"), ("ann", "1110")]
    assert task.run(order("ann", 10000)) == [("ann", "11100")]
    assert task.size == 4


def test_drop_what_was_seen_within_an_hour(database: RocksDatabase, tmp_path: Path) -> None:
    task = Task(load(EXAMPLES["drop what was seen within an hour"], tmp_path), "seen", database)
    hour = 3_600_000

    def event(name: str, at_ms: int) -> tuple[str, Any]:
        return "k", {"id": name, "at_ms": at_ms}

    assert task.run(event("x", 0), event("x", 5), event("y", 10)) == [("k", "x"), ("k", "y")]
    assert task.run(event("x", hour - 1)) == []
    assert task.run(event("x", hour)) == [("k", "x")]
    assert task.run(event("z", 3 * hour)) == [("k", "z")]
    # What has expired is gone: z, its place in the order, and where the order begins.
    assert task.size == 3
