"""From a job's configuration to what the planner and the containers need. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from appmaster import groupers
from appmaster.planning.model import JobSpec
from appmaster.planning.view import OnExhausted, Policy
from standby.cluster import ClusterConfig
from standby.config import JobConfig

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
    """Return what the planner needs to know of a job."""
    return Policy(
        restarts=config.failover == "restart",
        samehost_timeout_ms=config.samehost_timeout_ms,
        prepare_timeout_ms=config.prepare_timeout_ms,
        spread=config.spread,
        locality_expiry_ms=config.locality_expiry_ms,
        on_exhausted=OnExhausted(config.retry_exhausted),
        error_attempts=config.error_attempts,
        fails_on_error=config.on_error == "fail",
        heartbeat_timeout_ms=config.heartbeat_timeout_ms,
        host_timeout_ms=config.host_timeout_ms,
        suspect_grace_ms=config.suspect_grace_ms,
        # Below that, whoever waits for the end of a dead one's transaction would be taken for stuck.
        progress_timeout_ms=max(config.progress_timeout_ms, config.transaction_timeout_ms + _CLEAN_UP_MS),
        restore_delay_ms=config.restore_delay_ms,
        takeover_grace_ms=max(5_000, config.heartbeat_timeout_ms),
        request_timeout_ms=config.request_timeout_ms,
        host_affinity=config.host_affinity,
        retry_count=config.retry_count,
        retry_window_ms=config.retry_window_ms,
        lag_time_ms=config.lag_time_ms,
        restore_paused=config.restore_paused,
    )


def cluster(
    config: JobConfig, cell: int, racks: Mapping[str, str] | None = None, attempts: int = 1
) -> ClusterConfig:
    """Return the cluster's settings as a job that starts it gives them.

    ``racks`` are YARN's, by host; so often it makes an attempt of the cell's application.
    """
    return ClusterConfig(
        name=config.cluster,
        zookeeper=config.zookeeper,
        cell=cell,
        attempts=attempts,
        zookeeper_session_ms=config.zookeeper_session_ms,
        zookeeper_acl=config.zookeeper_acl,
        kafka_bootstrap=config.kafka_bootstrap,
        kafka=dict(config.kafka),
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        heartbeat_timeout_ms=config.heartbeat_timeout_ms,
        suspect_grace_ms=config.suspect_grace_ms,
        orphan_timeout_ms=config.orphan_timeout_ms,
        racks=dict(racks or {}),
        state_dirs=config.state_dirs,
        stray_delay_ms=config.stray_delay_ms,
        http_port=config.http_port,
        http_pages=config.http_pages,
        log_max_bytes=config.log_max_bytes,
        code_sync_seconds=config.code_sync_seconds,
        code_distributor=config.code_distributor,
        code_directory=config.code_directory,
        code_hdfs_directory=config.code_hdfs_directory,
    )
