"""From a job's configuration to what the planner and the processes of its cluster need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from appmaster import groupers
from appmaster.planning.state.job import OnExhausted, Policy
from appmaster.planning.state.model import JobSpec
from standby.cluster import ClusterConfig
from standby.config import JobConfig
from standby.config.cluster import ClusterKeys
from standby.config.planner import PlannerKeys

#: How long a broker may take to end the transaction of a dead one once its time is over: its interval for looking.
_CLEAN_UP_MS: Final = 15_000


def spec(config: JobConfig, tasks: int) -> JobSpec:
    """Return what is asked of the job's model, for an input of ``tasks`` partitions.

    Raises `BadConfiguration` when the grouper cannot be had.
    """
    return JobSpec(
        config.stage,
        tasks,
        config.container_count,
        config.standbys,
        config.mixed,
        groupers.resolve(config.grouper),
    )


def policy(config: JobConfig) -> Policy:
    """Return what the planner needs to know of a job: `PlannerKeys` as they are, others as it understands them."""
    return dataclasses.replace(
        Policy(**_values(PlannerKeys, config)),
        restarts=config.failover == "restart",
        on_exhausted=OnExhausted(config.retry_exhausted),
        fails_on_error=config.on_error == "fail",
        # Below that, whoever waits for the end of a dead one's transaction would be taken for stuck.
        progress_timeout_ms=max(config.progress_timeout_ms, config.transaction_timeout_ms + _CLEAN_UP_MS),
        takeover_grace_ms=max(5_000, config.heartbeat_timeout_ms),
    )


def cluster(
    config: JobConfig, cell: int, racks: Mapping[str, str] | None = None, attempts: int = 1
) -> ClusterConfig:
    """Return the cluster's settings as a job that starts it gives them.

    ``racks`` are YARN's, by host; so often it makes an attempt of the cell's application.
    """
    return ClusterConfig(
        config.cluster,
        config.zookeeper,
        cell,
        attempts,
        zookeeper_tls=config.zookeeper_tls,
        kafka_bootstrap=config.kafka_bootstrap,
        kafka=dict(config.kafka),
        racks=dict(racks or {}),
        **_values(ClusterKeys, config),
    )


def _values(group: type[PlannerKeys | ClusterKeys], config: JobConfig) -> dict[str, Any]:
    """Return field → value of each key of a group, as the job has it."""
    return {each.name: getattr(config, each.name) for each in dataclasses.fields(group)}
