"""What a container tells Prometheus: names, help texts, and values from the control loop's state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from standby.control.state import ControlState, Registration, is_in_sync
from standby.shared.metric import REPLICA_LABELS, Kind, Metric
from standby.shared.model import Phase, ReplicaStatus, Role

_Value = Callable[[ReplicaStatus], "float | None"]


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


#: One gauge per row; a value that is not known now is left out rather than shown as 0.
_OF_REPLICA: Final[Mapping[str, tuple[str, _Value]]] = {
    "standfast_replica_lag_records": (
        "Changelog offsets that are not applied to the local store yet.",
        lambda each: each.lag_records,
    ),
    "standfast_replica_lag_seconds": (
        "For how long the replica has been behind the changelog's end.",
        lambda each: _seconds(each.lag_ms),
    ),
    "standfast_replica_lag_bytes": (
        "About how many bytes of keys and values are not applied to the local store yet.",
        lambda each: each.lag_bytes,
    ),
    "standfast_replica_applied_offset": (
        "Changelog offset after the last record in the local store.",
        lambda each: each.applied,
    ),
    "standfast_replica_end_offset": ("The changelog's end, as last seen.", lambda each: each.end),
    "standfast_replica_epoch": ("The task's epoch that the replica is at.", lambda each: each.epoch),
    "standfast_replica_phase_since_seconds": (
        "Unix time at which the replica entered its phase.",
        lambda each: _seconds(each.since_ms),
    ),
    "standfast_replica_start_seconds": (
        "What a promotion would wait for its first batch, as measured last; absent while not known. Standbys only.",
        lambda each: _seconds(each.start_ms),
    ),
    "standfast_replica_promotion_restored_records": (
        "Changelog offsets that the replica's promotion had to replay after its fence; actives only.",
        lambda each: each.restored_records,
    ),
    "standfast_input_lag_records": (
        "Input offsets that are not committed yet, of all inputs together; actives only.",
        lambda each: each.input_lag,
    ),
    "standfast_input_lag_seconds": (
        "For how long the replica has been behind the end of its input; actives only.",
        lambda each: _seconds(each.input_lag_ms),
    ),
    "standfast_input_committed_offset": (
        "Committed input offset, of several inputs their sum: the next record to process; actives only.",
        lambda each: each.input_committed,
    ),
    "standfast_input_failures": (
        "How often the job's code failed at the present committed offset, on whichever replica; actives only.",
        lambda each: None if each.input_committed is None else (each.failures.count if each.failures else 0),
    ),
}


def of_container(state: ControlState) -> Iterator[Metric]:
    """Yield every metric of the container but those of its process."""
    statuses = [state.statuses[each] for each in sorted(state.statuses)]
    for name, (text, value) in _OF_REPLICA.items():
        known = [(each, value(each)) for each in statuses]
        yield Metric(
            name,
            text,
            Kind.GAUGE,
            REPLICA_LABELS,
            tuple((_labels(each), float(number)) for each, number in known if number is not None),
        )
    yield Metric(
        "standfast_records_given_up_total",
        "Input left out by task.on.error (records) and task.input.lost (offsets) since the replica became active.",
        Kind.COUNTER,
        REPLICA_LABELS,
        tuple((_labels(each), float(each.skipped)) for each in statuses if each.role is Role.ACTIVE),
    )
    yield Metric(
        "standfast_records_dead_lettered_total",
        "Input records written to task.dead.letter since the replica became active; they are given up, too.",
        Kind.COUNTER,
        REPLICA_LABELS,
        tuple((_labels(each), float(each.dead_lettered)) for each in statuses if each.role is Role.ACTIVE),
    )
    yield Metric(
        "standfast_replica_phase",
        "1 for the phase that the replica is in, 0 for the others.",
        Kind.GAUGE,
        (*REPLICA_LABELS, "phase"),
        tuple(
            ((*_labels(each), phase.value), float(each.phase is phase))
            for each in statuses
            for phase in Phase
        ),
    )
    in_sync = [(each, is_in_sync(each, state.lag_bounds_ms.get(each.replica.task.job))) for each in statuses]
    yield Metric(
        "standfast_replica_in_sync",
        "Whether the replica is within its job's lag; absent while that is not known.",
        Kind.GAUGE,
        REPLICA_LABELS,
        tuple((_labels(each), float(value)) for each, value in in_sync if value is not None),
    )
    yield from _of_control(state)


def _labels(status: ReplicaStatus) -> tuple[str, ...]:
    replica = status.replica
    task = replica.task
    return (task.job, task.stage, str(task.partition), str(replica.copy), status.role.value)


def _of_control(state: ControlState) -> Iterator[Metric]:
    def one(name: str, text: str, value: float, kind: Kind = Kind.GAUGE) -> Metric:
        return Metric(name, text, kind, (), (((), float(value)),))

    yield one(
        "standfast_refused_orders_total",
        "Orders refused: of an older leader, for a former incarnation, or while closing.",
        state.refused,
        Kind.COUNTER,
    )
    yield one("standfast_streams_total", "Streams to a leader that were opened.", state.streams, Kind.COUNTER)
    yield one("standfast_is_led", "Whether a leader is known and its stream stands.", state.is_led)
    yield one(
        "standfast_is_registered",
        "Whether the container's znode exists.",
        state.registration is Registration.DONE,
    )
    yield one("standfast_is_zookeeper_connected", "Whether ZooKeeper answers.", state.is_session_up)
    yield one("standfast_is_warm", "Whether a promotion would find its pipeline warm.", state.is_warm)
    yield one("standfast_obeyed_controller_epoch", "Highest controller epoch obeyed.", state.epoch)
