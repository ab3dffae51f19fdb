"""What the benchmarks make of what their contestants say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rounds import BadAnswer, answer_of, figure, figures, order, quantile

NAMES = st.lists(st.integers(), min_size=1, max_size=8, unique=True)


@given(NAMES, st.integers(0, 40))
def test_everybody_runs_once_in_each_round(names: list[int], turn: int) -> None:
    assert sorted(order(names, turn)) == sorted(names)


@given(NAMES)
def test_everybody_is_first_once_and_in_every_place_once(names: list[int]) -> None:
    rounds = [order(names, turn) for turn in range(len(names))]
    for place in range(len(names)):
        assert {each[place] for each in rounds} == set(names)


def test_nothing_competes_in_an_empty_round() -> None:
    assert order((), 3) == ()


def test_a_figure_is_median_and_range() -> None:
    found = figure([3.0, 1.0, 10.0, 2.0])
    assert found is not None
    assert (found.median, found.least, found.most, found.rounds) == (2.5, 1.0, 10.0, 4)
    assert figure([]) is None


def test_only_numbers_become_figures_and_each_tells_how_many_rounds_had_it() -> None:
    found = figures([{"wall": 1, "ok": True, "checksum": "ff"}, {"wall": 3.0, "more": 7}])
    assert {name: each.rounds for name, each in found.items()} == {"wall": 2, "more": 1}
    assert found["wall"].as_json() == {"median": 2.0, "min": 1.0, "max": 3.0, "rounds": 2}


def test_an_answer_is_found_among_what_libraries_print() -> None:
    line = json.dumps({"benchmark": 1, "wall_seconds": 2.5})
    assert answer_of(f'hello\n{{"other": 1}}\n{{broken\n{line}\nbye\n') == {"wall_seconds": 2.5}


@pytest.mark.parametrize("text", ["", "[1]", '{"other": 1}', '{"benchmark": 1}\n{"benchmark": 1}'])
def test_no_answer_and_two_answers_are_none(text: str) -> None:
    with pytest.raises(BadAnswer):
        answer_of(text)


def test_a_quantile_is_one_of_the_values() -> None:
    values = list(range(1, 101))
    assert [quantile(values, share) for share in (0.5, 0.99, 0.991, 1.0, 0.0)] == [50, 99, 100, 100, 1]
    assert quantile([7.0], 0.5) == 7.0
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_so_many_values_are_at_most_the_quantile(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert sum(each <= found for each in values) >= share * len(values) - 1e-3
