"""The benchmarks' own state steps: what they keep and emit, batch after batch."""

from __future__ import annotations

import zlib
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from benchmarks import spark_steps
from benchmarks.eventtime import DictStore
from benchmarks.steps import EMPTY, NUMBER, PROFILE, count, profile
from standby.replica.outbox import Outbox

STAMP = bytes(8)


def sent(out: Outbox) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for each in out.records]


def rows(*pairs: tuple[bytes, bytes]) -> Any:
    return pa.table({"key": [key for key, _ in pairs], "value": [value for _, value in pairs]})


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_count_goes_on_over_batches_and_each_record_has_its_output(cut: int) -> None:
    pairs = [(b"a", STAMP + b"1"), (b"b", b"12345678x"), (b"a", STAMP + b"2"), (b"a", STAMP + b"3")]
    store, out = DictStore(), Outbox(["out"])
    for batch in (pairs[:cut], pairs[cut:]):
        count(rows(*batch), {"s": store}, out)
    assert sent(out) == [
        (b"a", STAMP + NUMBER.pack(1)),
        (b"b", b"12345678" + NUMBER.pack(1)),
        (b"a", STAMP + NUMBER.pack(2)),
        (b"a", STAMP + NUMBER.pack(3)),
    ]
    assert dict(store.range()) == {b"a": NUMBER.pack(3), b"b": NUMBER.pack(1)}


@pytest.mark.parametrize("cut", [1, 2])
def test_a_profile_is_count_sum_least_most_and_histogram(cut: int) -> None:
    pairs = [(b"a", STAMP + each) for each in (b"1", b"22", b"333")]
    store, out = DictStore(), Outbox(["out"])
    for batch in (pairs[:cut], pairs[cut:]):
        profile(rows(*batch), {"s": store}, out)
    amounts = [zlib.crc32(each) for each in (b"1", b"22", b"333")]
    buckets = [sum(each % 12 == bucket for each in amounts) for bucket in range(12)]
    wanted = [3, sum(amounts), min(amounts), max(amounts), *buckets]
    assert dict(store.range()) == {b"a": PROFILE.pack(*wanted)}
    sums = [sum(amounts[: end + 1]) for end in range(3)]
    assert sent(out) == [(b"a", STAMP + NUMBER.pack(each)) for each in sums]
    assert len(EMPTY) == PROFILE.size // 8


class GroupState:
    """What ``applyInPandasWithState`` keeps for a key."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[bytes] | None:
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value


@pytest.mark.parametrize(("ours", "theirs"), [(count, spark_steps.count), (profile, spark_steps.profile)])
def test_sparks_steps_do_the_same(ours: Any, theirs: Any) -> None:
    values = [STAMP + b"%d" % number for number in range(5)]
    store, out, state = DictStore(), Outbox(["out"]), GroupState()
    found: list[tuple[bytes | None, bytes | None]] = []
    for batch in (values[:2], values[2:]):
        ours(rows(*((b"a", value) for value in batch)), {"s": store}, out)
        frames = (pd.DataFrame({"value": [bytearray(value)]}) for value in batch)
        for frame in theirs((bytearray(b"a"),), frames, state):
            found += list(zip(frame["key"], frame["value"], strict=True))
    assert found == sent(out)
    assert state.value == (store.get(b"a"),)
