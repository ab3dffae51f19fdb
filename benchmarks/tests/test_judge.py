"""What the judge reads from the outputs of a stream that was disturbed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.judge import Exactness, Seen, are_past, exactness, silences

SECOND = 1_000_000_000


def exact(sent: dict[int, int]) -> list[tuple[int, int]]:
    return [(key, number) for key, amount in sent.items() for number in range(1, amount + 1)]


AMOUNTS = st.dictionaries(st.integers(0, 5), st.integers(2, 8), min_size=1)


@given(AMOUNTS, st.integers(0, 99))
def test_nothing_is_wrong_when_every_count_is_there_once(sent: dict[int, int], seed: int) -> None:
    outputs = exact(sent)
    random.Random(seed).shuffle(outputs)
    assert exactness(outputs, sum(sent.values())) == Exactness(0, 0)


@given(AMOUNTS, st.data())
def test_an_output_that_is_missing_is_lost_wherever_it_was(sent: dict[int, int], data: st.DataObject) -> None:
    outputs = exact(sent)
    outputs.remove(data.draw(st.sampled_from(outputs)))
    assert exactness(outputs, sum(sent.values())) == Exactness(1, 0)


@given(AMOUNTS, st.data())
def test_an_output_that_came_twice_is_doubled(sent: dict[int, int], data: st.DataObject) -> None:
    outputs = exact(sent)
    outputs.append(data.draw(st.sampled_from(outputs)))
    assert exactness(outputs, sum(sent.values())) == Exactness(0, 1)


def test_input_that_is_counted_twice_is_doubled_and_input_never_counted_is_lost() -> None:
    assert exactness(exact({1: 5}), 4) == Exactness(0, 1)
    assert exactness(exact({1: 5}), 6) == Exactness(1, 0)


def seen(*outputs: tuple[int, float]) -> list[Seen]:
    return [Seen(key, 1, 0, round(at * SECOND)) for key, at in outputs]


def found(outputs: list[Seen], begin: float, end: float) -> dict[int, float]:
    return silences(outputs, 2, round(begin * SECOND), round(end * SECOND))


def test_a_silence_lasts_from_the_last_output_before_the_failure_to_the_next() -> None:
    outputs = seen((0, 1.0), (1, 1.1), (0, 1.9), (1, 2.1), (0, 4.0), (1, 4.1), (0, 4.2))
    assert found(outputs, 2.0, 4.5) == pytest.approx({0: 2.1, 1: 2.0})


def test_a_task_that_never_comes_back_is_silent_to_the_end() -> None:
    assert found(seen((0, 1.0), (1, 1.0), (1, 3.0), (1, 5.0)), 2.0, 6.0) == pytest.approx({0: 5.0, 1: 2.0})


def test_silences_before_the_failure_do_not_count() -> None:
    outputs = seen((0, 0.0), (0, 9.0), (0, 10.5), (0, 11.0), (1, 9.9), (1, 10.1), (1, 11.0))
    assert found(outputs, 10.0, 11.5) == pytest.approx({0: 1.5, 1: 0.9})


def test_a_task_is_past_a_moment_with_an_output_that_was_due_after_it() -> None:
    outputs = [Seen(0, 1, due=5, at=11), Seen(1, 1, due=12, at=13), Seen(2, 2, due=10, at=14)]
    assert are_past(outputs, (1,), 2, since=10)
    assert not are_past(outputs, (0,), 2, since=10)
    assert not are_past(outputs, (0, 1), 2, since=10)
    assert are_past([*outputs, Seen(0, 2, due=15, at=16)], (0, 1), 2, since=10)


def test_what_came_before_a_moment_says_nothing_of_it() -> None:
    assert not are_past([Seen(0, 1, due=1, at=2)], (0,), 2, since=3)
    assert not are_past([], (0,), 2, since=3)
