"""Reads the log of Kafka's transaction coordinators, which shows how a transaction ended when markers are missing.

All broker releases write the same format (``TransactionLogKey`` and ``TransactionLogValue`` in Kafka's sources).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from standby.adapters.kafka import clients
from standby.kernel.ports import ANSWER_SECONDS, Place, TransactionOutcome

_TOPIC: Final = "__transaction_state"

#: States of a transaction in a record: ongoing; decided to commit (True) or abort (False).
_ONGOING: Final = 1
_PREPARED: Final = {2: True, 3: False}

#: Number of records at the end of a partition that are read first, and the factor by which it grows until all are
#: read.
_FIRST_LOOK: Final = 1_000
_MORE: Final = 20

#: How many records are taken from the client at once, of those that it has.
_AT_ONCE: Final = 1_000

#: How long a reader waits for a record before it looks at its position.
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class _State:
    status: int
    places: frozenset[Place]
    writer: int
    """The producer's id and epoch. A fence aborts under a higher epoch than that of the transaction."""


def ended(reader: Consumer, name: str, count: int) -> Sequence[TransactionOutcome]:
    """Return how the last transactions of the transactional id ``name`` ended, newest first, at most ``count``.

    Fewer if the log no longer has them. ``reader`` is one of `clients.RECORDS`, and is closed. Raises
    `KafkaException` when the log cannot be read, `TimeoutError` when that takes too long.
    """
    try:
        described = reader.list_topics(_TOPIC, ANSWER_SECONDS).topics[_TOPIC]
        if described.error is not None:
            raise KafkaException(described.error)
        partition = partition_of(name, len(described.partitions))
        low, end = reader.get_watermark_offsets(TopicPartition(_TOPIC, partition), ANSWER_SECONDS)
        look = _FIRST_LOOK
        while True:
            start = max(low, end - look)
            states = [
                state
                for each in records_until(reader, TopicPartition(_TOPIC, partition, start), end)
                if (key := each.key()) is not None and _name_in(key) == name
                if (state := _state_in(each.value())) is not None
            ]
            found = list(_endings(states))
            if len(found) >= count or start <= low:
                return found[::-1][:count]
            look *= _MORE
    finally:
        clients.close_consumer(reader)


def _endings(states: Iterable[_State]) -> Iterator[TransactionOutcome]:
    """Yield how each transaction ended, in order; its writer is that of its records while it was ongoing."""
    writer: int | None = None
    for each in states:
        if each.status == _ONGOING:
            writer = each.writer
        elif each.status in _PREPARED:
            yield TransactionOutcome(_PREPARED[each.status], each.places, writer)
            writer = None


def records_until(
    reader: Consumer,
    start: TopicPartition,
    end: int,
    is_final: Callable[[int], bool] = lambda _: True,
) -> Iterator[Message]:
    """Yield the records from ``start`` to ``end`` of a partition.

    The ``reader`` tells where the partition ends for now, or the last markers before ``end`` take a moment longer.
    Raises `KafkaException` for an error whose code ``is_final``; others are retried. Raises `TimeoutError` when that
    takes too long.
    """
    reader.assign([start])
    position, silent_at = start.offset, time.monotonic() + ANSWER_SECONDS
    while position < end:
        # The client waits until it has as many as are asked for.
        messages = reader.consume(1, _LOOK_SECONDS)
        if messages:
            messages += reader.consume(_AT_ONCE, 0)
        for message in messages:
            failure = message.error()
            if failure is not None:
                if failure.code() != KafkaError._PARTITION_EOF and is_final(failure.code()):  # noqa: SLF001
                    raise KafkaException(failure)
            elif (message.offset() or 0) >= end:
                return
            else:
                yield message
        # The position includes markers, and offsets removed by compaction; it is negative until something was read.
        (now,) = reader.position([start])
        if now.offset > position:
            position, silent_at = now.offset, time.monotonic() + ANSWER_SECONDS
        elif time.monotonic() > silent_at:
            raise TimeoutError


def partition_of(name: str, partitions: int) -> int:
    """Return the partition of the log for a transactional id, based on Java's String.hashCode."""
    value = 0
    units = name.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    # Like Kafka's `Utils.abs`: the only number without a positive counterpart counts as 0.
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def _name_in(key: bytes) -> str | None:
    """Return the transactional id of a record; None for a key in another format."""
    if len(key) < 4:
        return None
    version, length = struct.unpack_from(">hh", key)
    return key[4 : 4 + length].decode("utf-8", "replace") if version == 0 else None


def _state_in(value: bytes | None) -> _State | None:
    """Return the state in a record; None for a tombstone, and for a value in an unknown format.

    The value has version, producer id and epoch, time-out, status, and the partitions. In version 1, lengths are
    variable-length integers, and tagged fields follow each topic.
    """
    if value is None or len(value) < 17:
        return None
    (version,) = struct.unpack_from(">h", value)
    if version not in (0, 1):
        return None
    producer, epoch = struct.unpack_from(">qh", value, 2)
    (status,) = struct.unpack_from(">b", value, 16)
    try:
        places = frozenset(_places(value, 17, is_compact=version == 1))
        return _State(status, places, producer << 16 | epoch & 0xFFFF)
    except (struct.error, IndexError):
        return None


def _places(value: bytes, at: int, *, is_compact: bool) -> Iterator[Place]:
    count, at = _count(value, at, is_compact=is_compact)
    for _ in range(count):
        if is_compact:
            length, at = _varint(value, at)
            length -= 1
        else:
            (length,) = struct.unpack_from(">h", value, at)
            at += 2
        topic = value[at : at + length].decode("utf-8", "replace")
        numbers, at = _count(value, at + length, is_compact=is_compact)
        for number in struct.unpack_from(f">{numbers}i", value, at):
            yield topic, number
        at += 4 * numbers
        if is_compact:
            tags, at = _varint(value, at)
            for _ in range(tags):
                _, at = _varint(value, at)
                size, at = _varint(value, at)
                at += size


def _count(value: bytes, at: int, *, is_compact: bool) -> tuple[int, int]:
    """Return the length of a list (0 for null), and its start."""
    if is_compact:
        count, at = _varint(value, at)
        return max(0, count - 1), at
    (count,) = struct.unpack_from(">i", value, at)
    return max(0, count), at + 4


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, at = value[at], at + 1
        number, shift = number | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return number, at
