"""The example of docs/inputs.md does what the page says, and submit accepts it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from standby.feed.batches import ROWS, check_schema
from tests.unit.docs.page_examples import examples, load

EXAMPLES = examples("inputs.md")


def test_amounts_without_spark(tmp_path: Path) -> None:
    module = load(EXAMPLES["amounts, without Spark"], tmp_path)
    values = [b"12", b"x", None, b"7", b"-1", b"3"]
    keys = [b"a", b"a", b"a", None, b"b", b"b"]
    rows = pa.Table.from_pylist(
        [
            {"key": key, "value": value, "timestamp": 0, "_task": 2, "_offset": offset}
            for offset, (key, value) in enumerate(zip(keys, values, strict=True))
        ],
        schema=ROWS,
    )
    cleaned = module.clean(rows)
    check_schema(cleaned.schema, ["in"], "clean")
    found = cleaned.select(["key", "amount", "_task", "_offset"]).to_pylist()
    assert [tuple(each.values()) for each in found] == [(b"a", 12, 2, 0), (b"b", 3, 2, 5)]
    assert module.clean(ROWS.empty_table()).num_rows == 0
