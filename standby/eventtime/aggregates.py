"""Aggregates of the rows of a window. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from standby.state.serdes import INT, Serde

V = TypeVar("V")
A = TypeVar("A")

#: The first number beyond the range of signed 64-bit numbers.
_BEYOND: Final = 1 << 63


def _itself(total: Any) -> Any:
    return total


@dataclass(frozen=True)
class Aggregate(Generic[V, A]):
    """The functions of an aggregate, as in Flink's AggregateFunction and Kafka Streams' aggregate().

    The functions must be pure, but `add` and `merge` may modify the accumulator that they are given, and return it.
    """

    init: Callable[[], A]
    """Returns a new accumulator for a window without rows."""
    add: Callable[[A, V], A]
    """Returns the accumulator after adding a row's value."""
    serde: Serde[A]
    """Serialises the accumulator between batches. An accumulator that was dumped and loaded must behave the same."""
    merge: Callable[[A, A], A] | None = None
    """Returns the accumulator of two merged sessions, the earlier first; only sessions need it."""
    result: Callable[[A], Any] = _itself
    """Returns the result of the window; by default the accumulator itself.

    Must not modify it, and must return a copy if `add` modifies it later.
    """


def _plus(total: int, value: Any) -> int:
    """Return the sum of 64-bit whole numbers. Raises `ValueRefused` like `INT`, for each row.

    Otherwise the result would depend on where a batch ends: the total of a window that opens and closes in one batch is
    never dumped. A number of NumPy would make it one of NumPy, which has fewer bits and wraps.
    """
    try:
        total += operator.index(value)
    except TypeError:
        INT.dump(value)  # Raises, and says what is wrong.
        raise
    if not -_BEYOND <= total < _BEYOND:
        INT.dump(total)
    return total


def _lower(one: int | None, other: int | None) -> int | None:
    if other is None:
        return one
    number = _plus(0, other)
    return number if one is None else min(one, number)


def _higher(one: int | None, other: int | None) -> int | None:
    if other is None:
        return one
    number = _plus(0, other)
    return number if one is None else max(one, number)


class _OptionalInt:
    """A 64-bit whole number, or None."""

    def dump(self, value: int | None, /) -> bytes:
        return b"" if value is None else INT.dump(value)

    def load(self, data: bytes, /) -> int | None:
        return INT.load(data) if data else None


#: The number of rows; needs no values.
COUNT: Final[Aggregate[Any, int]] = Aggregate(lambda: 0, lambda total, _: total + 1, INT, _plus)

#: The sum of 64-bit whole numbers.
SUM: Final[Aggregate[int, int]] = Aggregate(lambda: 0, _plus, INT, _plus)

#: The minimum of whole numbers; None values are ignored.
MIN: Final[Aggregate[int | None, int | None]] = Aggregate(lambda: None, _lower, _OptionalInt(), _lower)

#: The maximum of whole numbers; None values are ignored.
MAX: Final[Aggregate[int | None, int | None]] = Aggregate(lambda: None, _higher, _OptionalInt(), _higher)
