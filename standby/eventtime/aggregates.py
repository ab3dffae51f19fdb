"""What is computed of the rows of a window. Pure."""

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
    """How rows are added up: the same words as Flink's AggregateFunction and Kafka Streams' aggregate().

    The functions must be pure, but `add` and `merge` may change the accumulator that they are given, and return it.
    """

    init: Callable[[], A]
    """Returns the accumulator of a window without rows, a new one at each call."""
    add: Callable[[A, V], A]
    """Returns the accumulator with one more row's value."""
    serde: Serde[A]
    """Keeps the accumulator between batches. What was dumped and loaded must go on as what was not."""
    merge: Callable[[A, A], A] | None = None
    """Returns the accumulator of two sessions that became one, the earlier first; only sessions need it."""
    result: Callable[[A], Any] = _itself
    """Returns what is told of the window; by default the accumulator itself.

    Must not change it, and must return a copy where `add` changes it later.
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
    """A whole number of 64 bits, or none."""

    def dump(self, value: int | None, /) -> bytes:
        return b"" if value is None else INT.dump(value)

    def load(self, data: bytes, /) -> int | None:
        return INT.load(data) if data else None


#: How many rows there were; takes no values.
COUNT: Final[Aggregate[Any, int]] = Aggregate(lambda: 0, lambda total, _: total + 1, INT, _add)

#: The sum of whole numbers of 64 bits.
SUM: Final[Aggregate[int, int]] = Aggregate(lambda: 0, _add, INT, _add)

#: The lowest of whole numbers; None values are passed over.
MIN: Final[Aggregate[int | None, int | None]] = Aggregate(lambda: None, _lower, _OptionalInt(), _lower)

#: The highest of whole numbers; None values are passed over.
MAX: Final[Aggregate[int | None, int | None]] = Aggregate(lambda: None, _higher, _OptionalInt(), _higher)
