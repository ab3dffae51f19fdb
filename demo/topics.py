"""Reads whole topics with a consumer of committed records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from standby.errors import Unavailable

#: For every client here: errors are raised, and the loss of the brokers is not logged.
QUIET: Final = {"log_level": 2}

_TIMEOUT_SECONDS: Final = 10.0


class Stamped(NamedTuple):
    """A record with its position and the broker's time."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


def read_committed(bootstrap: str, topic: str, timeout_seconds: float = 120.0) -> Iterator[Stamped]:
    """Yield every committed record of ``topic``, each partition in order, up to its current end.

    Raises `Unavailable` if the end is not reached within ``timeout_seconds``, also because of an open transaction.
    """
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": "standfast-demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
        }
    )
    deadline = time.monotonic() + timeout_seconds
    try:
        ends = end_offsets(bootstrap, topic)
        # The end for this reader must be the end of the log, or an open transaction would look like a
        # complete read.
        open_ends = {partition: end for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in open_ends])
        while open_ends:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{topic}: committed records end before {open_ends}; a transaction is open there"
                )
            for message in consumer.consume(10_000, timeout=0.5):
                partition = message.partition()
                assert partition is not None
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                        raise Unavailable(f"{topic}[{partition}] cannot be read: {error.str()}")
                    # Its position is after the markers of transactions, where no record follows.
                    if (message.offset() or 0) >= open_ends.get(partition, 0):
                        open_ends.pop(partition, None)
                else:
                    offset, key = message.offset(), message.key()
                    assert offset is not None
                    yield Stamped(partition, offset, message.timestamp()[1], _bytes(key), message.value())
    except KafkaException as error:
        raise Unavailable(f"{topic} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def end_offsets(bootstrap: str, topic: str, admin: AdminClient | None = None) -> Mapping[int, int]:
    """Return each partition's end, uncommitted records included; raises `Unavailable`."""
    # Not `admin or …`: a client counts as false while it has nothing to do.
    client = AdminClient({**QUIET, "bootstrap.servers": bootstrap}) if admin is None else admin
    try:
        metadata = client.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
        if metadata.error is not None:
            raise Unavailable(f"{topic}: {metadata.error.str()}")
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): latest for partition in metadata.partitions}
        futures = client.list_offsets(asked, request_timeout=_TIMEOUT_SECONDS)
        return {each.partition: int(future.result().offset) for each, future in futures.items()}
    except KafkaException as error:
        raise Unavailable(f"the end of {topic} cannot be read: {error.args[0].str()}") from error


def _bytes(key: bytes | str | None) -> bytes:
    return key.encode() if isinstance(key, str) else key or b""
