"""The state steps of the benchmarks' own jobs (`task.step`); those of the other systems do the same."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

NUMBER: Final = struct.Struct(">q")

#: A profile of the heavier update: count, sum, minimum, maximum, and 12 buckets of a histogram.
PROFILE: Final = struct.Struct(">4q12q")
BUCKETS: Final = 12
EMPTY: Final = (0, 0, 1 << 40, -1, *([0] * BUCKETS))


def unchanged(rows: Any) -> Any:
    """Return the rows: the transform that costs a feed the least."""
    return rows


def called(rows: Any) -> Any:
    """Return the rows, of which a function in Python has handed on the values."""
    from pyspark.sql import functions as f

    def same(value):  # type: ignore[no-untyped-def]
        return bytes(value)

    return rows.withColumn("value", f.udf(same, "binary")("value"))


def count(rows: Any, state: Any, out: Any) -> None:
    """Count each key's records; one output per record: the count and the record's unchanged time stamp."""
    keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
    store = state["s"]
    counts = {key: NUMBER.unpack(value)[0] for key, value in store.get_many(set(keys)).items()}
    results = []
    for key, value in zip(keys, values, strict=True):
        number = counts.get(key, 0) + 1
        counts[key] = number
        results.append(value[:8] + NUMBER.pack(number))
    out.emit_many(keys, results)
    store.put_many((key, NUMBER.pack(number)) for key, number in counts.items())


def profile(rows: Any, state: Any, out: Any) -> None:
    """Keep a profile of each key's values, 128 bytes, rewritten by every record; one output per record."""
    keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
    store = state["s"]
    known = {key: list(PROFILE.unpack(value)) for key, value in store.get_many(set(keys)).items()}
    results = []
    for key, value in zip(keys, values, strict=True):
        found = known.get(key)
        if found is None:
            found = known[key] = list(EMPTY)
        update(found, amount_of(value))
        results.append(value[:8] + NUMBER.pack(found[1]))
    out.emit_many(keys, results)
    store.put_many((key, PROFILE.pack(*found)) for key, found in known.items())


def amount_of(value: bytes) -> int:
    """Return the amount in a record's value: the number after the 8 bytes of its time stamp."""
    return zlib.crc32(value[8:])


def update(found: list[int], amount: int) -> None:
    """Add one amount to a profile."""
    found[0] += 1
    found[1] += amount
    found[2] = min(found[2], amount)
    found[3] = max(found[3], amount)
    found[4 + amount % BUCKETS] += 1
