"""The benchmarks' own state steps: what they keep and emit, batch after batch."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.eventtime import DictStore
from benchmarks.steps import EMPTY, NUMBER, PROFILE, count, profile

STAMP = bytes(8)


class Out:
    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes]] = []

    def emit(self, key: bytes, value: bytes) -> None:
        self.records.append((key, value))


def rows(*pairs: tuple[bytes, bytes]) -> Any:
    return pa.table({"key": [key for key, _ in pairs], "value": [value for _, value in pairs]})


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_count_goes_on_over_batches_and_each_record_has_its_output(cut: int) -> None:
    pairs = [(b"a", STAMP + b"1"), (b"b", b"12345678x"), (b"a", STAMP + b"2"), (b"a", STAMP + b"3")]
    store, out = DictStore(), Out()
    for batch in (pairs[:cut], pairs[cut:]):
        count(rows(*batch), {"s": store}, out)
    assert out.records == [
        (b"a", STAMP + NUMBER.pack(1)),
        (b"b", b"12345678" + NUMBER.pack(1)),
        (b"a", STAMP + NUMBER.pack(2)),
        (b"a", STAMP + NUMBER.pack(3)),
    ]
    assert dict(store.range()) == {b"a": NUMBER.pack(3), b"b": NUMBER.pack(1)}


@pytest.mark.parametrize("cut", [1, 2])
def test_a_profile_is_count_sum_least_most_and_histogram(cut: int) -> None:
    pairs = [(b"a", STAMP + each) for each in (b"1", b"22", b"333")]
    store, out = DictStore(), Out()
    for batch in (pairs[:cut], pairs[cut:]):
        profile(rows(*batch), {"s": store}, out)
    amounts = [zlib.crc32(each) for each in (b"1", b"22", b"333")]
    buckets = [sum(each % 12 == bucket for each in amounts) for bucket in range(12)]
    wanted = [3, sum(amounts), min(amounts), max(amounts), *buckets]
    assert dict(store.range()) == {b"a": PROFILE.pack(*wanted)}
    sums = [sum(amounts[: end + 1]) for end in range(3)]
    assert out.records == [(b"a", STAMP + NUMBER.pack(each)) for each in sums]
    assert len(EMPTY) == PROFILE.size // 8
