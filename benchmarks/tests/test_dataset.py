"""The records that every contestant restores, and what they come to."""

from __future__ import annotations

from collections import Counter

from benchmarks.dataset import Dataset, checksum, key_of, value_of
from standby.replica.store.keys import split


def test_what_is_expected_is_what_replaying_every_record_comes_to() -> None:
    data = Dataset(records=2_000, keys=1_000, partitions=4)
    state = {key: value for _, key, value in data.pairs(0, data.records)}
    total = sum(checksum(key, value) for key, value in state.items())
    assert data.expected() == (len(state), total) == (1_000, total)


def test_records_have_16_and_100_bytes_and_every_key_comes_twice() -> None:
    data = Dataset(records=2_000, keys=1_000, partitions=4)
    pairs = list(data.pairs(0, data.records))
    assert {(len(key), len(value)) for _, key, value in pairs} == {(16, 100)}
    assert set(Counter(key for _, key, _ in pairs).values()) == {2}
    assert len({value for _, _, value in pairs}) == 2_000


def test_a_key_stays_in_its_partition_and_all_have_as_many() -> None:
    data = Dataset(records=4_000, keys=2_000, partitions=4)
    homes: dict[bytes, set[int]] = {}
    for partition, key, _ in data.pairs(0, data.records):
        homes.setdefault(key, set()).add(partition)
    assert Counter(home for (home,) in homes.values()) == {0: 500, 1: 500, 2: 500, 3: 500}


def test_a_key_is_one_of_standfast_changelogs_and_no_order_is_in_them() -> None:
    keys = [key_of(number) for number in range(100)]
    assert {split(key)[0] for key in keys} == {"s"}
    assert keys != sorted(keys)


def test_the_checksum_sees_key_and_value() -> None:
    assert len({checksum(key_of(a), value_of(b)) for a in range(10) for b in range(10)}) == 100
