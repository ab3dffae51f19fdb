"""Reads the changelog partitions of a container's replicas through one librdkafka consumer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from standby.adapters.kafka.lasting import RECONNECT_MS
from standby.config import CHANGELOG_RECORD_BYTES, JobConfig, kafka_settings
from standby.errors import Transient, Unavailable
from standby.kernel.ports import Change, Chunk
from standby.wire import JobDefinition

_log: Final = logging.getLogger(__name__)

#: Memory for fetched records that nobody has taken yet, all readers of a job in a container together.
_QUEUE_BYTES: Final = 64 << 20

#: What no repetition mends.
_REFUSED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})


class KafkaChangelog:
    """A consumer with an explicit assignment, one topic, read committed."""

    def __init__(self, config: JobConfig, definition: JobDefinition) -> None:
        # The one that follows the replicas in step has its part, too.
        queue_bytes = _QUEUE_BYTES // (config.restore_threads + 1)
        self._topic, self._group = definition.changelog, definition.group
        self._consumer = Consumer(
            kafka_settings(
                config,
                # Needed by the API; without a subscription it is never joined, and nothing is committed.
                group_id=definition.group,
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                auto_offset_reset="error",
                isolation_level="read_committed",
                check_crcs=True,
                allow_auto_create_topics=False,
                # The default of 1000 ms stalls a reader that is faster than the fetcher.
                fetch_queue_backoff_ms=5,
                fetch_message_max_bytes=CHANGELOG_RECORD_BYTES,
                fetch_max_bytes=max(queue_bytes, CHANGELOG_RECORD_BYTES),
                fetch_min_bytes=1,
                reconnect_backoff_max_ms=RECONNECT_MS,
                queued_min_messages=1_000_000,
                queued_max_messages_kbytes=queue_bytes >> 10,
            )
        )
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._is_away = False

    def add(self, partition: int, offset: int) -> None:
        """Begin to read a partition at ``offset``."""
        self.remove(partition)
        self._consumer.incremental_assign([TopicPartition(self._topic, partition, offset)])
        self._positions[partition] = offset

    def remove(self, partition: int) -> None:
        """Read a partition no longer."""
        if self._positions.pop(partition, None) is not None:
            # librdkafka remembers a pause beyond the assignment.
            self._resume(partition)
            self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])

    def pause(self, partition: int) -> None:
        """Bring nothing of a partition for now."""
        if partition in self._positions and partition not in self._paused:
            self._paused.add(partition)
            self._consumer.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        """Go on with a paused partition where it was."""
        self._resume(partition)

    def read(self, limit: int, timeout_seconds: float) -> Mapping[int, Chunk]:
        """Return what there is, at most ``limit`` records, after at most the timeout."""
        try:
            messages = self._consumer.consume(limit, timeout_seconds)
            # After the records were taken: it passes markers and aborted records too.
            asked = [TopicPartition(self._topic, each) for each in self._positions]
            moved = {each.partition: each.offset for each in self._consumer.position(asked)}
        except KafkaException as error:
            raise Transient(f"reading {self._topic}: {error.args[0]}") from error
        failed = [each for each in messages if each.error() is not None]
        lost = self._lost(failed)
        if failed:
            messages = [each for each in messages if each.error() is None]
        changes = self._changes(messages)
        if changes:
            self._is_away = False
        result: dict[int, Chunk] = {}
        for partition, before in self._positions.items():
            # A partition of which nothing was taken yet has no position, but the one it was given.
            position = max(before, moved[partition])
            if position != before or partition in lost:
                result[partition] = Chunk(changes.get(partition, ()), position, partition in lost)
        self._positions.update((each, chunk.position) for each, chunk in result.items())
        return result

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()

    def _resume(self, partition: int) -> None:
        if partition in self._paused:
            self._paused.discard(partition)
            self._consumer.resume([TopicPartition(self._topic, partition)])

    def _changes(self, messages: Sequence[Message]) -> Mapping[int, Sequence[Change]]:
        """Return the records by their partition."""
        partitions = {each.partition() for each in messages}
        if len(partitions) == 1 and partitions <= self._positions.keys():
            # As a rule a restore reads only one; sorting them one by one costs it 5 to 10 % more CPU time.
            (only,) = self._positions.keys() & partitions
            return {only: [(key, each.value()) for each in messages if (key := each.key()) is not None]}
        changes: dict[int, list[Change]] = {}
        for message in messages:
            partition, key = message.partition(), message.key()
            if partition in self._positions and key is not None:
                changes.setdefault(partition, []).append((key, message.value()))
        return changes

    def _lost(self, failed: Sequence[Message]) -> set[int]:
        """Return the partitions that have nothing at their position, by what was reported."""
        lost: set[int] = set()
        for message in failed:
            error, partition = message.error(), message.partition()
            assert error is not None
            if error.code() == KafkaError._AUTO_OFFSET_RESET and partition in self._positions:  # noqa: SLF001
                lost.add(partition)
            elif error.code() in _REFUSED:
                # Of the group it is the only consumer that hears: a question for offsets runs out of time.
                as_whom = f"{self._topic} as group {self._group}"
                raise Unavailable(f"reading {as_whom}: {error.name()}: {error.str()}")
            elif not self._is_away:
                self._is_away = True
                _log.warning("changelog %s: %s; librdkafka goes on trying", self._topic, error.str())
        return lost
