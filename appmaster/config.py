"""From a job's configuration to what the planner and the containers need. Pure."""

from __future__ import annotations

from appmaster.planning.view import Policy
from standby.cluster import ClusterConfig
from standby.config import JobConfig


def policy(config: JobConfig) -> Policy:
    """Return what the planner needs to know of a job."""
    return Policy(
        heartbeat_timeout_ms=config.heartbeat_timeout_ms,
        suspect_grace_ms=config.suspect_grace_ms,
        restore_delay_ms=config.restore_delay_ms,
        takeover_grace_ms=max(5_000, config.heartbeat_timeout_ms),
        request_timeout_ms=config.request_timeout_ms,
        host_affinity=config.host_affinity,
        retry_count=config.retry_count,
        retry_window_ms=config.retry_window_ms,
        lag_time_ms=config.lag_time_ms,
    )


def cluster(config: JobConfig, cell: int) -> ClusterConfig:
    """Return the cluster's settings as a job that starts it gives them."""
    return ClusterConfig(
        name=config.cluster,
        zookeeper=config.zookeeper,
        cell=cell,
        zookeeper_session_ms=config.zookeeper_session_ms,
        kafka_bootstrap=config.kafka_bootstrap,
        kafka=dict(config.kafka),
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        heartbeat_timeout_ms=config.heartbeat_timeout_ms,
        suspect_grace_ms=config.suspect_grace_ms,
        orphan_timeout_ms=config.orphan_timeout_ms,
        state_dirs=(config.state_dir,),
        http_port=config.http_port,
    )
