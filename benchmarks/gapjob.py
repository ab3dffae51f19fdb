"""The job of `benchmarks.stategap`: for each key it keeps a count and the newest value, of any size.

It is shipped to containers as a single module, and imports nothing of the benchmarks.
"""

from __future__ import annotations

import struct
from typing import Any, Final

NUMBER: Final = struct.Struct(">q")


def kept(before: bytes | None, value: bytes) -> tuple[bytes, bytes]:
    """Return the key's new state and its output: the record's time stamp and the count."""
    number = NUMBER.pack(1 + (NUMBER.unpack_from(before)[0] if before is not None else 0))
    return number + value[8:], value[:8] + number


def keep(rows: Any, state: Any, out: Any) -> None:
    """Process each record; one output for each."""
    keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
    store = state["s"]
    known = store.get_many(set(keys))
    for key, value in zip(keys, values, strict=True):
        known[key], result = kept(known.get(key), value)
        out.emit(key, result)
    store.put_many(known)
