"""The comparison finds every kind of difference, and counts each once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from demo.compare import Record, compare, compare_state


def record(number: int, key: bytes = b"a", value: int | None = None) -> Record:
    return Record("out", f"f{number}", key, {"n": number if value is None else value})


OWED = [record(number, b"a" if number % 2 else b"b") for number in range(10)]


def test_the_same_is_exact_whatever_the_order_across_keys() -> None:
    odd_first = sorted(OWED, key=lambda each: each.key)
    assert compare(OWED, odd_first).is_exact
    found = compare(OWED, OWED)
    assert (found.expected, found.seen, found.examples) == (10, 10, ())


def test_each_difference_is_counted_once_as_what_it_is() -> None:
    one, two, three = record(1), record(2), record(3)
    for what, owed, seen, counts in (
        ("missing", OWED, OWED[:4] + OWED[5:], (1, 0, 0, 0)),
        ("seen twice", OWED, [*OWED, OWED[3]], (0, 1, 0, 0)),
        ("seen twice, with another value", OWED, [*OWED, record(3, b"a", value=99)], (0, 1, 0, 0)),
        ("another value", [one], [record(1, value=2)], (0, 0, 1, 0)),
        ("another key", [one], [record(1, key=b"z")], (0, 0, 1, 0)),
        ("another topic", [one], [one._replace(topic="other")], (1, 0, 1, 0)),
        ("not owed", [], [one], (0, 0, 1, 0)),
        ("another order in a key", [one, two, three], [one, three, two], (0, 0, 0, 1)),
    ):
        found = compare(owed, seen)
        assert (found.lost, found.duplicated, found.mismatched, found.misordered) == counts, what
        assert not found.is_exact, what
    assert "f4" in compare(OWED, OWED[:4] + OWED[5:]).examples[0]


def test_many_findings_are_counted_but_only_a_few_kept() -> None:
    found = compare([record(number) for number in range(100)], [])
    assert found.lost == 100
    assert len(found.examples) == 5


@given(seen=st.lists(st.sampled_from(OWED)))
def test_lost_and_duplicated_add_up(seen: list[Record]) -> None:
    found = compare(OWED, seen)
    assert found.seen == len(seen)
    assert found.expected - found.lost + found.duplicated == found.seen
    assert found.mismatched == 0
    assert found.is_exact == (found.lost == found.duplicated == found.misordered == 0)


def test_state_is_compared_by_store_and_key() -> None:
    owed = {"s": {b"a": {"n": 1}, b"b": {"n": 2}}, "t": {b"a": {"n": 3}}}
    assert compare_state(owed, owed).mismatched == 0
    assert compare_state(owed, owed).keys == 3
    assert compare_state(owed, {**owed, "s": {b"a": {"n": 9}, b"b": {"n": 2}}}).mismatched == 1
    assert compare_state(owed, {"s": owed["s"]}).mismatched == 1
    extra = compare_state(owed, {**owed, "u": {b"z": {"n": 1}}})
    assert extra.mismatched == 1
    assert "u/b'z'" in extra.examples[0]
