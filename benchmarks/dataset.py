"""The records that are restored: the same bytes for every contestant, known in advance, written once.

Record ``i`` of ``n`` has key ``i * P mod keys`` (P prime): with ``keys = n / 2`` every key occurs exactly twice, in an
order that is not sorted for any store. Keys have 16 bytes: the two bytes by which standfast identifies a store in its
changelog (its records need them, and they mean nothing to the others), and 14 bytes that are evenly distributed.
Values have 100 bytes that do not compress. They are written in transactions of 10,000, as by an exactly-once job, and
restored by reading committed records only.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

STORE: Final = "s"
_PREFIX: Final = b"\x01s"
_PRIME: Final = 2_654_435_761
_SPREAD: Final = 0x9E3779B97F4A7C15
_NOISE: Final = random.Random(1).randbytes(1 << 16)
TRANSACTION: Final = 10_000
_VALUE_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Dataset:
    """The size of the data set."""

    records: int
    keys: int
    partitions: int

    def key_number(self, record: int) -> int:
        """Return the number of a record's key."""
        return record * _PRIME % self.keys

    def pairs(self, first: int, stop: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield partition, key and value of the records [first, stop)."""
        for record in range(first, stop):
            number = self.key_number(record)
            yield number % self.partitions, key_of(number), value_of(record)

    def expected(self) -> tuple[int, int]:
        """Return the number of keys and the checksum of the final state.

        Every key's newest record is among the last ``keys`` ones.
        """
        total = 0
        for _, key, value in self.pairs(self.records - self.keys, self.records):
            total += checksum(key, value)
        return self.keys, total % (1 << 64)


def key_of(number: int) -> bytes:
    """Return the 16 bytes of a key."""
    return _PREFIX + struct.pack(">QHI", number * _SPREAD % (1 << 64), 0, number)


def value_of(record: int) -> bytes:
    """Return the 100 bytes of a record's value."""
    at = record * 37 % (len(_NOISE) - _VALUE_BYTES)
    return struct.pack(">Q", record * _SPREAD % (1 << 64)) + _NOISE[at : at + _VALUE_BYTES - 8]


def checksum(key: bytes, value: bytes) -> int:
    """Return a pair's part of the checksum; the parts are added, so that the order does not matter."""
    return zlib.crc32(value, zlib.crc32(key))


def make_topic(bootstrap: str, topic: str, partitions: int, policy: str = "compact") -> None:
    """Create a topic, by default with the clean-up policy of changelogs."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # So that the broker's cleaner does not compact it, or use CPU time, between two contestants.
    lasting = {"cleanup.policy": policy, "min.cleanable.dirty.ratio": "1.0", "segment.ms": "86400000"}
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=lasting)]).values():
        future.result(30)


def fill(bootstrap: str, topic: str, data: Dataset) -> None:
    """Create ``topic`` and write all records to it."""
    make_topic(bootstrap, topic, data.partitions)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"fill-{topic}",
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 10 * TRANSACTION,
        }
    )
    producer.init_transactions(30)
    for first in range(0, data.records, TRANSACTION):
        parts: dict[int, list[dict[str, bytes]]] = {}
        for partition, key, value in data.pairs(first, min(first + TRANSACTION, data.records)):
            parts.setdefault(partition, []).append({"key": key, "value": value})
        producer.begin_transaction()
        for partition, messages in parts.items():
            if producer.produce_batch(topic, messages, partition=partition) != len(messages):
                raise RuntimeError("the producer did not take every record")
        producer.commit_transaction(60)
