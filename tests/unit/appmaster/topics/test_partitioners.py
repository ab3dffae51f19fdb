"""The partitioners agree with the clients that have them built in."""

from __future__ import annotations

import pytest

from appmaster.topics.partitioners import PARTITIONERS, murmur2


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From Kafka's own tests of its hash (UtilsTest.testMurmur2).
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % (1 << 32)


def test_partitions_are_in_range_and_spread() -> None:
    for partition_of in PARTITIONERS.values():
        found = {partition_of(b"key %d" % number, 7) for number in range(200)}
        assert found == set(range(7))
        assert partition_of(b"", 7) in found


def test_crc32_is_the_checksum_of_the_key() -> None:
    assert PARTITIONERS["crc32"](b"123456789", 1 << 32) == 0xCBF43926
