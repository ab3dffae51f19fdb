"""What a step may emit, to which topics, and in which order it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from standby.errors import BadConfiguration
from standby.replica.outbox import Emitted, Outbox, Outputs
from tests.cases import case

#: No pairs of bytes or None.
REFUSED: list[Any] = [("k", b"v"), (b"k", "v"), (b"k", 1), (bytearray(b"k"), b"v")]


def test_only_bytes_are_sent_out() -> None:
    out = Outbox(["one"])
    for key, value in REFUSED:
        with case(key, value), pytest.raises(TypeError, match="bytes or None"):
            out.emit(key, value)
    assert not out.records


def test_many_are_sent_as_one_by_one_or_none_of_them() -> None:
    out, expected = Outbox(["one", "two"]), Outbox(["one", "two"])
    keys, values = [b"a", None, b"a"], [b"1", b"2", None]
    out.emit(b"a", b"0")
    out.emit_many(keys, values)
    out.emit_many(keys[:1], tuple(values[:1]), "two")
    out.emit_many([], [], "two")
    for each in ((b"a", b"0"), *zip(keys, values, strict=True)):
        expected.emit(*each)
    expected.emit(b"a", b"1", "two")
    assert list(out.records) == list(expected.records)
    for key, value in REFUSED:
        types = f"{type(key).__name__} and {type(value).__name__}"
        with case(key, value), pytest.raises(TypeError, match=f"bytes or None, not {types}"):
            out.emit_many([b"k", key], [b"v", value])
    with pytest.raises(ValueError, match="3 keys and 2 values"):
        out.emit_many(keys, values[:2])
    with pytest.raises(BadConfiguration, match="three"):
        out.emit_many(keys, values, "three")
    assert list(out.records) == list(expected.records)


COLUMNS: dict[str, Callable[[list[bytes | None]], Sequence[bytes | None]]] = {
    "a list": list,
    "a tuple": tuple,
    "an array": lambda column: np.array(column, object),
    "a series": lambda column: pd.Series(column, dtype=object),
    "an index": lambda column: pd.Index(column, dtype=object),
}


@pytest.mark.parametrize("made", COLUMNS.values(), ids=COLUMNS)
def test_many_are_taken_from_any_sequence(
    made: Callable[[list[bytes | None]], Sequence[bytes | None]],
) -> None:
    """A list that is added to an array is not extended: the sum of each pair of elements is made."""
    for before in ([], [b"x"], [b"x", b"y"]):
        for many in (0, 1, 2, 3):
            with case(before, many):
                keys, values = [b"a", b"b", None][:many], [b"1", None, b"3"][:many]
                out = Outbox(["one"])
                for each in before:
                    out.emit(each, each)
                out.emit_many(made(keys), made(values))
                found = [(each.key, each.value) for each in out.records]
                assert found == [*zip(before, before, strict=True), *zip(keys, values, strict=True)]


def test_nothing_is_sent_once_the_call_is_over() -> None:
    """A step that kept it would lose what it emits later: that batch is complete."""
    out = Outbox(["one"])
    out.emit(b"k", b"v")
    out.end()
    with pytest.raises(RuntimeError, match="is over"):
        out.emit(b"k", b"v")
    with pytest.raises(RuntimeError, match="is over"):
        out.emit_many([b"k"], [b"v"], "one")
    assert list(out.records) == [Emitted("one", b"k", b"v")]


def test_records_keep_their_order_within_a_topic() -> None:
    records = [
        Emitted("two", b"a", b"1"),
        Emitted("one", b"a", b"2", timestamp_ms=7),
        Emitted("two", b"a", b"3", (("h", b"x"),), 8),
        Emitted("two", None, None),
    ]
    found = Outputs.of(records)
    assert len(found) == len(records)
    assert list(found) == [records[0], records[2], records[3], records[1]]
    assert found.by_topic["two"].special == {1: ((("h", b"x"),), 8)}, "so the others are sent together"


def test_output_goes_to_the_first_topic_or_to_a_listed_one() -> None:
    out = Outbox(["one", "two"])
    out.emit(b"k", b"v")
    out.emit(None, None, "two", {"h": b"x"})
    assert list(out.records) == [Emitted("one", b"k", b"v"), Emitted("two", None, None, (("h", b"x"),))]
    with pytest.raises(BadConfiguration, match="three"):
        out.emit(b"k", b"v", "three")
    with pytest.raises(BadConfiguration, match=r"task\.outputs"):
        Outbox([]).emit(b"k", b"v")


def test_headers_are_those_of_the_moment_and_may_come_twice_or_have_no_value() -> None:
    out, headers = Outbox(["one"]), {"n": b"1"}
    out.emit(b"k", b"v", headers=headers)
    headers["n"] = b"2"
    out.emit(b"k", b"v", headers=headers)
    pair: list[Any] = ["n", b"1"]
    out.emit(b"k", b"v", headers=[pair, ("n", None)])  # type: ignore[list-item]  # as JSON has pairs
    pair[1] = b"3"
    out.emit(b"k", b"v", headers=[("n", "ä")])  # type: ignore[list-item]
    out.emit(b"k", b"v", headers={})
    assert [each.headers for each in out.records] == [
        (("n", b"1"),),
        (("n", b"2"),),
        (("n", b"1"), ("n", None)),
        (("n", "ä".encode()),),
        (),
    ]


def test_headers_and_times_that_no_record_can_have_are_refused_where_they_are_emitted() -> None:
    """Later it would be no failure of the step, but one of the replica, and of every one that takes over."""
    out = Outbox(["one"])
    surrogates: list[Any] = [{"\ud800": b"1"}, {"n": "\ud800"}]
    for each in surrogates:
        with case(each), pytest.raises(UnicodeEncodeError):
            out.emit(b"k", b"v", headers=each)
    headers: list[Any] = [{"n": 1}, {b"n": b"1"}, {"n": bytearray(b"1")}, [("n", 1)]]
    for each in headers:
        with case(each), pytest.raises(TypeError, match="a header has text as name and bytes as value"):
            out.emit(b"k", b"v", headers=each)
    for pairs in (["ab"], ["n"], [("n", b"1", b"2")], [None]):
        with case(pairs), pytest.raises(TypeError, match="pairs of a name and a value"):
            out.emit(b"k", b"v", headers=pairs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no NUL"):
        out.emit(b"k", b"v", headers={"n\0": b"1"})
    for time_ms in (0, -1, 1 << 63):
        with pytest.raises(ValueError, match=f"milliseconds since 1970, from 1 on: {time_ms}"):
            out.emit(b"k", b"v", timestamp_ms=time_ms)
    with pytest.raises(TypeError, match="whole number, not float"):
        out.emit(b"k", b"v", timestamp_ms=1.5)  # type: ignore[arg-type]
    assert not out.records
    for time_ms in (1, (1 << 63) - 1):
        out.emit(b"k", b"v", timestamp_ms=time_ms)
    assert [each.timestamp_ms for each in out.records] == [1, (1 << 63) - 1]
