"""A job's whole configuration: all groups of keys, and values derived from several of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from standby.config.cluster import ClusterKeys
from standby.config.job import CodeKeys, HotStandbyKeys, JobKeys
from standby.config.keys import ConfigKey
from standby.config.planner import PlannerKeys
from standby.config.servers import ServerKeys
from standby.config.state import StateKeys
from standby.config.task import TaskKeys
from standby.config.yarn import YarnKeys
from standby.ensemble import Tls


@dataclass(frozen=True, kw_only=True)
class JobConfig(
    JobKeys,
    TaskKeys,
    StateKeys,
    HotStandbyKeys,
    PlannerKeys,
    YarnKeys,
    CodeKeys,
    ClusterKeys,
    ServerKeys,
):
    """A job's configuration, validated; build it with `standby.config.parse`."""

    # The representation omits their values, because some are passwords.
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every other `kafka.*` key, without the prefix: settings of each Kafka client."""
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every `spark.*` key with its prefix: settings of the Spark session."""

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self.cluster_name or self.job_name

    @property
    def zookeeper_tls(self) -> Tls | None:
        """TLS settings for ZooKeeper's servers; None: plain text."""
        found = Tls(self.zookeeper_ca, self.zookeeper_certificate, self.zookeeper_key)
        return found if found.ca else None

    @property
    def standbys(self) -> int:
        """Number of standby copies of each active."""
        return self.replication_count if self.standby_enabled else 0

    @property
    def needs_spark(self) -> bool:
        """Whether its containers need Spark, and Java: only for a transform."""
        return self.feed == "spark" and bool(self.transform)

    @property
    def dead_letter_topic(self) -> str:
        """The topic to which records are written that the job's code fails on; empty: they are not."""
        return self.dead_letter if self.on_error == "dead-letter" else ""

    @property
    def written_topics(self) -> tuple[str, ...]:
        """The topics that its records are written to, each once: outputs, and dead letters if there are any."""
        topics = (*self.outputs, self.dead_letter_topic)
        return tuple(dict.fromkeys(each for each in topics if each))

    @property
    def stage(self) -> str:
        """The name of the job's only stage."""
        return "main"


@cache
def keys() -> tuple[tuple[ConfigKey, dataclasses.Field[Any]], ...]:
    """Return every documented key with its dataclass field, in the order of declaration."""
    return tuple(
        (each.metadata["key"], each)
        for group in JobConfig.__bases__
        for each in dataclasses.fields(group)
        if "key" in each.metadata
    )


def names(scope: str) -> tuple[str, ...]:
    """Return the sorted names of the keys with this ``scope`` (`standby.config.keys.Scope`)."""
    return tuple(sorted(key.name for key, _ in keys() if key.scope == scope))
