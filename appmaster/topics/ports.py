"""What is asked of Kafka's brokers about topics; raises `Unavailable` where they do not answer, or refuse."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic as the brokers have it."""

    partitions: int
    replicas: int
    """Of the partition that has the fewest."""
    settings: Mapping[str, str]


class TopicAdmin(Protocol):
    """What is asked of the brokers; raises `Unavailable` where they do not answer, or refuse."""

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False when it exists already."""
        ...

    def shape(self, name: str) -> TopicShape:
        """Return how an existing topic is."""
        ...

    def alter(self, name: str, config: Mapping[str, str]) -> None:
        """Change settings of a topic; the others stay."""
        ...


class InputTopics(Protocol):
    """A job's brokers, as a leader looks at its topics."""

    def ids(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the id of each topic that exists."""
        ...

    def count(self, name: str) -> int:
        """Return how many partitions a topic has; 0 when it does not exist."""
        ...

    def shape(self, name: str) -> TopicShape:
        """Return how an existing topic is."""
        ...

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic so many partitions; nothing when it has them already."""
        ...

    def commit_first(self, group: str, topic: str, partitions: Sequence[int]) -> None:
        """Commit the first offset of partitions for which the group has committed none."""
        ...
