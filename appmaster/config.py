"""From a job's configuration to the settings of the planner and of the cluster's processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from appmaster import groupers
from appmaster.planning.state.job import OnExhausted, PlannerPolicy
from appmaster.planning.state.model import JobSpec
from locality.fit import Demand
from standby.cluster import ClusterConfig
from standby.config import JobConfig
from standby.config.cluster import ClusterKeys
from standby.config.planner import PlannerKeys

#: How long a broker may take to abort the transaction of a dead producer after its time-out: its polling interval.
_CLEAN_UP_MS: Final = 15_000


def job_spec(config: JobConfig, tasks: int) -> JobSpec:
    """Return what the job asks of its model, for an input of ``tasks`` partitions.

    Raises `BadConfiguration` if the grouper is not available.
    """
    return JobSpec(
        config.stage,
        tasks,
        config.container_count,
        config.standbys,
        config.mixed,
        groupers.resolve(config.grouper),
    )


def planner_policy(config: JobConfig) -> PlannerPolicy:
    """Return a job's settings for the planner: `PlannerKeys` unchanged, others in the planner's form."""
    return dataclasses.replace(
        PlannerPolicy(**_values(PlannerKeys, config)),
        restarts=config.failover == "restart",
        has_warm_standbys=config.standby_warm,
        on_exhausted=OnExhausted(config.retry_exhausted),
        fails_on_error=config.on_error == "fail",
        demand=job_demand(config),
        # With less, a replica that waits for the end of a dead producer's transaction would be considered stuck.
        progress_timeout_ms=max(config.progress_timeout_ms, config.transaction_timeout_ms + _CLEAN_UP_MS),
        takeover_grace_ms=max(5_000, config.heartbeat_timeout_ms),
    )


def job_demand(config: JobConfig) -> Demand:
    """Return what a job asks of each process of a pool, without its tasks: what it asks YARN for."""
    return Demand(config.job_name, config.container_label, config.memory_mb, config.vcores)


def cluster_config(
    config: JobConfig, cell: int, racks: Mapping[str, str] | None = None, attempts: int = 1
) -> ClusterConfig:
    """Return the cluster's settings according to the job that starts it.

    ``racks`` are YARN's, by host; ``attempts`` is how many attempts YARN makes of the cell's application.
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
    """Return field → value for each key of a group, according to the job."""
    return {each.name: getattr(config, each.name) for each in dataclasses.fields(group)}
