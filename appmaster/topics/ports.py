"""The requests to Kafka's brokers about topics; they raise `Unavailable` if the brokers do not answer, or refuse."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic as the brokers describe it."""

    partitions: int
    replicas: int
    """Of the partition with the fewest."""
    settings: Mapping[str, str]


class TopicAdmin(Protocol):
    """Creates and describes topics; raises `Unavailable` if the brokers do not answer, or refuse."""

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False if it exists already."""
        ...

    def shape(self, name: str) -> TopicShape:
        """Return the partitions and settings of an existing topic."""
        ...

    def alter(self, name: str, config: Mapping[str, str]) -> None:
        """Change settings of a topic and keep the others."""
        ...


class InputTopics(Protocol):
    """A job's brokers, for a leader that checks its topics."""

    def ids(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the id of each topic that exists."""
        ...

    def count(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist."""
        ...

    def shape(self, name: str) -> TopicShape:
        """Return the partitions and settings of an existing topic."""
        ...

    def grow(self, name: str, partitions: int) -> None:
        """Enlarge a topic to this number of partitions, if it has fewer."""
        ...

    def commit_first(self, group: str, topic: str, partitions: Sequence[int], metadata: str) -> None:
        """Commit the first offset, with ``metadata``, of partitions for which the group has committed none."""
        ...
