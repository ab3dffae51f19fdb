"""What a container's report tells: phases as news, and the story of a failover with its times. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from appmaster.planning.changes import put, with_news, without
from appmaster.planning.view import ClusterView, Container, News
from standby.model import Phase, ReplicaId, ReplicaStatus, Role

#: Phases worth an event when a replica enters them, by the name of that event.
_TOLD = {
    Phase.TAILING: "replica_restored",
    Phase.ACTIVE: "replica_active",
    Phase.FENCED: "replica_fenced",
    Phase.FAILED: "replica_failed",
}

#: The phases that a failover's story has times for.
_MILESTONES = (Phase.FENCING, Phase.DRAINING, Phase.CLAIMING, Phase.ACTIVE)


def reported_phases(
    view: ClusterView, container: Container, before: Mapping[ReplicaId, ReplicaStatus]
) -> ClusterView:
    """Return the view with news of every replica of ``container`` that entered a phase worth telling."""
    news: list[News] = []
    for each in container.statuses.values():
        kind = _TOLD.get(each.phase)
        old = before.get(each.replica)
        if kind is None or (old is not None and (old.phase, old.epoch) == (each.phase, each.epoch)):
            continue
        news.append(
            News(
                kind,
                job=each.replica.task.job,
                task=each.replica.task,
                copy=each.replica.copy,
                container=container.id,
                host=container.host,
                task_epoch=each.epoch,
                reason=each.detail or None,
                data={"since_ms": each.since_ms, "applied": each.applied},
            )
        )
    return with_news(view, *news) if news else view


def followed_failover(view: ClusterView, container: Container) -> ClusterView:
    """Return the view with the failover to ``container`` told as far as it has come.

    It is finished when every task of the processor is active and each has committed input, or has no
    input to commit.
    """
    slot = container.slot
    if slot is None or not container.is_bound:
        return view
    failover = view.failovers.get(slot.processor)
    if failover is None or failover.to != container.id:
        return view
    phases = dict(failover.phases)
    tasks = view.job_tasks(slot.processor)
    done = True
    times: dict[str, dict[str, int | None]] = {}
    for task in tasks:
        status = container.statuses.get(ReplicaId(task, slot.copy))
        recorded = view.records[task].record
        if status is None or status.role is not Role.ACTIVE or status.epoch != recorded.epoch:
            done = False
            continue
        for phase, at_ms in {status.phase: status.since_ms, **status.entered}.items():
            if phase in _MILESTONES:
                phases.setdefault((task, phase), at_ms)
        waiting = (
            status.input_end is None
            or status.input_committed is None
            or status.input_end > status.input_committed
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
            "first_commit_ms": status.first_commit_ms,
        }
    if not done:
        updated = replace(failover, phases=phases)
        return replace(view, failovers=put(view.failovers, slot.processor, updated))
    view = replace(view, failovers=without(view.failovers, slot.processor))
    return with_news(
        view,
        News(
            "failover_finished",
            job=slot.processor.job,
            copy=slot.copy,
            container=container.id,
            host=container.host,
            reason=failover.reason,
            data={"tasks": times, "from": failover.lost, "processor": slot.processor.number},
        ),
    )
