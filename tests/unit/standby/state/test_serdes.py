"""Serdes: what is dumped comes back, and keys are in the order of their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standby.replica.store.keys import after
from standby.state import ARROW, BYTES, INT, JSON, MSGPACK, TEXT, Key, Serde, json_of, msgpack_of, tuple_of

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
binaries = st.one_of(
    st.binary(max_size=4), st.lists(st.sampled_from([0, 1, 254, 255]), max_size=4).map(bytes)
)
numbers = st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))

PARTS: dict[str, tuple[Key[Any], Any]] = {
    "bytes": (BYTES, binaries),
    "text": (TEXT, texts),
    "int": (INT, numbers),
    "tuple": (tuple_of(TEXT, INT, BYTES), st.tuples(texts, numbers, binaries)),
    "nested": (tuple_of(BYTES, tuple_of(INT, TEXT)), st.tuples(binaries, st.tuples(numbers, texts))),
}


@pytest.mark.parametrize("kind", PARTS)
@settings(derandomize=True)
@given(data=st.data())
def test_keys_come_back_and_are_in_order(kind: str, data: st.DataObject) -> None:
    key, values = PARTS[kind]
    one, other = data.draw(values), data.draw(values)
    assert key.load(key.dump(one)) == one
    assert (key.dump(one) < key.dump(other)) == (one < other)
    assert (key.dump(one) == key.dump(other)) == (one == other)
    part = tuple_of(key, BYTES)
    assert part.load(part.dump((one, b"\x00rest"))) == (one, b"\x00rest")


@settings(derandomize=True)
@given(st.lists(st.tuples(binaries, numbers, texts), max_size=8), st.data())
def test_a_shorter_tuple_is_the_prefix_of_those_that_begin_with_it(
    values: list[tuple[bytes, int, str]], data: st.DataObject
) -> None:
    key = tuple_of(BYTES, INT, TEXT)
    begin = data.draw(st.tuples(binaries) | st.tuples(binaries, numbers))
    stem = key.head(begin)
    found = [each for each in values if key.dump(each).startswith(stem)]
    assert found == [each for each in values if each[: len(begin)] == begin]
    stop = after(stem)
    assert stop is None or found == [each for each in values if stem <= key.dump(each) < stop]


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (INT, b""),
        (INT, b"1234567"),
        (TEXT, b"\xff"),
        (tuple_of(TEXT), b"abc"),
        (tuple_of(TEXT), b"abc\x00"),
        (tuple_of(TEXT), b"abc\x00\xff"),
        (tuple_of(TEXT), b"abc\x00\x01more"),
        (tuple_of(INT, INT), b"12345678"),
    ],
)
def test_bytes_that_are_no_key_are_refused(key: Key[Any], data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        key.load(data)


def test_what_does_not_fit_is_refused() -> None:
    for number in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(OverflowError, match=str(number)):
            INT.dump(number)
    with pytest.raises(ValueError, match="has 1 parts"):
        tuple_of(INT, INT).dump((1,))
    with pytest.raises(ValueError, match="has 3 parts"):
        tuple_of(INT, INT).head((1, 2, 3))
    with pytest.raises(ValueError, match="at least one"):
        tuple_of()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("serde", [JSON, MSGPACK])
@settings(derandomize=True)
@given(value=json_values)
def test_formats_bring_back_what_they_were_given(serde: Serde[Any], value: Any) -> None:
    assert serde.load(serde.dump(value)) == value


def test_equal_values_have_equal_bytes_in_whatever_order_they_were_filled() -> None:
    for serde in (JSON, MSGPACK):
        assert serde.dump({"a": 1, "b": 2}) == serde.dump({"b": 2, "a": 1})


@dataclass
class Visit:
    user: str
    seconds: int = 0


def test_a_format_of_one_kind_gives_that_kind_and_refuses_others() -> None:
    for serde in (json_of(Visit), msgpack_of(Visit)):
        assert serde.load(serde.dump(Visit("a", 3))) == Visit("a", 3)
    with pytest.raises(ValueError, match="seconds"):
        json_of(Visit).load(b'{"user": "a", "seconds": "three"}')


def test_arrow_keeps_a_record_batch_with_its_schema() -> None:
    batch = pa.record_batch(
        {"at": pa.array([1, None], pa.timestamp("ms")), "user": pa.array(["a", "b"]).dictionary_encode()}
    )
    assert ARROW.load(ARROW.dump(batch)).equals(batch, check_metadata=True)
    with pytest.raises(ValueError, match=r"."):
        ARROW.load(b"no stream")
