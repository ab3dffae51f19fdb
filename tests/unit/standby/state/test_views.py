"""Typed stores, counters and expiry over one batch, and over many, against plain dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standby.api import Store
from standby.state import INT, JSON, TEXT, Counters, Expiring, tuple_of, typed
from tests.fakes.task_state import TaskState


@pytest.fixture
def store() -> Iterator[Store]:
    with TaskState("s").batch() as stores:
        yield stores["s"]


def test_a_typed_store_speaks_its_types(store: Store) -> None:
    visits = typed(store, key=tuple_of(TEXT, INT), value=JSON)
    visits.put(("b", 2), {"n": 1})
    visits.put_many({("a", 3): [1], ("a", -3): None})
    visits.put_many([(("a", 7), "x"), (("c", 0), 0)])
    assert visits.get(("b", 2)) == {"n": 1}
    assert visits.get(("b", 3)) is None
    assert visits.get_many([("a", 3), ("a", -3), ("z", 0)]) == {("a", 3): [1], ("a", -3): None}
    assert ("a", -3) in visits
    assert [key for key, _ in visits.prefix(("a",))] == [("a", -3), ("a", 3), ("a", 7)]
    assert list(visits.prefix(("a",), reverse=True)) == list(visits.prefix(("a",)))[::-1]
    assert list(visits.range(("a", 0), ("b",))) == [(("a", 3), [1]), (("a", 7), "x")]
    assert [key for key, _ in visits.range(reverse=True)][:2] == [("c", 0), ("b", 2)]
    visits.delete(("b", 2))
    visits.delete_many([("a", 3), ("never", 0)])
    assert [key for key, _ in visits.range()] == [("a", -3), ("a", 7), ("c", 0)]


def test_keys_without_an_order_are_not_scanned(store: Store) -> None:
    unordered = typed(store, key=JSON, value=JSON)
    unordered.put([1], 2)
    assert unordered.get([1]) == 2
    with pytest.raises(TypeError, match="order"):
        unordered.range([1])
    with pytest.raises(TypeError, match="order"):
        unordered.prefix([1])


@settings(derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=20), st.integers(0, 20))
def test_counters_add_one_by_one_and_many_at_once_alike(additions: list[tuple[str, int]], cut: int) -> None:
    state = TaskState("s")
    model: dict[str, int] = {}
    expected = []
    for key, amount in additions:
        model[key] = model.get(key, 0) + amount
        expected.append(model[key])
    with state.batch() as stores:
        counters = Counters(stores["s"], key=TEXT)
        found = [counters.add(key, amount) for key, amount in additions[:cut]]
    with state.batch() as stores:
        counters = Counters(stores["s"], key=TEXT)
        rest = additions[cut:]
        found += counters.add_many([key for key, _ in rest], [amount for _, amount in rest])
        assert found == expected
        assert counters.get_many("abcd") == {each: model.get(each, 0) for each in "abcd"}
        assert counters.get("d") == 0
        counters.delete("a")
        assert counters.get("a") == 0
        assert counters.add_many(["a", "b", "a"]) == [1, model.get("b", 0) + 1, 2]


def test_a_counter_does_not_pass_its_64_bits(store: Store) -> None:
    counters = Counters(store, key=TEXT)
    counters.add("k", (1 << 63) - 1)
    with pytest.raises(OverflowError):
        counters.add("k")
    with pytest.raises(ValueError, match=r"shorter|longer"):
        counters.add_many(["a", "b"], [1])


@dataclass
class ExpiringModel:
    """Key → value and expiry, expired ones included until somebody asks."""

    entries: dict[str, tuple[int, int]] = field(default_factory=dict)

    def alive(self, now_ms: int) -> dict[str, int]:
        return {key: value for key, (value, expiry) in self.entries.items() if expiry > now_ms}


TTL = 10
keys = st.sampled_from(["a", "b", "c", "aa", ""])
moves = st.one_of(
    st.tuples(st.just("put"), keys, st.integers(-15, 5)),
    st.tuples(st.just("delete"), keys, st.just(0)),
    st.tuples(st.just("many"), st.lists(keys, max_size=3), st.just(0)),
    st.tuples(st.just("sweep"), st.just(""), st.integers(0, 3)),
)


@settings(derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 8), st.lists(moves, max_size=6)), max_size=8))
def test_what_has_expired_is_not_there_and_what_has_not_is(batches: list[tuple[int, list[Any]]]) -> None:
    state, model, now_ms = TaskState("s"), ExpiringModel(), 0
    for number, (passed, batch_moves) in enumerate(batches):
        now_ms += passed
        with state.batch() as stores:
            view = Expiring(stores["s"], now_ms=now_ms, ttl_ms=TTL, key=TEXT, value=INT)
            for what, key, amount in batch_moves:
                if what == "put":
                    view.put(key, number, now_ms + amount)
                    model.entries[key] = (number, now_ms + amount + TTL)
                elif what == "many":
                    view.put_many([(each, number) for each in key])
                    model.entries.update(dict.fromkeys(key, (number, now_ms + TTL)))
                elif what == "delete":
                    view.delete(key)
                    model.entries.pop(key, None)
                else:
                    assert view.sweep(amount) <= amount
                alive = model.alive(now_ms)
                assert list(view.range()) == sorted(alive.items())
                assert list(view.range(reverse=True)) == sorted(alive.items(), reverse=True)
                assert view.get_many(["a", "b", "c", "aa", ""]) == alive
                assert {each for each in ("a", "b", "c", "aa", "") if each in view} == set(alive)
                begin_so = {each: alive[each] for each in alive if each.startswith("a")}
                assert list(view.prefix("a")) == sorted(begin_so.items())
                assert list(view.prefix("a", reverse=True)) == sorted(begin_so.items(), reverse=True)
                assert view.expires_ms("a") == (model.entries["a"][1] if "a" in alive else None)
        assert_consistent(state)
    with state.batch() as stores:
        Expiring(stores["s"], now_ms=now_ms + 100, ttl_ms=TTL, key=TEXT, value=INT).sweep(1_000)
    left = [each for each in state.of("s") if not each.startswith(b"f")]
    assert left == [], "nothing expired stays for ever"


def assert_consistent(state: TaskState) -> None:
    """Fail unless every value has exactly its one place in the order of expiry, at or above the floor."""
    stored = state.of("s")
    data = {key[1:]: value[:8] for key, value in stored.items() if key.startswith(b"d")}
    order = {key[9:]: key[1:9] for key in stored if key.startswith(b"x")}
    assert data == order
    assert len(order) == sum(key.startswith(b"x") for key in stored)
    assert all(expiry >= stored.get(b"f", b"") for expiry in order.values())


def values_in(state: TaskState) -> int:
    return sum(each.startswith(b"d") for each in state.of("s"))


def test_removal_keeps_up_with_writing() -> None:
    state = TaskState("s")
    for number in range(200):
        with state.batch() as stores:
            view = Expiring(stores["s"], now_ms=number, ttl_ms=20, key=INT, value=INT)
            for each in range(10):
                view.put(number * 10 + each, each)
    # 20 times 10 are alive; besides those, some that the next write removes.
    assert values_in(state) <= 20 * 10 + 2 * 64
    many = TaskState("s")
    for number in range(20):
        with many.batch() as stores:
            view = Expiring(stores["s"], now_ms=number * 100, ttl_ms=10, key=INT, value=INT)
            view.put_many((number * 1_000 + each, each) for each in range(500))
    assert values_in(many) == 500, "many at once make room for as many"


def test_time_that_falls_loses_nothing() -> None:
    state = TaskState("s")
    for now_ms, key in ((1_000, "late"), (2_000, "later"), (500, "early")):
        with state.batch() as stores:
            Expiring(stores["s"], now_ms=now_ms, ttl_ms=100, key=TEXT, value=INT).put(key, now_ms)
        assert_consistent(state)
    with state.batch() as stores:
        view = Expiring(stores["s"], now_ms=550, ttl_ms=100, key=TEXT, value=INT)
        assert view.get("early") == 500
        later = Expiring(stores["s"], now_ms=5_000, ttl_ms=100, key=TEXT, value=INT)
        assert later.sweep(10) == 2
        assert dict(later.range()) == {}


def test_a_time_to_live_is_some_time(store: Store) -> None:
    with pytest.raises(ValueError, match="ttl_ms"):
        Expiring(store, now_ms=0, ttl_ms=0, key=TEXT, value=INT)


def test_a_null_is_a_value(store: Store) -> None:
    view = Expiring(store, now_ms=0, ttl_ms=5, key=TEXT, value=JSON)
    view.put("k", None)
    assert view.get_many(["k"]) == {"k": None}
    assert list(view.range()) == [("k", None)]
