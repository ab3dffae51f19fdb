"""The order in which a suspected task's inputs are run: every position is offsets of its own, whatever comes later."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from standby.replica.route import Route, beginning_with
from standby.shared.model import Offsets

ROUTE = Route(("a", "b", "c"), Offsets.of(5, 2, 4))


def test_one_topic_after_the_other_and_the_last_without_an_end() -> None:
    start = Offsets.of(3, 0, 1)
    assert [ROUTE.at(start, position).each for position in range(4, 12)] == [
        *((3, 0, 1), (4, 0, 1), (5, 0, 1), (5, 1, 1), (5, 2, 1), (5, 2, 2), (5, 2, 3), (5, 2, 4))
    ]
    assert ROUTE.at(start, 20) == Offsets.of(5, 2, 13)
    assert Route(("a",), Offsets.of(0)).at(Offsets.of(7), 9) == Offsets.of(9)


def test_it_may_begin_with_any_topic_and_goes_around() -> None:
    route = beginning_with(ROUTE, "b")
    start = Offsets.of(3, 1, 3)
    assert [route.at(start, position).each for position in (8, 9, 10)] == [(3, 2, 3), (3, 2, 4), (4, 2, 4)]
    assert beginning_with(ROUTE, "gone") == beginning_with(ROUTE, "") == ROUTE


def test_a_leg_stays_within_one_topic() -> None:
    start = Offsets.of(3, 0, 1)
    assert ROUTE.leg(start, 5) == Offsets.of(4, 0, 1)
    assert ROUTE.leg(start, 10) == Offsets.of(5, 0, 1)
    assert ROUTE.leg(Offsets.of(5, 2, 1), 100) == Offsets.of(5, 2, 93)


def test_it_tells_what_moves() -> None:
    start = Offsets.of(3, 0, 1)
    assert ROUTE.describe(7, start, 5) == "input a[7], offsets [3, 4)"
    assert ROUTE.describe(7, start, 7) == "input a[7], offsets [3, 5) and b[7], offsets [0, 1)"


offsets = st.tuples(*[st.integers(0, 6)] * 3).map(Offsets)


@given(start=offsets, ends=offsets, first=st.integers(0, 2), steps=st.lists(st.integers(1, 5), max_size=6))
def test_however_it_is_gone_it_is_one_way_and_each_step_is_one_record(
    start: Offsets, ends: Offsets, first: int, steps: list[int]
) -> None:
    """A half that was run leaves the rest of the way as it was: halving would not find a record otherwise."""
    route = Route(("a", "b", "c"), ends, first)
    here, way = start, [start]
    for _ in range(sum(steps)):
        after = route.step(here)
        number = route.next(here)
        assert [mine - its for mine, its in zip(after.each, here.each, strict=True)] == [
            int(each == number) for each in range(3)
        ]
        here = after
        way.append(here)
    here = start
    for step in steps:
        here = route.at(here, here.total + step)
        assert here == way[here.total - start.total]
