"""In which order a suspected task's several inputs are run. Pure.

`standby.replica.failing` closes in on a failing record by halving a range of positions. With one input a position
is an offset. With several, a position is the sum of the offsets, and a `Route` says which offsets that are: one
topic is run up to where its turn ends, then the next. Every step of the way is one offset of one topic, so the last
half that fails is one record. The route stays the same while a task is suspected, however its inputs grow: else a
half would not hold again what failed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from standby.shared.model import Offsets


@dataclass(frozen=True, slots=True)
class Route:
    """The way through a task's inputs, topic after topic."""

    topics: tuple[str, ...]
    """`task.inputs`."""
    ends: Offsets
    """Where each topic's turn ends; that of the last one has no end."""
    first: int = 0
    """The number of the topic that is run first; the others follow in their order, and around."""

    def at(self, committed: Offsets, position: int) -> Offsets:
        """Return the offsets at ``position``, for a task that stands at ``committed``, on the way or before it."""
        here = committed
        while here.total < position:
            here = self.leg(here, position)
        return here

    def leg(self, committed: Offsets, position: int) -> Offsets:
        """Return the offsets at ``position``, or where the next topic's turn ends when that is nearer."""
        number = self.next(committed)
        steps = position - committed.total
        if number != self._order()[-1]:
            steps = min(steps, self.ends.each[number] - committed.each[number])
        return _moved(committed, number, steps)

    def step(self, committed: Offsets) -> Offsets:
        """Return the offsets after the next record."""
        return _moved(committed, self.next(committed), 1)

    def next(self, committed: Offsets) -> int:
        """Return the number of the topic whose offset is the next to rise."""
        *others, last = self._order()
        return next((each for each in others if committed.each[each] < self.ends.each[each]), last)

    def told(self, partition: int, committed: Offsets, position: int) -> str:
        """Return the records from ``committed`` up to ``position`` in words."""
        to = self.at(committed, position)
        return "input " + " and ".join(
            f"{topic}[{partition}], offsets [{start}, {end})"
            for topic, start, end in zip(self.topics, committed.each, to.each, strict=True)
            if end > start
        )

    def _order(self) -> Sequence[int]:
        count = len(self.topics)
        return [(self.first + each) % count for each in range(count)]


def beginning_with(route: Route, topic: str) -> Route:
    """Return the route with ``topic`` run first; as it is when there is no such topic."""
    return replace(route, first=route.topics.index(topic)) if topic in route.topics else route


def _moved(offsets: Offsets, number: int, steps: int) -> Offsets:
    each = list(offsets.each)
    each[number] += steps
    return Offsets(tuple(each))
