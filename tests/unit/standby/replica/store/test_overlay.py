"""A batch's view of the state: reads see its writes, and the last write of each key counts."""

from __future__ import annotations

from typing import Any

import pytest

from standby.replica.store.keys import prefix
from standby.replica.store.overlay import BatchState, Postponed, StoreOverlay
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
    begun, of_own, new = (store.range() for _ in range(3))
    next(begun)
    for _ in range(9):
        next(of_own)
    state.end()
    for use in (
        lambda: store.get(b"k"),
        lambda: store.get_many([b"x"]),
        lambda: store.put(b"k", b"w"),
        lambda: store.delete(b"k"),
        lambda: list(begun),
        lambda: next(of_own),
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


def test_only_bytes_are_taken() -> None:
    state = BatchState(["s"], committed())
    refused: list[Any] = [("k", b"v"), (b"k", "v"), (b"k", None), (None, b"v")]
    for key, value in refused:
        with case(key, value), pytest.raises(TypeError):
            state["s"].put(key, value)
    assert state.changes == {}
