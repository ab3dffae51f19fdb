"""A batch's view of the state: reads see its writes, and the last write of each key counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standby.errors import BadConfiguration
from standby.replica.store.keys import prefix
from standby.replica.store.overlay import BatchState, Emitted, Outbox
from standby.replica.store.scan import ScanPage
from tests.cases import case


class Committed:
    """The committed state, as a dictionary."""

    def __init__(self, content: dict[bytes, bytes]) -> None:
        self.content = content

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.content.get(each) for each in keys]

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        found = sorted((each for each in self.content.items() if start <= each[0] < stop), reverse=reverse)
        # Pages as small as a database with large values gives: what matters is where one ends.
        return ScanPage(found[: min(limit, 2)], len(found) <= min(limit, 2))


keys = st.sampled_from([b"", b"a", b"b", b"\x00", b"aa"])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["s", "t"]), keys, st.binary(max_size=3)),
        st.tuples(st.just("delete"), st.sampled_from(["s", "t"]), keys, st.just(b"")),
    ),
    max_size=20,
)


@settings(derandomize=True)
@given(operations, operations)
def test_it_behaves_like_plain_dictionaries(
    before: list[tuple[str, str, bytes, bytes]], batch: list[tuple[str, str, bytes, bytes]]
) -> None:
    model: dict[tuple[str, bytes], bytes] = {}
    committed: dict[bytes, bytes] = {}
    for _, store, key, value in before:
        model[store, key] = committed[prefix(store) + key] = value
    untouched = dict(committed)
    state = BatchState(["s", "t"], Committed(committed))
    for what, store, key, value in batch:
        if what == "put":
            state[store].put(key, value)
            model[store, key] = value
        else:
            state[store].delete(key)
            model.pop((store, key), None)
        assert state[store].get(key) == model.get((store, key))
    for store in ("s", "t"):
        every = [b"", b"a", b"b", b"\x00", b"aa", b"a"]
        expected = {key: model[store, key] for key in every if (store, key) in model}
        assert state[store].get_many(every) == expected
    assert committed == untouched, "nothing reaches the committed state before the commit"
    for full, new in state.changes.items():
        if new is None:
            committed.pop(full, None)
        else:
            committed[full] = new
    assert committed == {prefix(store) + key: value for (store, key), value in model.items()}


scans = st.tuples(
    st.just("scan"),
    st.sampled_from(["s", "t"]),
    st.one_of(keys, st.binary(max_size=2)),
    st.one_of(st.none(), keys, st.binary(max_size=2)),
    st.booleans(),
)
writes = st.tuples(
    st.sampled_from(["put", "delete"]),
    st.sampled_from(["s", "t"]),
    st.one_of(keys, st.binary(max_size=2)),
    st.binary(max_size=2),
    st.booleans(),
)


def in_range(
    model: dict[tuple[str, bytes], bytes], store: str, start: bytes, stop: bytes | None, reverse: bool
) -> list[tuple[bytes, bytes]]:
    found = ((key, value) for (name, key), value in model.items() if name == store)
    return sorted(
        (each for each in found if start <= each[0] and (stop is None or each[0] < stop)), reverse=reverse
    )


@settings(derandomize=True)
@given(
    st.dictionaries(st.tuples(st.sampled_from(["s", "t"]), st.binary(max_size=2)), st.binary(max_size=2)),
    st.lists(st.one_of(writes, scans), max_size=40),
)
def test_a_scan_sees_the_store_as_it_was_when_it_began(
    model: dict[tuple[str, bytes], bytes], batch: list[tuple[str, str, bytes, bytes | None, bool]]
) -> None:
    state = BatchState(
        ["s", "t"], Committed({prefix(store) + key: value for (store, key), value in model.items()})
    )
    open_ones = []
    for what, store, key, other, reverse in batch:
        if what == "put":
            assert other is not None
            state[store].put(key, other)
            model[store, key] = other
        elif what == "delete":
            state[store].delete(key)
            model.pop((store, key), None)
        else:
            expected = in_range(model, store, key, other, reverse)
            assert list(state[store].range(key, other, reverse)) == expected
            with_prefix = [
                each for each in in_range(model, store, b"", None, reverse) if each[0].startswith(key)
            ]
            assert list(state[store].prefix(key, reverse)) == with_prefix
            # To be read only when the batch has gone on writing.
            open_ones.append((state[store].range(key, other, reverse), expected))
    for scan, expected in open_ones:
        assert list(scan) == expected


def test_many_are_written_as_one_by_one() -> None:
    state = BatchState(["s"], Committed({prefix("s") + b"old": b"0"}))
    store = state["s"]
    store.put_many({b"a": b"1", b"b": b"2"})
    store.put_many((key, b"3") for key in (b"b", b"c"))
    store.delete_many([b"a", b"old", b"never"])
    assert dict(store.range()) == {b"b": b"3", b"c": b"3"}
    assert b"b" in store
    assert b"old" not in store
    with pytest.raises(TypeError):
        store.put_many([(b"k", "text")])  # type: ignore[list-item]


def test_a_scan_reads_no_further_than_it_is_asked_to() -> None:
    committed = Committed({prefix("s") + b"%03d" % number: b"" for number in range(100)})
    pages: list[bytes] = []
    read = committed.page

    def page(start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        pages.append(start)
        return read(start, stop, limit, reverse=reverse)

    committed.page = page  # type: ignore[method-assign]
    scan = BatchState(["s"], committed)["s"].range()
    assert pages == []
    assert next(scan) == (b"000", b"")
    assert len(pages) == 1


def test_when_the_batch_is_over_its_stores_and_scans_are_of_no_use() -> None:
    state = BatchState(["s"], Committed({prefix("s") + b"%03d" % number: b"" for number in range(9)}))
    store = state["s"]
    store.put(b"k", b"v")
    begun, new = store.range(), store.range()
    next(begun)
    state.end()
    for use in (
        lambda: store.get(b"k"),
        lambda: store.get_many([b"x"]),
        lambda: store.put(b"k", b"w"),
        lambda: store.delete(b"k"),
        lambda: list(begun),
        lambda: list(new),
        lambda: list(store.prefix(b"0")),
    ):
        with pytest.raises(RuntimeError, match="over"):
            use()
    assert state.changes == {prefix("s") + b"k": b"v"}


def test_only_bytes_are_taken_and_sent_out() -> None:
    state, out = BatchState(["s"], Committed({})), Outbox(["one"])
    keyed: list[Any] = [("k", b"v"), (b"k", "v")]
    for key, value in (*keyed, (b"k", None), (None, b"v")):
        with case(key, value), pytest.raises(TypeError):
            state["s"].put(key, value)
    for key, value in (*keyed, (b"k", 1), (bytearray(b"k"), b"v")):
        with case(key, value), pytest.raises(TypeError, match="bytes or None"):
            out.emit(key, value)
    assert (state.changes, out.records) == ({}, [])


def test_output_goes_to_the_first_topic_or_to_a_listed_one() -> None:
    out = Outbox(["one", "two"])
    out.emit(b"k", b"v")
    out.emit(None, None, "two", {"h": b"x"})
    assert out.records == [Emitted("one", b"k", b"v"), Emitted("two", None, None, {"h": b"x"})]
    with pytest.raises(BadConfiguration, match="three"):
        out.emit(b"k", b"v", "three")
    with pytest.raises(BadConfiguration, match=r"task\.outputs"):
        Outbox([]).emit(b"k", b"v")


def test_headers_are_those_of_the_moment_and_may_come_twice_or_have_no_value() -> None:
    out, headers = Outbox(["one"]), {"n": b"1"}
    out.emit(b"k", b"v", headers=headers)
    headers["n"] = b"2"
    out.emit(b"k", b"v", headers=headers)
    out.emit(b"k", b"v", headers=[("n", b"1"), ("n", None)])
    assert [each.headers for each in out.records] == [{"n": b"1"}, {"n": b"2"}, (("n", b"1"), ("n", None))]


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
    for time_ms in (0, -1, 1 << 63):
        with pytest.raises(ValueError, match=f"milliseconds since 1970, from 1 on: {time_ms}"):
            out.emit(b"k", b"v", timestamp_ms=time_ms)
    with pytest.raises(TypeError, match="whole number, not float"):
        out.emit(b"k", b"v", timestamp_ms=1.5)  # type: ignore[arg-type]
    assert out.records == []
