"""The steps of `benchmarks.steps` for ``applyInPandasWithState``.

A separate module, because Spark's workers import it and cannot import the main module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from benchmarks.gapjob import kept
from benchmarks.steps import EMPTY, NUMBER, PROFILE, amount_of, update


def count(key: tuple[bytes], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Count the key's records; one row for each."""
    number = NUMBER.unpack(state.get[0])[0] if state.exists else 0
    results = []
    for frame in frames:
        for value in frame["value"]:
            number += 1
            results.append(bytes(value[:8]) + NUMBER.pack(number))
    state.update((NUMBER.pack(number),))
    yield pd.DataFrame({"key": [bytes(key[0])] * len(results), "value": results})


def profile(key: tuple[bytes], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Keep the profile of the key's values; one row for each."""
    found = list(PROFILE.unpack(state.get[0]) if state.exists else EMPTY)
    results = []
    for frame in frames:
        for value in frame["value"]:
            update(found, amount_of(bytes(value)))
            results.append(bytes(value[:8]) + NUMBER.pack(found[1]))
    state.update((PROFILE.pack(*found),))
    yield pd.DataFrame({"key": [bytes(key[0])] * len(results), "value": results})


def keep(key: tuple[bytes], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Keep a count and the key's newest value; one row for each record."""
    before = bytes(state.get[0]) if state.exists else None
    results = []
    for frame in frames:
        for value in frame["value"]:
            before, result = kept(before, bytes(value))
            results.append(result)
    state.update((before,))
    yield pd.DataFrame({"key": [bytes(key[0])] * len(results), "value": results})


STEPS: Final = {"count": count, "profile": profile, "keep": keep}
