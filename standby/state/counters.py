"""Counters in a store. Pure."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from standby.api import Store
from standby.state.serdes import INT, Serde
from standby.state.typed import Typed

K = TypeVar("K")


class Counters(Generic[K]):
    """A 64-bit number per key, initially 0. Values are `standby.state.INT`."""

    def __init__(self, store: Store, *, key: Serde[K]) -> None:
        self._numbers = Typed(store, key, INT)

    def get(self, key: K) -> int:
        """Return the number of ``key``; 0 when nothing was added."""
        return self._numbers.get(key) or 0

    def get_many(self, keys: Iterable[K]) -> dict[K, int]:
        """Return the number of each key, in one look-up."""
        asked = list(dict.fromkeys(keys))
        found = self._numbers.get_many(asked)
        return {key: found.get(key, 0) for key in asked}

    def add(self, key: K, amount: int = 1) -> int:
        """Add ``amount``, which may be negative; return the new number.

        Raises `OverflowError`, and `TypeError` for an amount that is no whole number.
        """
        # An amount of NumPy would make the sum one of NumPy as well, which has fewer bits and wraps.
        number = self.get(key) + operator.index(amount)
        self._numbers.put(key, number)
        return number

    def add_many(self, keys: Sequence[K], amounts: Sequence[int] | None = None) -> list[int]:
        """Add to each key in turn, by default 1; return the number after each addition.

        A key may occur any number of times. This needs one look-up in total and one write per key, so it is meant
        for a whole batch at once. Raises as `add`.
        """
        numbers = self.get_many(keys)
        results = []
        added = [1] * len(keys) if amounts is None else [*map(operator.index, amounts)]
        for key, amount in zip(keys, added, strict=True):
            numbers[key] += amount
            results.append(numbers[key])
        self._numbers.put_many(numbers)
        return results

    def delete(self, key: K) -> None:
        """Remove the number of ``key``: it is 0 again."""
        self._numbers.delete(key)
