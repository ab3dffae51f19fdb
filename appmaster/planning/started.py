"""What the view remembers of an action that has begun, so that the next turn does not repeat it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from appmaster.planning import actions as todo
from appmaster.planning.actions import Action
from appmaster.planning.changes import avoid, failed_attempt, gone, lost, put, with_news, without
from appmaster.planning.view import (
    ClusterView,
    Failover,
    JobState,
    News,
    Presence,
    Request,
    RequestState,
)


def start(view: ClusterView, action: Action, at_ms: int) -> ClusterView:
    """Return the view in which ``action`` is under way."""
    return _RULES[type(action)](view, action, at_ms)


def _write_records(view: ClusterView, action: todo.WriteRecords, at_ms: int) -> ClusterView:
    writing = {**view.writing, **{each.record.task: action.decision for each in action.changes}}
    view = replace(view, writing=writing, decisions=view.decisions + 1)
    first = action.changes[0].record
    if action.binding is not None:
        container, slot = action.binding
        bound = replace(view.containers[container], slot=slot, is_bound=True)
        view = replace(view, containers=put(view.containers, container, bound))
    if action.kind == "in-sync":
        view = replace(view, in_sync_ms=put(view.in_sync_ms, action.processor, at_ms))
    missed = view.lost_actives.get(action.processor) or _lost_before(view, action, at_ms)
    if action.kind in ("failover", "bind") and first.active is not None and missed is not None:
        active = first.placed.get(first.active)
        # A binding that gives the job back its active after a loss is a failover without a standby.
        if active is not None and active != missed[0] and active in view.containers:
            failover = Failover(
                processor=action.processor,
                lost=missed[0],
                reason=missed[1],
                from_copy=int(str(action.data.get("from_copy", first.active))),
                to_copy=first.active,
                to=active,
                detected_ms=missed[2],
            )
            view = replace(
                view,
                failovers=put(view.failovers, action.processor, failover),
                lost_actives=without(view.lost_actives, action.processor),
            )
    return with_news(
        view,
        News(
            f"decided_{action.kind.replace('-', '_')}",
            job=action.processor.job,
            container=action.binding[0] if action.binding else None,
            copy=action.binding[1].copy if action.binding else None,
            task_epoch=first.epoch,
            reason=action.reason,
            decision=action.decision,
            data={"tasks": [each.record.task.partition for each in action.changes], **action.data},
        ),
        *_failover_news(view, action),
    )


def _lost_before(view: ClusterView, action: todo.WriteRecords, at_ms: int) -> tuple[str, str, int] | None:
    """Return what is known of an active that was lost while nobody led; None when none was."""
    if action.kind != "failover":
        return None
    old = view.records[action.changes[0].record.task].record
    lost_container = old.placed.get(old.active, "") if old.active is not None else ""
    return (lost_container, "gone-before-takeover", at_ms)


def _failover_news(view: ClusterView, action: todo.WriteRecords) -> tuple[News, ...]:
    failover = view.failovers.get(action.processor)
    if failover is None or failover.recorded_ms or action.kind not in ("failover", "bind"):
        return ()
    record = action.changes[0].record
    to = view.containers[failover.to]
    data = {
        "tasks": [each.record.task.partition for each in action.changes],
        "processor": action.processor.number,
        "from": failover.lost,
        "to": failover.to,
        "from_copy": failover.from_copy,
        "to_copy": failover.to_copy,
        "detected_ms": view.wall(failover.detected_ms),
        "to_in_sync": bool(action.data.get("in_sync", False)),
    }
    common: dict[str, Any] = {
        "job": action.processor.job,
        "copy": failover.to_copy,
        "container": failover.to,
        "host": to.host,
        "task_epoch": record.epoch,
        "decision": action.decision,
    }
    started = News("failover_started", reason=failover.reason, data=data, **common)
    if action.kind == "failover" and action.data.get("in_sync"):
        return (started,)
    without_standby = News("failover_without_standby", reason=action.reason, data=data, **common)
    return (started, without_standby)


def _write_status(view: ClusterView, action: todo.WriteStatus, at_ms: int) -> ClusterView:
    job = view.jobs[action.job]
    state = JobState(action.state)
    was_deployed = job.was_deployed or state is JobState.DEPLOYED
    failure = job.failure or (action.reasons[0] if state is JobState.FAILED and action.reasons else "")
    job = replace(job, state=state, reasons=action.reasons, was_deployed=was_deployed, failure=failure)
    view = replace(view, jobs=put(view.jobs, job.name, job))
    reason = "; ".join(action.reasons) or None
    return with_news(view, News("job_status", job=job.name, reason=reason, data={"status": action.state}))


def _declare_lost(view: ClusterView, action: todo.DeclareLost, at_ms: int) -> ClusterView:
    container = view.containers[action.container]
    # Its silence began when it was last heard; that the leader knows is of this moment.
    view = lost(view, container, action.reason, at_ms)
    if container.slot is not None and container.is_bound and action.reason.startswith("silent"):
        view = avoid(view, container.host, at_ms, container.slot, "a container there fell silent")
    if not action.may_return:
        view = gone(view, container.id, at_ms)
    return view


def _doubt_self(view: ClusterView, action: todo.DoubtSelf, at_ms: int) -> ClusterView:
    longest = max((job.policy.heartbeat_timeout_ms for job in view.jobs.values()), default=2_000)
    # Once: the doubt itself ends a time-out later, and who is silent then is lost.
    view = replace(view, self_doubt_until_ms=at_ms + longest)
    return with_news(
        view,
        News("leader_doubts_itself", reason=f"{action.silent} of {action.of} containers fell silent at once"),
    )


def _fence_tasks(view: ClusterView, action: todo.FenceTasks, at_ms: int) -> ClusterView:
    job = replace(view.jobs[action.job], is_fencing=True)
    view = replace(view, jobs=put(view.jobs, job.name, job))
    return with_news(view, News("fencing_tasks", job=action.job, data={"tasks": len(action.tasks)}))


def _send_assign(view: ClusterView, action: todo.SendAssign, at_ms: int) -> ClusterView:
    known = view.containers[action.container]
    sent = replace(known, sent=action.number, sent_digest=action.digest, sent_ms=at_ms)
    view = replace(
        view,
        containers=put(view.containers, known.id, sent),
        sends=max(view.sends, action.number),
    )
    for processor, failover in view.failovers.items():
        if failover.to == known.id and failover.recorded_ms and not failover.ordered_ms:
            view = replace(
                view, failovers=put(view.failovers, processor, replace(failover, ordered_ms=at_ms))
            )
    return view


def _send_exit(view: ClusterView, action: todo.SendExit, at_ms: int) -> ClusterView:
    known = view.containers[action.container]
    leaving = replace(known, presence=Presence.LEAVING, since_ms=at_ms, reason=action.reason)
    view = replace(view, containers=put(view.containers, known.id, leaving))
    return with_news(
        view, News("container_dismissed", container=known.id, host=known.host, reason=action.reason)
    )


def _probe_port(view: ClusterView, action: todo.ProbePort, at_ms: int) -> ClusterView:
    known = view.containers[action.container]
    return replace(
        view, containers=put(view.containers, known.id, replace(known, is_probing=True, probed_ms=at_ms))
    )


def _cancel_request(view: ClusterView, action: todo.CancelRequest, at_ms: int) -> ClusterView:
    request = view.requests[action.number]
    view = replace(view, requests=without(view.requests, action.number))
    view = failed_attempt(
        view, request.slot, at_ms, action.reason, counts=request.state is RequestState.GRANTED
    )
    if action.avoid:
        view = avoid(view, action.avoid, at_ms, request.slot, action.reason)
    return with_news(
        view,
        News(
            "request_cancelled",
            job=request.slot.processor.job,
            copy=request.slot.copy,
            host=request.host,
            reason=action.reason,
        ),
    )


def _release_container(view: ClusterView, action: todo.ReleaseContainer, at_ms: int) -> ClusterView:
    known = view.containers[action.container]
    view = with_news(
        view,
        News("container_released", container=known.id, host=known.host, reason=action.reason),
    )
    if known.slot is not None and not known.is_bound and known.slot.processor.job in view.jobs:
        # It never served: the next request for that place waits, or a full cluster would spin.
        view = failed_attempt(view, known.slot, at_ms, action.reason, counts=False)
    if action.reason.startswith("same-host"):
        view = with_news(
            view, News("same_host_refused", container=known.id, host=known.host, reason=action.reason)
        )
    return gone(view, known.id, at_ms)


def _request_container(view: ClusterView, action: todo.RequestContainer, at_ms: int) -> ClusterView:
    request = Request(action.number, action.slot, action.host, RequestState.ASKING, at_ms)
    view = replace(
        view,
        requests=put(view.requests, action.number, request),
        decisions=view.decisions + 1,
    )
    return with_news(
        view,
        News(
            "container_requested",
            job=action.slot.processor.job,
            copy=action.slot.copy,
            host=action.host,
            reason=action.reason,
            data={"processor": action.slot.processor.number},
        ),
    )


_RULES: Final[Mapping[type, Callable[[ClusterView, Any, int], ClusterView]]] = {
    todo.WriteRecords: _write_records,
    todo.WriteStatus: _write_status,
    todo.DeclareLost: _declare_lost,
    todo.DoubtSelf: _doubt_self,
    todo.FenceTasks: _fence_tasks,
    todo.SendAssign: _send_assign,
    todo.SendExit: _send_exit,
    todo.ProbePort: _probe_port,
    todo.CancelRequest: _cancel_request,
    todo.ReleaseContainer: _release_container,
    todo.RequestContainer: _request_container,
}
