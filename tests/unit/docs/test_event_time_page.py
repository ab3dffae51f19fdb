"""The examples of docs/event-time.md do what the page says, on a real database, however rows are cut into batches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import prefix
from standby.replica.store.overlay import BatchState, Outbox

PAGE = (Path(__file__).parents[3] / "docs" / "event-time.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"### Example: (.+?)\n\n```python\n(.+?)```", PAGE, re.DOTALL))

MINUTE = 60_000


class Example:
    """One example as a task's step, on a database of its own."""

    def __init__(self, name: str, store: str, directory: Path) -> None:
        self._module: dict[str, Any] = {}
        exec(compile(BLOCKS[name], name, "exec"), self._module)
        self._store, self._directory = store, directory

    def run(self, rows: pa.Table, size: int) -> tuple[list[tuple[str, str, str]], dict[bytes, bytes]]:
        """Return (topic, key, value) of all outputs and the state, after batches of ``size`` rows."""
        database = open_database(self._directory / f"batches of {size}", Profile.SERVING)
        found: list[tuple[str, str, str]] = []
        try:
            for start in range(0, rows.num_rows, size):
                state, out = BatchState([self._store], database), Outbox(["main", "late", "paid", "to-check"])
                self._module["step"](rows.slice(start, size), state, out)
                state.end()
                database.write(state.changes.items())
                found += (
                    (each.topic, (each.key or b"").decode(), (each.value or b"").decode())
                    for each in out.records
                )
            return found, dict(database.items(prefix(self._store)))
        finally:
            database.close()

    def outputs(self, rows: pa.Table) -> list[tuple[str, str, str]]:
        """Return the outputs, those of each topic the same for batches of any size; so is the state."""
        whole, state = self.run(rows, rows.num_rows)
        for size in (1, 2, 3):
            pieces, same = self.run(rows, size)
            assert sorted(pieces, key=_topic) == sorted(whole, key=_topic)
            assert same == state
        return whole


def _topic(output: tuple[str, str, str]) -> str:
    return output[0]


def table(at: Sequence[int], **columns: Sequence[Any]) -> pa.Table:
    times = pa.array(at, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    return pa.table({"at": times, "value": pa.array([b"%d" % each for each in at]), **columns})


def test_the_page_has_the_examples_that_are_tested_here() -> None:
    assert list(BLOCKS) == ["orders per minute", "what a user spends in one sitting", "each payment once"]


def test_orders_per_minute(tmp_path: Path) -> None:
    rows = table(
        [0, 30_000, MINUTE + 5_000, 59_000, MINUTE + 10_000, 58_000, 3 * MINUTE],
        key=[b"ann", b"bob", b"ann", b"ann", b"bob", b"ann", b"ann"],
    )
    outputs = Example("orders per minute", "windows", tmp_path).outputs(rows)
    # A batch tells its results first and its late rows then; each topic has its own order in any case.
    assert outputs == [
        ("main", "ann", "0: 2"),
        ("main", "bob", "0: 1"),
        ("main", "ann", "1: 1"),
        ("main", "bob", "1: 1"),
        ("late", "ann", "58000"),
    ]


def test_what_a_user_spends_in_one_sitting(tmp_path: Path) -> None:
    rows = table(
        [0, 9 * MINUTE, 15 * MINUTE, 30 * MINUTE, 60 * MINUTE],
        key=[b"ann", b"ann", b"bob", b"ann", b"bob"],
        cents=[100, 50, 7, 1, 3],
    )
    assert Example("what a user spends in one sitting", "sittings", tmp_path).outputs(rows) == [
        ("main", "ann", "150 cents in 540 s"),
        ("main", "bob", "7 cents in 0 s"),
        ("main", "ann", "1 cents in 0 s"),
    ]


def test_each_payment_once(tmp_path: Path) -> None:
    rows = table(
        [0, 1_000, 2_000, 9 * MINUTE, 7 * MINUTE, 12 * MINUTE],
        key=[b"k"] * 6,
        id=[b"x", b"y", b"x", b"y", b"z", b"x"],
    )
    assert Example("each payment once", "seen", tmp_path).outputs(rows) == [
        ("paid", "k", "0"),
        ("paid", "k", "1000"),
        # Eleven minutes behind the first, by the watermark: a payment of its own.
        ("paid", "k", str(12 * MINUTE)),
        ("to-check", "k", str(7 * MINUTE)),
    ]
