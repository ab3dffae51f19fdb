"""Judgements on any cluster: the invariant holds, the spread degrades in order, and order of input is nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis import given, settings

from locality.history import History, StateOnDisk, expire, forget, merge, remember
from locality.hosts import HostInfo
from locality.judging import Judgement, best, explain
from locality.question import PlacementQuestion, Sibling, Verdict
from standby.shared.model import Held, TaskId
from tests.examples import examples

PROPERTY = settings(max_examples=examples(120))

NAMES = ("node1", "node2", "node10", "node02", "10.0.0.7", "süd-3", "a", "b")
ZONES = ("a", "b")
THINGS = ("cell", "rack", "zone")
TASKS = tuple(TaskId("job", "main", each) for each in range(3))

ANY_NAME = st.sampled_from(NAMES)
REASONS = st.dictionaries(ANY_NAME, st.sampled_from(["is down", "is full"]), max_size=3)
POSITIONS = st.none() | st.integers(0, 20)

HOST = st.builds(
    HostInfo,
    ANY_NAME,
    st.integers(1, 2),
    st.sampled_from(["", "/r1", "/r2"]),
    st.dictionaries(st.just("zone"), st.sampled_from(ZONES)),
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


def judge(question: PlacementQuestion, hosts: Sequence[HostInfo]) -> tuple[Verdict, ...]:
    return Judgement(question, hosts).verdicts()


@st.composite
def questions(draw: st.DrawFn) -> PlacementQuestion:
    """Return a question with siblings on hosts, known by name or not."""
    places = draw(st.lists(HOST, max_size=3))
    return PlacementQuestion(
        siblings=tuple(Sibling(f"copy {at}", each) for at, each in enumerate(places)),
        histories=draw(st.dictionaries(st.sampled_from(TASKS), HISTORY)),
        leftovers=draw(st.dictionaries(st.sampled_from(TASKS), SIGHTS)),
        preferred=draw(st.none() | ANY_NAME),
        drained=draw(REASONS),
        avoided=draw(REASONS),
        loads=draw(st.dictionaries(ANY_NAME, st.tuples(st.integers(0, 3), st.integers(0, 3)))),
        spread=tuple(draw(st.lists(st.sampled_from(THINGS), unique=True))),
    )


def shared(question: PlacementQuestion, host: HostInfo) -> list[int]:
    """Return with how many siblings the host shares each thing, counted the plain way."""
    return [
        sum(
            bool(host.value(thing)) and each.host.value(thing) == host.value(thing)
            for each in question.siblings
        )
        for thing in question.spread
    ]


def of(verdict: Verdict, hosts: list[HostInfo]) -> HostInfo:
    return next(each for each in hosts if (each.name, each.cell) == (verdict.host, verdict.cell))


def refused(question: PlacementQuestion) -> set[str]:
    named = {each.host.name for each in question.siblings}
    return named | set(question.drained) | set(question.avoided)


@PROPERTY
@given(question=questions(), hosts=HOSTS)
def test_a_host_with_a_sibling_or_ruled_out_is_never_allowed_and_every_other_is(
    question: PlacementQuestion, hosts: list[HostInfo]
) -> None:
    verdicts = judge(question, hosts)
    assert len(verdicts) == len(hosts)
    assert {each.host for each in verdicts if not each.is_allowed} == refused(question) & {
        each.name for each in hosts
    }
    assert [each.is_allowed for each in verdicts] == sorted(
        (each.is_allowed for each in verdicts), reverse=True
    )
    assert all(each.reasons for each in verdicts)


@PROPERTY
@given(question=questions(), hosts=HOSTS)
def test_the_spread_degrades_in_order_and_says_so(question: PlacementQuestion, hosts: list[HostInfo]) -> None:
    allowed = [each for each in judge(question, hosts) if each.is_allowed]
    counts = [shared(question, of(each, hosts)) for each in allowed]
    assert counts == sorted(counts)
    if not allowed:
        return
    everyone = [*hosts, *(each.host for each in question.siblings)]
    for at, thing in enumerate(question.spread):
        told = [each for each in allowed[0].reasons if each.startswith(f"shares its {thing} ")]
        has_choice = len({each.value(thing) for each in everyone}) > 1
        assert bool(told) == (counts[0][at] > 0 and has_choice)
        # The best host is never left without an excuse: either there is none, or a better one is worse before.
        assert all(
            ("is allowed" in each) == (min(row[at] for row in counts) == counts[0][at]) for each in told
        )
        assert all(": " in each for each in told)


@PROPERTY
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
    assert judge(other, mixed) == judge(question, hosts)
    assert best(other, mixed) == best(question, hosts)
    present = data.draw(st.none() | HOST)
    assert explain(other, mixed, present) == explain(question, hosts, present)


@PROPERTY
@given(question=questions(), hosts=HOSTS)
def test_the_best_one_comes_first_and_no_two_are_alike(
    question: PlacementQuestion, hosts: list[HostInfo]
) -> None:
    verdicts = judge(question, hosts)
    assert best(question, hosts) == next((each for each in verdicts if each.is_allowed), None)
    assert len({each.rank for each in verdicts}) == len(verdicts)


@PROPERTY
@given(question=questions(), hosts=HOSTS)
def test_state_decides_among_hosts_that_are_spread_alike(
    question: PlacementQuestion, hosts: list[HostInfo]
) -> None:
    allowed = [each for each in judge(question, hosts) if each.is_allowed]

    def replay(host: str) -> tuple[bool, int]:
        applied = holds = 0
        for task, history in question.histories.items():
            known = {each.host: each for each in history}
            positions = {each.host: each.position or 0 for each in history}
            for each in question.leftovers.get(task, ()):
                held = known.get(each.host)
                if held is None or held.position is None or held.until_ms <= each.at_ms:
                    positions[each.host] = each.position
            holds += host in positions
            applied += positions.get(host, 0)
        return not holds, -applied

    for one, other in itertools.pairwise(allowed):
        if shared(question, of(one, hosts)) == shared(question, of(other, hosts)):
            assert replay(one.host) <= replay(other.host)


@PROPERTY
@given(question=questions(), hosts=HOSTS, present=st.none() | HOST)
def test_an_explanation_names_every_host_once_or_once_for_a_cell(
    question: PlacementQuestion, hosts: list[HostInfo], present: HostInfo | None
) -> None:
    lines = explain(question, hosts, present)
    heads = [each.partition(":")[0] for each in lines]
    assert len(set(heads)) == len(heads)
    assert {each.partition(" in cell")[0] for each in heads} == {
        each.name for each in (*hosts, *([present] if present else []))
    }
    bare = {each for each in heads if " in cell" not in each}
    assert not any(each.partition(" in cell")[0] in bare for each in heads if " in cell" in each)
    assert bare >= refused(question) & {each.name for each in hosts}, "a refusal is of the host"
    if present is not None:
        assert re.match(rf"{present.name}( in cell {present.cell})?: it is here", lines[0])
    assert sum(": it is here" in each for each in lines) == (present is not None)


@PROPERTY
@given(
    steps=st.lists(st.tuples(ANY_NAME, st.integers(0, 30), POSITIONS), max_size=20),
    expiry_ms=st.integers(0, 20),
    most=st.integers(1, 5),
)
def test_a_history_stays_short_young_and_in_order(
    steps: list[tuple[str, int, int | None]], expiry_ms: int, most: int
) -> None:
    history: History = ()
    for host, now_ms, position in steps:
        history = remember(history, host, now_ms, position, expiry_ms=expiry_ms, most=most)
        assert len(history) <= most
        assert len({each.host for each in history}) == len(history)
        assert [each.until_ms for each in history] == sorted(
            (each.until_ms for each in history), reverse=True
        )
        assert all(now_ms - each.until_ms < expiry_ms for each in history)
        assert expire(history, now_ms, expiry_ms=expiry_ms) == history
        assert merge(history, ()) == history
        assert all(each.host != host for each in forget(history, host))
