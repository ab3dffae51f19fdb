"""What a container's report tells: phases as news, and the story of a failover with its times. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appmaster.planning.actions import Kind, WriteRecords
from appmaster.planning.changes import put, unsettle, with_news, without
from appmaster.planning.orders import has_closed
from appmaster.planning.view import ClusterView, Container, Failover, LostActive, News
from standby.model import Phase, ProcessorId, ReplicaId, ReplicaStatus, Role

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
        data: dict[str, object] = {"since_ms": each.since_ms, "applied": each.applied}
        if each.traceback:
            data["traceback"] = each.traceback
        news.append(_of_replica(kind, container, each, each.detail, data))
    return with_news(view, *news) if news else view


def _of_replica(
    kind: str, container: Container, status: ReplicaStatus, reason: str, data: Mapping[str, object]
) -> News:
    """Return news of a replica in ``container``."""
    return News(
        kind,
        job=status.replica.task.job,
        task=status.replica.task,
        copy=status.replica.copy,
        container=container.id,
        host=container.host,
        task_epoch=status.epoch,
        reason=reason or None,
        data=data,
    )


def with_tracebacks(
    view: ClusterView, container: Container, before: Mapping[ReplicaId, ReplicaStatus]
) -> ClusterView:
    """Return the view in which each job has the last traceback of its code, for its status; none that is got over."""
    for each in container.statuses.values():
        job = view.jobs.get(each.replica.task.job)
        if job is None:
            continue
        last, old = job.last_traceback, before.get(each.replica)
        if each.traceback:
            last = each.traceback
        elif (
            each.phase is Phase.ACTIVE and each.failures is None and old is not None and old.traceback == last
        ):
            last = ""
        if last != job.last_traceback:
            view = replace(view, jobs=put(view.jobs, job.name, replace(job, last_traceback=last)))
    return view


def reported_records(
    view: ClusterView, container: Container, before: Mapping[ReplicaId, ReplicaStatus]
) -> ClusterView:
    """Return the view with news of the input that actives of ``container`` have left out since ``before``.

    A report names the last few of a task. Of the others, how many there were is told with the first one that it names.
    """
    news: list[News] = []
    for each in container.statuses.values():
        old = before.get(each.replica)
        if old is not None and old.epoch != each.epoch:
            old = None
        told = {(one.topic, one.offset) for one in old.given_up} if old is not None else set()
        fresh = [one for one in each.given_up if (one.topic, one.offset) not in told]
        unnamed = 0
        if old is not None:
            unnamed = max(0, each.skipped - old.skipped - sum(one.offsets for one in fresh))
        for one in fresh:
            data: dict[str, object] = {
                "topic": one.topic,
                "partition": each.replica.task.partition,
                "offset": one.offset,
                "offsets": one.offsets,
                "how": one.how.value,
                "error": one.error,
                "given_up_ms": one.at_ms,
            }
            if unnamed:
                data["unnamed"] = unnamed
            news.append(_of_replica("record_given_up", container, each, one.reason, data))
            unnamed = 0
    return with_news(view, *news) if news else view


def stopped_standby(view: ClusterView, before: Container, container: Container) -> ClusterView:
    """Return the view with news of each standby in ``container`` that makes way and has confirmed its stop just now.

    ``before`` is the container before its report (SEP-23, step 5; policy ``restart``).
    """
    news: dict[ProcessorId, News] = {}
    for task, copy in view.assigned.get(container.id, {}).items():
        processor = view.processor_of(task)
        if processor is None or view.records[task].record.displaced != copy:
            continue
        tasks = [each for each in view.job_tasks(processor) if each in view.assigned[container.id]]
        if has_closed(view, container, tasks, copy) and not has_closed(view, before, tasks, copy):
            news[processor] = News(
                "standby_stopped",
                job=task.job,
                copy=copy,
                container=container.id,
                host=container.host,
                reason="its container confirms it: it made way for the active",
                data={"processor": processor.number},
            )
    return with_news(view, *news.values()) if news else view


def changed_active(view: ClusterView, action: WriteRecords, at_ms: int) -> ClusterView:
    """Return the view with the story of a failover or hand-over begun, if the decision changes who is active."""
    tasks = tuple(each.record.task for each in action.changes)
    new = action.changes[0].record
    old = view.records.get(new.task)
    if new.active is None or (old is not None and old.record.epoch == new.epoch):
        return view
    to = new.placed.get(new.active, "")
    missed = view.lost_actives.get(action.processor)
    if missed is None and action.kind is Kind.FAILOVER and old is not None:
        # Nothing was lost: it stands still where it is.
        missed = LostActive(old.record.placed.get(old.record.active or 0, ""), "stuck", at_ms)
    is_planned = action.kind is Kind.HANDOVER
    if to not in view.containers or (missed is None and not is_planned):
        return view
    from_copy = old.record.active if old is not None and old.record.active is not None else new.active
    before = missed.container if missed is not None else ""
    if is_planned and old is not None:
        before = old.record.placed.get(from_copy, "")
    handover = view.handovers.get(action.processor)
    reason = missed.reason if missed is not None and not is_planned else action.reason.split(":", 1)[0]
    story = Failover(
        processor=action.processor,
        lost=before,
        reason=reason,
        from_copy=from_copy,
        to_copy=new.active,
        to=to,
        detected_ms=missed.at_ms if missed is not None and not is_planned else at_ms,
        tasks=tasks,
        is_planned=is_planned,
    )
    view = replace(
        view,
        failovers=put(view.failovers, action.processor, story),
        lost_actives=without(view.lost_actives, action.processor),
        handovers=without(view.handovers, action.processor) if handover is not None else view.handovers,
    )
    if is_planned:
        return view
    if handover is not None:
        view = with_news(
            view,
            News(
                "handover_given_up",
                job=action.processor.job,
                reason="the active was lost meanwhile",
                data={"processor": action.processor.number},
            ),
        )
    data = {
        "tasks": [each.partition for each in tasks],
        "processor": action.processor.number,
        "from": story.lost,
        "to": to,
        "from_copy": from_copy,
        "to_copy": new.active,
        "detected_ms": view.wall(story.detected_ms),
        "to_in_sync": bool(action.data.get("in_sync", False)),
        "policy": str(action.data.get("policy", "promote")),
    }
    common: dict[str, Any] = {
        "job": action.processor.job,
        "copy": new.active,
        "container": to,
        "host": view.containers[to].host,
        "task_epoch": new.epoch,
        "decision": action.decision,
        "data": data,
    }
    news = [News("failover_started", reason=reason, **common)]
    if not action.data.get("in_sync") and not action.data.get("in_place"):
        why = str(action.data.get("without", action.reason))
        news.append(News("failover_without_standby", reason=why, **common))
    return with_news(view, *news)


def followed_failovers(view: ClusterView, container: Container) -> ClusterView:
    """Return the view with every failover to ``container`` told as far as it has come."""
    for failover in view.failovers.values():
        if failover.to == container.id:
            view = _followed(view, container, failover)
    return view


def _followed(view: ClusterView, container: Container, failover: Failover) -> ClusterView:
    """Return the view with one failover told as far as it has come.

    It is finished when every task is active and each has committed input, or has no input to commit; and when
    the records have gone on to somebody else.
    """
    phases = dict(failover.phases)
    done = True
    times: dict[str, dict[str, int | None]] = {}
    for task in failover.tasks:
        if task in view.writing or task not in view.records:
            return view  # its record is still on its way to ZooKeeper, and the present one is of before
        record = view.records[task].record
        if record.active != failover.to_copy or record.placed.get(failover.to_copy) != container.id:
            return replace(view, failovers=without(view.failovers, failover.processor))
        status = container.statuses.get(ReplicaId(task, failover.to_copy))
        if status is None or status.role is not Role.ACTIVE or status.epoch != record.epoch:
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
        return replace(view, failovers=put(view.failovers, failover.processor, updated))
    view = replace(view, failovers=without(view.failovers, failover.processor))
    return with_news(
        unsettle(view, (failover.processor,)),
        News(
            "handover_finished" if failover.is_planned else "failover_finished",
            job=failover.processor.job,
            copy=failover.to_copy,
            container=container.id,
            host=container.host,
            reason=failover.reason,
            data={"tasks": times, "from": failover.lost, "processor": failover.processor.number},
        ),
    )
