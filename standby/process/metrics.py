"""A container's metrics of its replicas and its control loop. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from standby.control.state import ControlState, RegistrationState, is_in_sync
from standby.shared.metric import (
    LAGS,
    REPLICA_LABELS,
    LabelledReplicas,
    Metric,
    MetricKind,
    Samples,
    Values,
    per_replica,
    seconds,
    single,
)
from standby.shared.model import Phase, ReplicaStatus, Role


def _phases(replicas: LabelledReplicas) -> Values:
    for labels, status in replicas:
        for phase in Phase:
            yield (*labels, phase.value), status.phase is phase


def _in_sync(state: ControlState) -> Values:
    for labels, status in _replicas(state):
        value = is_in_sync(status, state.lag_bounds_ms.get(status.replica.task.job))
        if value is not None:
            yield labels, value


#: Metrics of each replica, besides its lags.
OF_REPLICA: Final = (
    per_replica(
        "standfast_replica_applied_offset",
        "Changelog offset after the last record in the local store.",
        lambda each: each.applied,
    ),
    per_replica("standfast_replica_end_offset", "The changelog's end, as last seen.", lambda each: each.end),
    per_replica(
        "standfast_replica_epoch", "The task's epoch that the replica is at.", lambda each: each.epoch
    ),
    per_replica(
        "standfast_replica_phase_since_timestamp_seconds",
        "Unix time at which the replica entered its phase.",
        lambda each: seconds(each.since_ms),
    ),
    per_replica(
        "standfast_replica_start_duration_seconds",
        "What a promotion would wait for its first batch, as measured last; absent while not known. Standbys only.",
        lambda each: seconds(each.start_ms),
    ),
    per_replica(
        "standfast_replica_promotion_restored_records",
        "Changelog offsets that the replica's promotion had to replay after its fence; actives only.",
        lambda each: each.restored_records,
    ),
    per_replica(
        "standfast_input_lag_records",
        "Input offsets that are not committed yet, of all inputs together; actives only.",
        lambda each: each.input_lag,
    ),
    per_replica(
        "standfast_input_lag_seconds",
        "For how long the replica has been behind the end of its input; actives only.",
        lambda each: seconds(each.input_lag_ms),
    ),
    per_replica(
        "standfast_input_committed_offset",
        "Committed input offset, of several inputs their sum: the next record to process; actives only.",
        lambda each: each.input_committed,
    ),
    per_replica(
        "standfast_input_failures",
        "How often the job's code failed at the present committed offset, on whichever replica; actives only.",
        lambda each: None if each.input_committed is None else (each.failures.count if each.failures else 0),
    ),
    per_replica(
        "standfast_records_given_up_total",
        "Input left out by task.on.error (records) and task.input.lost (offsets) since the replica became active.",
        lambda each: each.skipped if each.role is Role.ACTIVE else None,
        MetricKind.COUNTER,
    ),
    per_replica(
        "standfast_records_dead_lettered_total",
        "Input records written to task.dead.letter since the replica became active; they are given up, too.",
        lambda each: each.dead_lettered if each.role is Role.ACTIVE else None,
        MetricKind.COUNTER,
    ),
    Metric(
        "standfast_replica_phase",
        "1 for the phase that the replica is in, 0 for the others.",
        (*REPLICA_LABELS, "phase"),
        _phases,
    ),
)

#: Metrics of the control loop.
OF_CONTROL: Final[tuple[Metric[ControlState], ...]] = (
    Metric(
        "standfast_replica_in_sync",
        "Whether the replica is within its job's lag; absent while that is not known.",
        REPLICA_LABELS,
        _in_sync,
    ),
    single(
        "standfast_refused_orders_total",
        "Orders refused: of an older leader, for a former incarnation, or while closing.",
        lambda state: state.refused,
        MetricKind.COUNTER,
    ),
    single(
        "standfast_streams_total",
        "Streams to a leader that were opened.",
        lambda state: state.streams,
        MetricKind.COUNTER,
    ),
    single(
        "standfast_is_led", "Whether a leader is known and its stream stands.", lambda state: state.is_led
    ),
    single(
        "standfast_is_registered",
        "Whether the container's znode exists.",
        lambda state: state.registration is RegistrationState.DONE,
    ),
    single(
        "standfast_is_zookeeper_connected", "Whether ZooKeeper answers.", lambda state: state.is_session_up
    ),
    single(
        "standfast_is_warm",
        "Whether a promotion would find its pipeline warm.",
        lambda state: state.is_warm,
    ),
    single(
        "standfast_obeyed_controller_epoch",
        "Highest controller epoch obeyed.",
        lambda state: state.epoch,
    ),
)


def container_metrics(state: ControlState) -> Iterator[Samples]:
    """Yield the current metrics of the container's replicas and of its control loop."""
    replicas = _replicas(state)
    yield from (each.of(replicas) for each in (*LAGS, *OF_REPLICA))
    yield from (each.of(state) for each in OF_CONTROL)


def _replicas(state: ControlState) -> LabelledReplicas:
    return [(_labels(state.statuses[each]), state.statuses[each]) for each in sorted(state.statuses)]


def _labels(status: ReplicaStatus) -> tuple[str, ...]:
    replica = status.replica
    task = replica.task
    return (task.job, task.stage, str(task.partition), str(replica.copy), status.role.value)
