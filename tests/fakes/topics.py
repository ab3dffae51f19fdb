"""Brokers in memory that can create and check topics."""

from __future__ import annotations

from collections.abc import Mapping

from appmaster.topics.ports import TopicShape


class MemoryTopics:
    """An `appmaster.topics.ports.TopicAdmin` of some brokers."""

    def __init__(self, default_replication: int = 1) -> None:
        self.topics: dict[str, TopicShape] = {}
        self._default_replication = default_replication

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        if name in self.topics:
            return False
        replicas = self._default_replication if replication < 0 else replication
        defaults = {
            "cleanup.policy": "delete",
            "delete.retention.ms": "86400000",
            "max.message.bytes": "1048588",
            "min.insync.replicas": "1",
        }
        self.topics[name] = TopicShape(partitions, replicas, {**defaults, **config})
        return True

    def count(self, name: str) -> int:
        return self.topics[name].partitions if name in self.topics else 0

    def grow(self, name: str, partitions: int) -> None:
        before = self.topics[name]
        self.topics[name] = TopicShape(partitions, before.replicas, before.settings)

    def delete(self, names: list[str]) -> None:
        for each in names:
            self.topics.pop(each, None)

    def delete_group(self, group: str) -> None:
        pass  # nothing is committed

    def shape(self, name: str) -> TopicShape:
        return self.topics[name]

    def alter(self, name: str, config: Mapping[str, str]) -> None:
        before = self.topics[name]
        self.topics[name] = TopicShape(before.partitions, before.replicas, {**before.settings, **config})
