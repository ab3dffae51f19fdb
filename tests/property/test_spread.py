"""Spreading actives: the end is as even as any choice of the copies, and no step makes the spread less even."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given, settings

from appmaster.planning.placement.spread import Stand, next_steps
from appmaster.planning.state.view import MOST_MOVES
from standby.shared.model import ProcessorId
from tests.examples import examples

HOSTS = ("h1", "h2", "h3", "h4", "h5")


def squares(stands: Sequence[Stand]) -> int:
    """Return the sum of squares of actives per place."""
    return sum(each * each for each in Counter(each.place for each in stands).values())


def least(stands: Sequence[Stand]) -> int:
    """Return the least sum of squares of all choices of an active for each processor."""
    choices = itertools.product(*((each.place, *each.options) for each in stands))
    return min(sum(count * count for count in Counter(places).values()) for places in choices)


def moved(stands: Sequence[Stand], number: ProcessorId, copy: int) -> list[Stand]:
    """Return the actives' places after one hand-over: the former active is a standby."""
    found = []
    for each in stands:
        if each.processor != number:
            found.append(each)
            continue
        target = next(place for place, other in each.options.items() if other == copy)
        options = {place: other for place, other in each.options.items() if place != target}
        found.append(replace(each, place=target, options={**options, each.place: 9}))
    return found


@st.composite
def spreads(draw: st.DrawFn) -> list[Stand]:
    """Return processors with copies on different hosts, on all of them some of the time."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        hosts = draw(st.lists(st.sampled_from(HOSTS), min_size=1, unique=True))
        options: Mapping[str, int] = {host: at + 1 for at, host in enumerate(hosts[1:])}
        found.append(Stand(ProcessorId("job", "main", number), hosts[0], options))
    return found


@settings(max_examples=examples(500))
@given(
    spreads(),
    st.dictionaries(st.sampled_from(HOSTS), st.integers(0, 5)),
    st.randoms(use_true_random=False),
)
def test_the_steps_end_at_the_least_sum_of_squares_and_never_raise_it(
    stands: list[Stand], crowd: dict[str, int], chance: object
) -> None:
    """Whichever of the next steps is taken; and no spread occurs twice."""
    choose = getattr(chance, "choice")  # noqa: B009 - hypothesis's own kind of Random
    goal, seen = least(stands), {tuple(each.place for each in stands)}
    while steps := next_steps(stands, crowd):
        before, step = squares(stands), choose(steps)
        assert before > goal, "even already"
        stands = moved(stands, step.processor, step.copy)
        assert squares(stands) <= before
        places = tuple(each.place for each in stands)
        assert places not in seen
        seen.add(places)
        assert len(seen) - 1 <= MOST_MOVES * len(stands), "the bound would have stopped it"
    assert squares(stands) == goal
