"""The progress of failovers and planned hand-overs, from containers' reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appmaster.planning.state.view import ClusterView, Container, Failover
from standby.shared.model import Phase, ReplicaId, Role, StartStep, TaskId

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
