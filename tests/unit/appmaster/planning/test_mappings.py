"""Copies of mappings with one key more or less."""

from __future__ import annotations

from appmaster.planning.state.mappings import put, without


def test_a_copy_has_one_key_more_or_less_and_the_mapping_stays_as_it_is() -> None:
    mapping = {"a": 1, "b": 2}
    assert put(mapping, "c", 3) == {"a": 1, "b": 2, "c": 3}
    assert put(mapping, "a", 3) == {"a": 3, "b": 2}
    assert without(mapping, "a") == {"b": 2}
    assert without(mapping, "c") == mapping == {"a": 1, "b": 2}
