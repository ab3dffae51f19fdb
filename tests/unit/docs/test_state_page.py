"""The examples of docs/state.md do what the page says, on a real database, batch after batch."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from standby.adapters.rocksdict import RocksDatabase, open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import prefix
from standby.replica.store.overlay import BatchState, Outbox

PAGE = (Path(__file__).parents[3] / "docs" / "state.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"### Example: (.+?)\n\n```python\n(.+?)```", PAGE, re.DOTALL))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    made = open_database(tmp_path / "db", Profile.SERVING)
    yield made
    made.close()


def example(name: str, directory: Path) -> ModuleType:
    """Return an example as a job's module, imported from a file as a container does it."""
    path = directory / "example_of_the_page.py"
    path.write_text(BLOCKS[name], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Whoever reads the types of a dataclass looks for its module there.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


class Task:
    """One task: batches of (key, value), outputs in order."""

    def __init__(self, module: ModuleType, store: str, database: RocksDatabase) -> None:
        self._step, self._store, self._database = module.step, store, database
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
        state, out = BatchState([self._store], self._database), Outbox(["out"])
        self._step(rows, state, out)
        state.end()
        self._database.write(state.changes.items())
        return [((each.key or b"").decode(), (each.value or b"").decode()) for each in out.records]

    @property
    def size(self) -> int:
        """How many keys the store has."""
        return sum(1 for _ in self._database.items(prefix(self._store)))


def test_the_page_has_the_examples_that_are_tested_here() -> None:
    assert list(BLOCKS) == [
        "count each key",
        "the last three orders of each user",
        "drop what was seen within an hour",
    ]


def test_count_each_key(database: RocksDatabase, tmp_path: Path) -> None:
    task = Task(example("count each key", tmp_path), "counts", database)
    assert task.run(("a", 0), ("b", 0), ("a", 0)) == [("a", "1"), ("b", "1"), ("a", "2")]
    assert task.run(("a", 0), ("c", 0)) == [("a", "3"), ("c", "1")]
    assert task.size == 3


def test_the_last_three_orders_of_each_user(database: RocksDatabase, tmp_path: Path) -> None:
    task = Task(example("the last three orders of each user", tmp_path), "orders", database)

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
    task = Task(example("drop what was seen within an hour", tmp_path), "seen", database)
    hour = 3_600_000

    def event(name: str, at_ms: int) -> tuple[str, Any]:
        return "k", {"id": name, "at_ms": at_ms}

    assert task.run(event("x", 0), event("x", 5), event("y", 10)) == [("k", "x"), ("k", "y")]
    assert task.run(event("x", hour - 1)) == []
    assert task.run(event("x", hour)) == [("k", "x")]
    assert task.run(event("z", 3 * hour)) == [("k", "z")]
    # What has expired is gone: z, its place in the order, and where the order begins.
    assert task.size == 3
