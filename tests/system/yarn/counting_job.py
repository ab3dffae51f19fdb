"""A job that counts the records of each key. A test copies this file next to its own job file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def unchanged(rows: Any) -> Any:
    """Return the rows, as a transform for Spark."""
    return rows


def step(rows: Any, state: Any, out: Any) -> None:
    """Emit each record with its number among those of its key; refuse one that is ``poison``, die of a ``fault``.

    One of the key ``wait`` holds the step up as long as the file is there whose path is its value.
    """
    counts = state["default"]
    for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        if value == b"poison":
            raise ValueError("a poisoned record")
        if value == b"fault":
            os.abort()
        while key == b"wait" and Path(value.decode()).exists():
            time.sleep(0.05)
        number = int(counts.get(key) or b"0") + 1
        counts.put(key, b"%d" % number)
        out.emit(key, b"%d %s" % (number, value))
