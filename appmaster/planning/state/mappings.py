"""Functions for mappings that are never changed in place: copies with one key more or less. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def put(mapping: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    """Return a copy of ``mapping`` with ``key`` set."""
    return {**mapping, key: value}


def without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    """Return a copy of ``mapping`` that lacks ``key``."""
    return {each: value for each, value in mapping.items() if each != key}
