"""Reads the changelog partitions of a container's replicas through one librdkafka consumer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import ClientKind, ClientNames
from standby.adapters.kafka.codes import DAMAGED, OUT_OF_RANGE, REFUSED, translate
from standby.config import JobConfig, kafka_settings
from standby.kernel.ports import ChangelogRecord, Chunk
from standby.shared.wire import JobDefinition

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Fault:
    """An error that was reported for a partition."""

    is_out_of_range: bool = False
    damage: str = ""

    @property
    def is_passing(self) -> bool:
        return not self.is_out_of_range and not self.damage


class KafkaChangelog:
    """A consumer with an explicit assignment, one topic, read committed."""

    def __init__(
        self,
        config: JobConfig,
        definition: JobDefinition,
        kind: ClientKind[Consumer] = clients.CHANGELOG,
    ) -> None:
        self._topic, self._group = definition.changelog, definition.group
        names = ClientNames(definition.group)
        self._consumer = kind.make(kafka_settings(config), kind.of_job(config, names))
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._is_away = False

    def add(self, partition: int, offset: int) -> None:
        """Start reading a partition at ``offset``."""
        self.remove(partition)
        self._consumer.incremental_assign([TopicPartition(self._topic, partition, offset)])
        self._positions[partition] = offset

    def remove(self, partition: int) -> None:
        """Stop reading a partition."""
        if self._positions.pop(partition, None) is not None:
            # librdkafka remembers a pause even after the assignment has ended.
            self.resume(partition)
            self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])

    def pause(self, partition: int) -> None:
        """Pause a partition."""
        if partition in self._positions and partition not in self._paused:
            self._paused.add(partition)
            self._consumer.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        """Resume a paused partition where it was."""
        if partition in self._paused:
            self._paused.discard(partition)
            self._consumer.resume([TopicPartition(self._topic, partition)])

    def read(self, limit: int, timeout_seconds: float) -> Mapping[int, Chunk]:
        """Return available records, at most ``limit``, after at most the timeout."""
        try:
            messages = self._consumer.consume(limit, timeout_seconds)
            # Read after the records: the position includes markers and aborted records.
            asked = [TopicPartition(self._topic, each) for each in self._positions]
            moved = {each.partition: each.offset for each in self._consumer.position(asked)}
        except KafkaException as error:
            raise translate(error.args[0], f"reading {self._topic}") from error
        failed = [each for each in messages if each.error() is not None]
        faults = self._faults(failed) if failed else {}
        if failed:
            # librdkafka skips what it could not read, so records of that partition are discarded.
            messages = [each for each in messages if each.error() is None and each.partition() not in faults]
        changes = self._changes(messages)
        if changes:
            self._is_away = False
        result: dict[int, Chunk] = {}
        for partition, before in self._positions.items():
            fault = faults.get(partition)
            if fault is not None:
                if not fault.is_passing:
                    result[partition] = Chunk((), before, fault.is_out_of_range, fault.damage)
                continue
            # A partition from which nothing was read yet has only its assigned position.
            position = max(before, moved[partition])
            if position != before:
                result[partition] = Chunk(changes.get(partition, ()), position)
        self._positions.update((each, chunk.position) for each, chunk in result.items())
        for partition in faults:
            self._begin_again(partition)
        return result

    def close(self) -> None:
        """End the consumer."""
        clients.close_consumer(self._consumer)

    def _changes(self, messages: Sequence[Message]) -> Mapping[int, Sequence[ChangelogRecord]]:
        """Return the records by their partition."""
        partitions = {each.partition() for each in messages}
        if len(partitions) == 1 and partitions <= self._positions.keys():
            # A restore usually reads only one; grouping records individually would cost it 5 to 10 % more CPU time.
            (only,) = self._positions.keys() & partitions
            return {only: [(key, each.value()) for each in messages if (key := each.key()) is not None]}
        changes: dict[int, list[ChangelogRecord]] = {}
        for message in messages:
            partition, key = message.partition(), message.key()
            if partition in self._positions and key is not None:
                changes.setdefault(partition, []).append((key, message.value()))
        return changes

    def _faults(self, failed: Sequence[Message]) -> Mapping[int, _Fault]:
        """Return the errors of partitions. Raises `Unavailable` when reading is not permitted."""
        found: dict[int, _Fault] = {}
        for message in failed:
            error, partition = message.error(), message.partition()
            assert error is not None
            if error.code() in REFUSED:
                # This is the only consumer of the group that gets this error: requests for offsets time out instead.
                raise translate(error, f"reading {self._topic} as group {self._group}")
            fault = _Fault()
            if error.code() in OUT_OF_RANGE:
                fault = _Fault(is_out_of_range=True)
            elif error.code() in DAMAGED:
                offset = message.offset()
                where = f"at offset {offset}: " if offset is not None and offset >= 0 else ""
                fault = _Fault(damage=f"{where}{error.name()}: {error.str()}")
            elif not self._is_away:
                self._is_away = True
                _log.warning("changelog %s: %s; librdkafka keeps retrying", self._topic, error.str())
            if partition in self._positions and (partition not in found or found[partition].is_passing):
                found[partition] = fault
        return found

    def _begin_again(self, partition: int) -> None:
        """Discard what was fetched of a partition, and read it again from its position."""
        self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])
        self._consumer.incremental_assign(
            [TopicPartition(self._topic, partition, self._positions[partition])]
        )
        if partition in self._paused:
            self._consumer.pause([TopicPartition(self._topic, partition)])
