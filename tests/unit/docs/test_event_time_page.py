"""The examples of docs/event-time.md do what the page says, on a real database, however rows are cut into batches."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import prefix
from tests.unit.docs.page_examples import examples, load, run

EXAMPLES = examples("event-time.md")

MINUTE = 60_000


def outputs(name: str, store: str, directory: Path, rows: pa.Table) -> list[tuple[str, str, str]]:
    """Return the outputs of an example, those of each topic the same for batches of any size; so is the state."""
    module = load(EXAMPLES[name], directory)
    found = []
    for size in (rows.num_rows, 1, 2, 3):
        database = open_database(directory / f"batches of {size}", Profile.SERVING)
        told: list[tuple[str, str, str]] = []
        for start in range(0, rows.num_rows, size):
            told += run(
                module, store, database, rows.slice(start, size), ["main", "late", "paid", "to-check"]
            )
        found.append((told, dict(database.items(prefix(store)))))
        database.close()
    whole, state = found[0]
    for pieces, same in found[1:]:
        assert sorted(pieces, key=itemgetter(0)) == sorted(whole, key=itemgetter(0))
        assert same == state
    return whole


def table(at: Sequence[int], **columns: Sequence[Any]) -> pa.Table:
    times = pa.array(at, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    return pa.table({"at": times, "value": pa.array([b"%d" % each for each in at]), **columns})


def test_the_page_has_the_examples_that_are_tested_here() -> None:
    assert list(EXAMPLES) == [
        *("orders per minute", "what a user spends in one sitting", "each payment once"),
        "the last ten minutes, every minute",
    ]


def test_orders_per_minute(tmp_path: Path) -> None:
    rows = table(
        [0, 30_000, MINUTE + 5_000, 59_000, MINUTE + 10_000, 58_000, 3 * MINUTE],
        key=[b"ann", b"bob", b"ann", b"ann", b"bob", b"ann", b"ann"],
    )
    # A batch tells its results first and its late rows then; each topic has its own order in any case.
    assert outputs("orders per minute", "windows", tmp_path, rows) == [
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
    assert outputs("what a user spends in one sitting", "sittings", tmp_path, rows) == [
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
    assert outputs("each payment once", "seen", tmp_path, rows) == [
        ("paid", "k", "0"),
        ("paid", "k", "1000"),
        # Eleven minutes behind the first, by the watermark: a payment of its own.
        ("paid", "k", str(12 * MINUTE)),
        ("to-check", "k", str(7 * MINUTE)),
    ]


def test_the_last_ten_minutes_every_minute(tmp_path: Path) -> None:
    rows = table(
        [9 * MINUTE, 10 * MINUTE, 10 * MINUTE + 34_999, 10 * MINUTE + 35_000],
        key=[b"ann", b"ann", b"ann", b"ann"],
        cents=[100, 20, 3, 1],
    )
    # The watermark is 5 s behind, and the grace is 30 s: the first window to close ends at minute 10.
    assert outputs("the last ten minutes, every minute", "recent", tmp_path, rows) == [
        ("main", "ann", "10: 100")
    ]
