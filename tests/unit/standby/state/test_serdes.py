"""Serdes: what is dumped comes back, and keys are in the order of their values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standby.replica.store.keys import after
from standby.state import (
    ARROW,
    BYTES,
    INT,
    JSON,
    MSGPACK,
    TEXT,
    Counters,
    Expiring,
    Key,
    ValueRefused,
    json_of,
    msgpack_of,
    tuple_of,
    typed,
)
from tests.cases import case
from tests.fakes.task_state import TaskState

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


def test_bytes_that_are_no_value_of_a_serde_are_refused() -> None:
    no_texts = (b"abc", b"abc\x00", b"abc\x00\xff", b"abc\x00\x01more")
    of_texts: list[tuple[Key[Any], bytes]] = [(tuple_of(TEXT), each) for each in no_texts]
    others: list[tuple[Key[Any], bytes]] = [(INT, b""), (INT, b"1234567"), (TEXT, b"\xff")]
    for serde, data in (*of_texts, *others, (tuple_of(INT, INT), b"12345678"), (ARROW, b"no stream")):
        with case(data), pytest.raises(ValueError, match=r"."):
            serde.load(data)


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


@dataclass
class Mean:
    n: int = 0
    mean: float = 0.0


def test_what_would_not_be_read_back_is_refused_with_the_reason() -> None:
    no_mean: Any = replace(Mean(), n="x")  # type: ignore[arg-type]
    not_as_it_is = "would not return it unchanged: "
    refusals: list[tuple[Any, Any, str]] = [
        (json_of(Mean), Mean(1, float("nan")), "JSON has no number for nan at .mean, but msgpack has"),
        (JSON, {"a": [1.0, float("-inf")]}, "JSON has no number for -inf at .a[1], but msgpack has"),
        (JSON, float("inf"), "JSON has no number for inf, but msgpack has"),
        (
            JSON,
            {"a": (1, 2)},
            f"JSON {not_as_it_is}at ['a'], (1, 2) (tuple) would come back as [1, 2] (list)",
        ),
        (MSGPACK, Mean(1, 2.0), f"msgpack {not_as_it_is}Mean(n=1, mean=2.0) (Mean) would come back as"),
        (msgpack_of(Mean), no_mean, "msgpack could not read it back: Expected `int`, got `str` - at `$.n`"),
        (
            json_of(float),
            (1 << 53) + 1,
            "9007199254740993 (int) would come back as 9007199254740992.0 (float)",
        ),
        (JSON, {1: 2}, "JSON cannot represent it: Only dicts with str keys are supported"),
        (JSON, 1j, "JSON cannot represent it: Encoding objects of type complex is unsupported"),
        (MSGPACK, 1 << 64, "msgpack cannot represent it: "),
        (TEXT, b"a", "b'a' is not text, but of type bytes"),
        (TEXT, "\ud800", "cannot be encoded as UTF-8: surrogates not allowed"),
        (BYTES, "a", "'a' is not bytes, but of type str"),
        (INT, 1.5, "1.5 is not a whole number, but of type float"),
        (tuple_of(TEXT, TEXT), "ab", "'ab' is not a tuple, but of type str"),
    ]
    for serde, value, told in refusals:
        with case(value), pytest.raises(ValueRefused) as refused:
            serde.dump(value)
        assert told in str(refused.value)


def test_equal_values_have_equal_bytes_and_what_equals_one_of_a_kind_is_taken() -> None:
    for serde in (JSON, MSGPACK):
        # In whatever order they were filled.
        assert serde.dump({"a": 1, "b": 2}) == serde.dump({"b": 2, "a": 1})
    for made in (json_of, msgpack_of):
        assert made(float).dump(1) == made(float).dump(1.0)
        assert made(dict[str, int]).dump(Counter("ab")) == made(dict[str, int]).dump({"a": 1, "b": 1})
    assert INT.dump(np.int64(5)) == INT.dump(5)
    assert BYTES.dump(bytearray(b"a")) == b"a"  # type: ignore[arg-type]


def test_an_error_of_a_value_names_its_key() -> None:
    state = TaskState("s")
    with state.batch() as stores:
        means = typed(stores["s"], key=TEXT, value=json_of(Mean))
        expiring = Expiring(stores["s"], now_ms=0, ttl_ms=1, key=TEXT, value=json_of(Mean))
        for put in (means.put, expiring.put, lambda key, mean: means.put_many({key: mean})):
            with pytest.raises(ValueRefused, match=r"the value of key 'ann': JSON has no number for inf"):
                put("ann", Mean(1, float("inf")))
        with pytest.raises(OverflowError, match="the value of key b'bob': 9223372036854775808"):
            Counters(stores["s"], key=BYTES).add(b"bob", 1 << 63)
        # As another program has written it, or an older version of the job.
        stores["s"].put(b"old", b'{"n": 1, "mean": null}')
        told = "the value of key 'old', written for an earlier record, cannot be read: Expected `float`"
        for read in (means.get, lambda key: means.get_many([key]), lambda key: list(means.prefix(key))):
            with pytest.raises(ValueError, match=told):
                read("old")


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.int64])
def test_amounts_of_numpy_are_added_as_numbers_without_a_limit(kind: Any) -> None:
    """Their own sum would wrap, and be committed."""
    most = int(np.iinfo(kind).max)
    with TaskState("s").batch() as stores:
        counters = Counters(stores["s"], key=BYTES)
        small = most if kind is not np.int64 else most // 3
        assert counters.add(b"one", kind(small)) == small
        assert counters.add(b"one", kind(small)) == 2 * small
        assert counters.add_many([b"a", b"a"], np.array([small, small], kind)) == [small, 2 * small]
        assert type(counters.get(b"a")) is int
        with pytest.raises(OverflowError):
            counters.add(b"two", 1 << 63)


def test_an_amount_is_a_whole_number() -> None:
    with TaskState("s").batch() as stores:
        counters = Counters(stores["s"], key=BYTES)
        for add in (lambda: counters.add(b"a", 1.5), lambda: counters.add_many([b"a", b"b"], [1, 1.5])):  # type: ignore[arg-type, list-item]
            with pytest.raises(TypeError, match="integer"):
                add()
        assert counters.get_many([b"a", b"b"]) == {b"a": 0, b"b": 0}
