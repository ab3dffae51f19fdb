"""Aggregates of the rows of a window. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from standby.state.serdes import INT, Serde

V = TypeVar("V")
A = TypeVar("A")


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


def _add(total: int, value: int) -> int:
    return total + value


def _lower(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _higher(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


class _OptionalInt:
    """A 64-bit whole number, or None."""

    def dump(self, value: int | None, /) -> bytes:
        return b"" if value is None else INT.dump(value)

    def load(self, data: bytes, /) -> int | None:
        return INT.load(data) if data else None


#: The number of rows; needs no values.
COUNT: Final[Aggregate[Any, int]] = Aggregate(lambda: 0, lambda total, _: total + 1, INT, _add)

#: The sum of 64-bit whole numbers.
SUM: Final[Aggregate[int, int]] = Aggregate(lambda: 0, _add, INT, _add)

#: The minimum of whole numbers; None values are ignored.
MIN: Final[Aggregate[int | None, int | None]] = Aggregate(lambda: None, _lower, _OptionalInt(), _lower)

#: The maximum of whole numbers; None values are ignored.
MAX: Final[Aggregate[int | None, int | None]] = Aggregate(lambda: None, _higher, _OptionalInt(), _higher)
