"""Whatever batches do to their stores: scans and reads say what a dictionary would, on either database."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Database, OpenDatabase, Profile
from standby.replica.store.overlay import BatchState
from tests.examples import examples
from tests.fakes.database import MemoryDisk

#: Among many keys, so that a scan takes several pages, and a few that are hit again and again.
keys = st.one_of(
    st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"ab", b"\xff", b"\xff\xff"]), st.binary(max_size=3)
)
bounds = st.one_of(st.none(), keys)
moves = st.one_of(
    st.tuples(st.just("put"), keys, st.binary(max_size=4)),
    st.tuples(st.just("delete"), keys, st.none()),
    st.tuples(st.just("fill"), st.binary(max_size=1), st.integers(1, 60)),
    st.tuples(st.just("empty"), keys, bounds),
    st.tuples(st.just("scan"), keys, bounds),
    st.tuples(st.just("prefix"), keys, st.none()),
)
batches = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "fail", "reopen"]), st.lists(moves, max_size=8)),
    max_size=6,
)


class Play:
    """Two stores side by side, of which one is played with: nothing of the other may ever show."""

    def __init__(self, opener: Callable[[], Database]) -> None:
        self._open = opener
        self.database = opener()
        self.model: dict[bytes, bytes] = {}
        self.database.write([(b"\x01r" + b"%d" % number, b"other") for number in range(9)])
        self.database.write([(b"\x01t" + b"%d" % number, b"other") for number in range(9)])

    def batch(self, ending: str, content: list[Any]) -> None:
        state = BatchState(["r", "s", "t"], self.database)
        store, model = state["s"], dict(self.model)
        open_ones = []
        for what, key, other in content:
            if what == "put":
                store.put(key, other)
                model[key] = other
            elif what == "delete":
                store.delete(key)
                model.pop(key, None)
            elif what == "fill":
                pairs = {key + b"%02d" % number: b"filled" for number in range(other)}
                store.put_many(pairs)
                model.update(pairs)
            elif what == "empty":
                # A loop that deletes what it passes.
                for each, _ in store.range(key, other):
                    store.delete(each)
                for each, _ in between(model, key, other):
                    del model[each]
            elif what == "scan":
                assert list(store.range(key, other)) == between(model, key, other)
                assert list(store.range(key, other, reverse=True)) == between(model, key, other)[::-1]
                open_ones.append((store.range(key, other), between(model, key, other)))
            else:
                expected = [each for each in between(model, b"", None) if each[0].startswith(key)]
                assert list(store.prefix(key)) == expected
                assert list(store.prefix(key, reverse=True)) == expected[::-1]
        for scan, expected in open_ones:
            assert list(scan) == expected
        assert store.get_many([key for _, key, _ in content]) == {
            key: model[key] for _, key, _ in content if key in model
        }
        state.end()
        if ending == "fail":
            return
        self.database.write(state.changes.items())
        self.model = model
        if ending == "reopen":
            self.database.close()
            self.database = self._open()


def between(model: dict[bytes, bytes], start: bytes, stop: bytes | None) -> list[tuple[bytes, bytes]]:
    return sorted(each for each in model.items() if start <= each[0] and (stop is None or each[0] < stop))


@settings(max_examples=examples(60))
@given(played=batches)
def test_stores_are_ordered_dictionaries(played: list[Any]) -> None:
    play_on(MemoryDisk().open, played)


@settings(max_examples=examples(15))
@given(played=batches)
def test_stores_on_a_real_database_are_ordered_dictionaries(played: list[Any]) -> None:
    play_on(open_database, played)


def play_on(opener: OpenDatabase, played: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        play = Play(lambda: opener(Path(directory) / "db", Profile.SERVING))
        for ending, content in played:
            play.batch(ending, content)
        play.batch("commit", [("scan", b"", None)])
        play.database.close()
