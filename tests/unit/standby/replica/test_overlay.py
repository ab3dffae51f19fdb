"""A batch's view of the state: reads see its writes, and the last write of each key counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standby.errors import BadConfiguration
from standby.replica.keys import prefix
from standby.replica.overlay import Emitted, Outbox, overlay


class Committed:
    """The committed state, as a dictionary."""

    def __init__(self, content: dict[bytes, bytes]) -> None:
        self.content = content

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.content.get(each) for each in keys]


keys = st.sampled_from([b"", b"a", b"b", b"\x00", b"aa"])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["s", "t"]), keys, st.binary(max_size=3)),
        st.tuples(st.just("delete"), st.sampled_from(["s", "t"]), keys, st.just(b"")),
    ),
    max_size=20,
)


@given(operations, operations)
def test_it_behaves_like_plain_dictionaries(
    before: list[tuple[str, str, bytes, bytes]], batch: list[tuple[str, str, bytes, bytes]]
) -> None:
    model: dict[tuple[str, bytes], bytes] = {}
    committed: dict[bytes, bytes] = {}
    for _, store, key, value in before:
        model[store, key] = committed[prefix(store) + key] = value
    untouched = dict(committed)
    state, changes = overlay(["s", "t"], Committed(committed))
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
    for full, new in changes.items():
        if new is None:
            committed.pop(full, None)
        else:
            committed[full] = new
    assert committed == {prefix(store) + key: value for (store, key), value in model.items()}


@pytest.mark.parametrize(("key", "value"), [("k", b"v"), (b"k", "v"), (b"k", None), (None, b"v")])
def test_only_bytes_are_taken(key: object, value: object) -> None:
    state, changes = overlay(["s"], Committed({}))
    with pytest.raises(TypeError):
        state["s"].put(key, value)  # type: ignore[arg-type]
    assert changes == {}


def test_output_goes_to_the_first_topic_or_to_a_listed_one() -> None:
    out = Outbox(["one", "two"])
    out.emit(b"k", b"v")
    out.emit(None, None, "two", {"h": b"x"})
    assert out.records == [Emitted("one", b"k", b"v"), Emitted("two", None, None, {"h": b"x"})]
    with pytest.raises(BadConfiguration, match="three"):
        out.emit(b"k", b"v", "three")
    with pytest.raises(BadConfiguration, match=r"task\.outputs"):
        Outbox([]).emit(b"k", b"v")
