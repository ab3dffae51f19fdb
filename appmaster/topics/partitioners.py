"""The partition of a key according to the built-in partitioners of producers. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995


def murmur2(key: bytes) -> int:
    """Return Kafka's hash of a key, 32 bits unsigned (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    length = len(key)
    found = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        found = (found * _M & _MASK) ^ word
    rest = key[whole:]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15


#: Name → the partition of a key among a number of partitions. `murmur2` is the Java clients' default and librdkafka's
#: ``murmur2_random``; `crc32` is librdkafka's own default, ``consistent_random``.
PARTITIONERS: Final[Mapping[str, Callable[[bytes, int], int]]] = {
    "murmur2": lambda key, count: (murmur2(key) & 0x7FFFFFFF) % count,
    "crc32": lambda key, count: zlib.crc32(key) % count,
}
