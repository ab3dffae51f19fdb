"""A batch's view of the state: reads see its writes, and the last write of each key counts."""

from __future__ import annotations

from typing import Any

import pytest

from standby.errors import BadConfiguration
from standby.replica.store.keys import prefix
from standby.replica.store.overlay import BatchState, Emitted, Outbox, Postponed, StoreOverlay
from standby.replica.store.scan import ScanPage, SortedWrites
from tests.cases import case
from tests.fakes.task_state import TaskState


def committed(*keys: bytes) -> TaskState:
    """Return a committed state with these keys in its store; its pages are small."""
    state = TaskState("s")
    state.content = {prefix("s") + each: b"" for each in keys}
    return state


def test_many_are_written_as_one_by_one() -> None:
    state = BatchState(["s"], committed(b"old"))
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
    held = committed(*(b"%03d" % number for number in range(100)))
    pages: list[bytes] = []
    read = held.page

    def page(start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        pages.append(start)
        return read(start, stop, limit, reverse=reverse)

    held.page = page  # type: ignore[method-assign]
    scan = BatchState(["s"], held)["s"].range()
    assert pages == []
    assert next(scan) == (b"000", b"")
    assert len(pages) == 1


def test_when_the_batch_is_over_its_stores_and_scans_are_of_no_use() -> None:
    state = BatchState(["s"], committed(*(b"%03d" % number for number in range(9))))
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


def test_rows_are_postponed_only_if_the_caller_handles_it() -> None:
    with pytest.raises(Postponed) as raised:
        StoreOverlay("s", committed(), {}, SortedWrites({}), may_postpone=True).postpone(3, {b"k": b"v"})
    assert (raised.value.row, raised.value.notes) == (3, {prefix("s") + b"k": b"v"})
    store = BatchState(["s"], committed())["s"]
    assert isinstance(store, StoreOverlay)
    store.postpone(3, {})


def test_only_bytes_are_taken_and_sent_out() -> None:
    state, out = BatchState(["s"], committed()), Outbox(["one"])
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
    for time_ms in (1, (1 << 63) - 1):
        out.emit(b"k", b"v", timestamp_ms=time_ms)
    assert [each.timestamp_ms for each in out.records] == [1, (1 << 63) - 1]
