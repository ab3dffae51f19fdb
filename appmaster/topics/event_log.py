"""The topic of a cluster's event log."""

from __future__ import annotations

from typing import Final

from appmaster.topics.ports import TopicAdmin
from standby.shared import naming

#: As many replicas as the brokers make by default.
_AS_BROKERS: Final = -1

#: A week of events.
_SETTINGS: Final = {"retention.ms": "604800000"}


def make(topics: TopicAdmin, cluster: str, replication: int = _AS_BROKERS) -> None:
    """Create the topic unless it exists, by default with as many replicas as the brokers give a topic."""
    # One partition: its order is the cluster's history.
    topics.create(naming.event_topic(cluster), 1, replication, _SETTINGS)
