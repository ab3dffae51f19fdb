"""Judgements on any cluster do not depend on the order in which hosts, copies and histories are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis import given, settings

from locality.history import StateOnDisk
from locality.hosts import HostInfo
from locality.judging import Judgement, best, explain
from locality.question import PlacementQuestion, Sibling
from standby.shared.model import Held, TaskId
from tests.examples import examples

TASK = st.builds(TaskId, st.just("job"), st.just("main"), st.integers(0, 2))
ANY_NAME = st.sampled_from(("node1", "node2", "node10", "node02", "10.0.0.7", "süd-3", "a", "b"))
REASONS = st.dictionaries(ANY_NAME, st.sampled_from(["is down", "is full"]), max_size=3)
POSITIONS = st.none() | st.integers(0, 20)

HOST = st.builds(
    HostInfo,
    ANY_NAME,
    st.integers(1, 2),
    st.sampled_from(["", "/r1", "/r2"]),
    st.dictionaries(st.just("zone"), st.sampled_from("ab")),
)
HOSTS = st.lists(HOST, max_size=8, unique_by=lambda each: (each.name, each.cell))
HISTORY = st.lists(
    st.builds(Held, ANY_NAME, st.integers(0, 5), POSITIONS), max_size=4, unique_by=lambda each: each.host
).map(tuple)
SIGHTS = st.lists(
    st.builds(StateOnDisk, ANY_NAME, st.integers(0, 20), st.integers(0, 5)),
    max_size=3,
    unique_by=lambda each: each.host,
).map(tuple)

_K = TypeVar("_K")
_V = TypeVar("_V")


@st.composite
def questions(draw: st.DrawFn) -> PlacementQuestion:
    """Return a question with siblings on hosts, known by name or not."""
    places = draw(st.lists(HOST, max_size=3))
    return PlacementQuestion(
        siblings=tuple(Sibling(f"copy {at}", each) for at, each in enumerate(places)),
        histories=draw(st.dictionaries(TASK, HISTORY)),
        leftovers=draw(st.dictionaries(TASK, SIGHTS)),
        preferred=draw(st.none() | ANY_NAME),
        drained=draw(REASONS),
        avoided=draw(REASONS),
        loads=draw(st.dictionaries(ANY_NAME, st.tuples(st.integers(0, 3), st.integers(0, 3)))),
        spread=tuple(draw(st.lists(st.sampled_from(("cell", "rack", "zone")), unique=True))),
    )


@settings(max_examples=examples(120))
@given(question=questions(), hosts=HOSTS, data=st.data())
def test_the_order_of_the_input_makes_no_difference(
    question: PlacementQuestion, hosts: list[HostInfo], data: st.DataObject
) -> None:
    def shuffled(mapping: Mapping[_K, _V]) -> dict[_K, _V]:
        return dict(data.draw(st.permutations(list(mapping.items()))))

    other = PlacementQuestion(
        siblings=tuple(data.draw(st.permutations(question.siblings))),
        histories={
            task: tuple(data.draw(st.permutations(history)))
            for task, history in shuffled(question.histories).items()
        },
        leftovers={
            task: tuple(data.draw(st.permutations(found)))
            for task, found in shuffled(question.leftovers).items()
        },
        preferred=question.preferred,
        drained=shuffled(question.drained),
        avoided=shuffled(question.avoided),
        loads=shuffled(question.loads),
        spread=question.spread,
    )
    mixed = data.draw(st.permutations(hosts))
    assert Judgement(other, mixed).verdicts() == Judgement(question, hosts).verdicts()
    assert best(other, mixed) == best(question, hosts)
    present = data.draw(st.none() | HOST)
    assert explain(other, mixed, present) == explain(question, hosts, present)
