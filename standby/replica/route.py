"""Defines the order in which the inputs of a suspected task are run, if there are several. Pure.

`standby.replica.failing` isolates a failing record by halving a range of positions. With one input, a position is an
offset. With several, a position is the sum of the offsets, and a `Route` maps it to offsets: one topic is run up to
its end in the route, then the next. Every position is one offset of one topic, so the last failing half is a single
record. The route does not change while a task is suspected, even if its inputs grow: otherwise a half might not
contain again what failed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from standby.shared.model import Offsets


@dataclass(frozen=True, slots=True)
class Route:
    """An order through a task's inputs, topic by topic."""

    topics: tuple[str, ...]
    """`task.inputs`."""
    ends: Offsets
    """The end of each topic in the route; the last one is unbounded."""
    first: int = 0
    """The index of the topic that is run first; the others follow in order, wrapping around."""

    def at(self, committed: Offsets, position: int) -> Offsets:
        """Return the offsets at ``position``, for a task at ``committed``, which is on the route or before it."""
        here = committed
        while here.total < position:
            here = self.leg(here, position)
        return here

    def leg(self, committed: Offsets, position: int) -> Offsets:
        """Return the offsets at ``position``, or at the end of the current topic if that comes first."""
        number = self.next(committed)
        steps = position - committed.total
        if number != self._order()[-1]:
            steps = min(steps, self.ends.each[number] - committed.each[number])
        return _moved(committed, number, steps)

    def step(self, committed: Offsets) -> Offsets:
        """Return the offsets after the next record."""
        return _moved(committed, self.next(committed), 1)

    def next(self, committed: Offsets) -> int:
        """Return the index of the topic whose offset advances next."""
        *others, last = self._order()
        return next((each for each in others if committed.each[each] < self.ends.each[each]), last)

    def describe(self, partition: int, committed: Offsets, position: int) -> str:
        """Return a description of the records from ``committed`` up to ``position``."""
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
    """Return the route with ``topic`` first; unchanged when there is no such topic."""
    return replace(route, first=route.topics.index(topic)) if topic in route.topics else route


def _moved(offsets: Offsets, number: int, steps: int) -> Offsets:
    each = list(offsets.each)
    each[number] += steps
    return Offsets(tuple(each))
