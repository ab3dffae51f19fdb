"""The job: readings of thermometers in, the mean and the highest temperature of each city out.

It has no transform: the rows are the records themselves, on Spark and without it. README.md has the records.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from standby.api import Output, State


def summarise(rows: pa.Table, state: State, out: Output) -> None:
    """Emit, for each reading, the summary of its city up to then; what is not a reading is dropped."""
    store = state["default"]
    for city, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        degrees = _degrees(value)
        if city is None or degrees is None:
            continue
        count, total, highest = json.loads(store.get(city) or b"[0, 0.0, -274.0]")
        count, total, highest = count + 1, total + degrees, max(highest, degrees)
        store.put(city, json.dumps([count, total, highest]).encode())
        summary = {"readings": count, "mean": round(total / count, 1), "highest": highest}
        out.emit(city, json.dumps(summary).encode())


def _degrees(value: bytes | None) -> float | None:
    """Return a temperature in degrees Celsius; None if it is none."""
    try:
        degrees = float(value or b"")
    except ValueError:
        return None
    return degrees if -274 < degrees < 1_000 else None
