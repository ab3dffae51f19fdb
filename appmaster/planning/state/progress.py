"""The progress of replicas, and of failovers and planned hand-overs, from containers' reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from appmaster.planning.state.view import ClusterView, Container, Failover, ReplicaProgress
from standby.replica.lifecycle import ENDED, TAKING_OVER
from standby.shared.model import Phase, ReplicaId, ReplicaStatus, Role, StartStep, TaskId

#: The phases whose times are kept for a failover.
_MILESTONES = (Phase.FENCING, Phase.DRAINING, Phase.CLAIMING, Phase.ACTIVE)


@dataclass(frozen=True, slots=True)
class FailoverProgress:
    """The progress of a failover or hand-over."""

    phases: Mapping[tuple[TaskId, Phase], int] = field(default_factory=dict)
    """As `Failover.phases`."""
    times: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    """Number of each task that the new active serves → milestone → Unix milliseconds."""
    is_over: bool = False
    is_finished: bool = False
    """Over because every task is active, and each has committed input or has none to commit; otherwise it is over
    because the records name another copy by now."""


def progress(view: ClusterView, container: Container, failover: Failover) -> FailoverProgress | None:
    """Return a failover's progress according to ``container``'s report; None while its records are being written."""
    phases = dict(failover.phases)
    times: dict[str, dict[str, int | None]] = {}
    done = True
    for task in failover.tasks:
        if task in view.writing or task not in view.records:
            return None  # its record is still being written, and the present one is from before the decision
        record = view.records[task].record
        if record.active != failover.to_copy or record.placed.get(failover.to_copy) != container.id:
            return FailoverProgress(is_over=True)
        status = container.statuses.get(ReplicaId(task, failover.to_copy))
        if status is None or status.role is not Role.ACTIVE or status.epoch != record.epoch:
            done = False
            continue
        for phase, at_ms in {status.phase: status.since_ms, **status.entered}.items():
            if phase in _MILESTONES:
                phases.setdefault((task, phase), at_ms)
        # A delivered batch waits to be committed, although the end of the input may have been read before it came.
        waiting = (
            status.input_end is None
            or status.input_committed is None
            or status.input_end > status.input_committed
            or StartStep.DELIVERED.value in status.start_steps
        )
        if status.phase is not Phase.ACTIVE or (status.first_commit_ms is None and waiting):
            done = False
        times[str(task.partition)] = {
            "detected_ms": view.wall(failover.detected_ms),
            "recorded_ms": view.wall(failover.recorded_ms),
            "ordered_ms": view.wall(failover.ordered_ms),
            "fenced_ms": phases.get((task, Phase.DRAINING), phases.get((task, Phase.CLAIMING))),
            "drained_ms": phases.get((task, Phase.CLAIMING)),
            "active_ms": phases.get((task, Phase.ACTIVE)),
            **{
                f"{step.value}_ms": status.start_steps[step.value]
                for step in StartStep
                if step.value in status.start_steps
            },
            "first_commit_ms": status.first_commit_ms,
        }
    return FailoverProgress(phases, times, is_over=done, is_finished=done)


def standing_of(
    before: Mapping[ReplicaId, ReplicaProgress],
    reported: Mapping[ReplicaId, ReplicaStatus],
    statuses: Iterable[ReplicaStatus],
    at_ms: int,
) -> dict[ReplicaId, ReplicaProgress]:
    """Return the standing of each replica, with the time since when it has been the same.

    ``before`` and ``reported`` are standing and statuses according to the last report.
    """
    found = {}
    for each in statuses:
        now = _stands(each, at_ms)
        if now is None:
            continue
        old = before.get(each.replica)
        if _is_without_state(each):
            was_lost = old is not None and old.has_lost_state and old.epoch == now.epoch
            now = replace(now, has_lost_state=was_lost or _had_state(reported.get(each.replica), each.epoch))
        is_same = old is not None and replace(old, since_ms=at_ms) == now
        found[each.replica] = old if old is not None and is_same else now
    return found


def _is_without_state(status: ReplicaStatus) -> bool:
    """Return whether a replica is to be active, and has no state to become active with."""
    return status.role is Role.ACTIVE and status.phase in (Phase.OPENING, Phase.RESTORING)


def _had_state(status: ReplicaStatus | None, epoch: int) -> bool:
    """Return whether a replica was active under this epoch, or about to become it."""
    return (
        status is not None
        and status.role is Role.ACTIVE
        and status.epoch == epoch
        and status.phase in (*TAKING_OVER, Phase.ACTIVE)
    )


def _stands(status: ReplicaStatus, at_ms: int) -> ReplicaProgress | None:
    """Return a replica's standing; None if it works, has ended, or could not take over."""
    if status.role is Role.STANDBY:
        could = status.phase is Phase.TAILING and status.lag_ms is not None
        return ReplicaProgress(True, 0, (), at_ms) if could else None
    works = status.phase is Phase.ACTIVE and not status.is_cut_off
    if works or status.phase in ENDED:
        return None
    reached = () if _is_without_state(status) else (status.applied, status.input_committed)
    return ReplicaProgress(False, status.epoch, reached, at_ms)
