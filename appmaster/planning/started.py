"""What the view remembers of an action that has begun, so that the next turn does not repeat it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from appmaster.planning import actions as todo
from appmaster.planning.actions import Action, Kind, Outcome
from appmaster.planning.changes import (
    avoid,
    failed_attempt,
    gone,
    lost,
    put,
    unsettle,
    with_news,
    without,
)
from appmaster.planning.model import job_of
from appmaster.planning.tell import changed_active
from appmaster.planning.view import (
    ClusterView,
    Ending,
    Handover,
    JobState,
    News,
    Presence,
    Request,
    RequestKind,
    RequestState,
)
from standby.model import SlotId

#: Decisions too frequent and too small for the event log.
_QUIET: Final = frozenset({Kind.IN_SYNC})

#: Outcomes of a container that did nothing wrong and was never of use: the next request for its place waits.
_IN_VAIN: Final = frozenset({Outcome.SAME_HOST, Outcome.EXCLUDED, Outcome.SURPLUS})


def start(view: ClusterView, action: Action, at_ms: int) -> ClusterView:
    """Return the view in which ``action`` is under way."""
    return _RULES[type(action)](view, action, at_ms)


def _write_records(view: ClusterView, action: todo.WriteRecords, at_ms: int) -> ClusterView:
    writing = {**view.writing, **{each.record.task: action.decision for each in action.changes}}
    tasks = tuple(each.record.task for each in action.changes)
    crashes = {task: each for task, each in view.crashes.items() if task not in tasks}
    view = replace(view, writing=writing, crashes=crashes, decisions=view.decisions + 1)
    if action.container in view.containers:
        bound = replace(view.containers[action.container], binding=action.decision)
        bindings = put(view.bindings, action.decision, action.container)
        containers = put(view.containers, action.container, bound)
        view = replace(view, containers=containers, bindings=bindings)
    if action.kind is Kind.DISPLACE:
        view = _asks_at_once(view, action)
    if action.kind is Kind.IN_SYNC:
        view = replace(view, in_sync_ms=put(view.in_sync_ms, action.processor, at_ms))
    first = action.changes[0].record
    view = with_news(
        view,
        News(
            f"decided_{action.kind.value.replace('-', '_')}",
            job=action.processor.job,
            container=action.container or None,
            copy=action.copy,
            task_epoch=first.epoch,
            reason=action.reason,
            decision=action.decision,
            data={
                "processor": action.processor.number,
                "tasks": [each.partition for each in tasks],
                **action.data,
            },
        ),
    )
    return changed_active(view, action, at_ms)


def _asks_at_once(view: ClusterView, action: todo.WriteRecords) -> ClusterView:
    """Return the view in which a displaced standby's host may be asked for at once.

    Nothing is active from now on: the waits after requests in vain for the active's place are over.
    """
    active = action.changes[0].record.active
    slot = SlotId(action.processor, active) if active is not None else None
    attempts = view.attempts.get(slot) if slot is not None else None
    if slot is None or attempts is None:
        return view
    return replace(view, attempts=put(view.attempts, slot, replace(attempts, not_before_ms=0, in_row=0)))


def _write_model(view: ClusterView, action: todo.WriteModel, at_ms: int) -> ClusterView:
    known = view.jobs[action.job]
    view = replace(view, jobs=put(view.jobs, action.job, replace(known, is_modelling=True)))
    news = [
        News(
            "model_changed",
            job=action.job,
            reason=action.reason,
            data={
                "version": action.model.version,
                "processors": len(action.model.processors),
                "tasks": len(action.model.tasks),
                "copies": action.model.copies,
            },
        )
    ]
    for processor, each in action.model.processors.items():
        before = known.model.processors.get(processor)
        was = before.parked if before is not None else ""
        if each.parked != was:
            kind = "processor_parked" if each.parked else "processor_unparked"
            data = {"processor": processor.number}
            news.append(News(kind, job=action.job, reason=each.parked or action.reason, data=data))
    return with_news(view, *news)


def _write_status(view: ClusterView, action: todo.WriteStatus, at_ms: int) -> ClusterView:
    job = view.jobs[action.job]
    state = JobState(action.state)
    was_deployed = job.was_deployed or state is JobState.DEPLOYED
    failure = job.failure or (action.reasons[0] if state is JobState.FAILED and action.reasons else "")
    has_failed = bool(failure) and not job.failure
    is_well = state is JobState.DEPLOYED and not action.traceback
    is_news = (state, action.reasons) != (job.state, job.reasons)
    job = replace(
        job,
        state=state,
        reasons=action.reasons,
        was_deployed=was_deployed,
        failure=failure,
        # What was raised before has nothing to do with what comes.
        last_traceback="" if is_well else job.last_traceback,
        traceback=action.traceback,
        is_told_over=action.is_over,
    )
    view = replace(view, jobs=put(view.jobs, job.name, job))
    if has_failed:
        view = unsettle(view, job.model.processors)
    reason = "; ".join(action.reasons) or None
    if not is_news:
        return view
    data = {"status": action.state}
    if has_failed and action.traceback:
        data["traceback"] = action.traceback
    return with_news(view, News("job_status", job=job.name, reason=reason, data=data))


def _declare_lost(view: ClusterView, action: todo.DeclareLost, at_ms: int) -> ClusterView:
    container = view.containers[action.container]
    # Its silence began when it was last heard; that the leader knows is of this moment.
    view = lost(view, container, action.reason, at_ms)
    home = view.home(container.id)
    if home is not None and action.reason.startswith("silent"):
        view = avoid(view, container.host, at_ms, home, "a container there fell silent")
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


def _miss_active(view: ClusterView, action: todo.MissActive, at_ms: int) -> ClusterView:
    is_known = action.missed.container in view.told_lost
    view = replace(
        view,
        lost_actives=put(view.lost_actives, action.processor, action.missed),
        told_lost=view.told_lost | {action.missed.container},
    )
    records = [view.records[task].record for task in view.job_tasks(action.processor) if task in view.records]
    held = [
        each
        for each in records
        if each.active is not None
        and each.displaced is None
        and each.placed.get(each.active) == action.missed.container
    ]
    if is_known or not held:
        # Told of with another processor that it served; or a standby makes way already, and whoever led then told.
        return view
    copy = held[0].active or 0
    return with_news(
        view,
        News(
            "container_lost",
            job=action.processor.job,
            copy=copy,
            container=action.missed.container,
            host=held[0].hosts.get(copy),
            reason=f"{action.missed.reason}: YARN did not list it when this leader took over",
            data={"role": "active", "actives": len(held), "replicas": len(held)},
        ),
    )


def _prepare_handover(view: ClusterView, action: todo.PrepareHandover, at_ms: int) -> ClusterView:
    handover = Handover(action.to_copy, action.container, at_ms, action.reason)
    view = replace(view, handovers=put(view.handovers, action.processor, handover))
    view = unsettle(view, (action.processor,))
    return with_news(
        view,
        News(
            "handover_started",
            job=action.processor.job,
            copy=action.to_copy,
            container=action.container,
            host=view.containers[action.container].host,
            reason=action.reason,
            data={"processor": action.processor.number},
        ),
    )


def _forget_handover(view: ClusterView, action: todo.ForgetHandover, at_ms: int) -> ClusterView:
    view = unsettle(replace(view, handovers=without(view.handovers, action.processor)), (action.processor,))
    data = {"processor": action.processor.number}
    return with_news(
        view, News("handover_given_up", job=action.processor.job, reason=action.reason, data=data)
    )


def _settle(view: ClusterView, action: todo.Settle, at_ms: int) -> ClusterView:
    return replace(view, unsettled=view.unsettled.difference(action.processors))


def _answer(view: ClusterView, action: todo.Answer, at_ms: int) -> ClusterView:
    commands = tuple(each for each in view.commands if each.number != action.number)
    attempts = {place: each for place, each in view.attempts.items() if place not in action.clears}
    view = replace(view, commands=commands, attempts=attempts)
    return with_news(
        view, News("command_answered", reason=action.said, data={"is_refused": action.is_refused})
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
    ending = view.ending.get(action.container)
    if ending is not None:
        return replace(view, ending=put(view.ending, action.container, replace(ending, probed_ms=at_ms)))
    known = view.containers[action.container]
    return replace(
        view, containers=put(view.containers, known.id, replace(known, is_probing=True, probed_ms=at_ms))
    )


def _cancel_request(view: ClusterView, action: todo.CancelRequest, at_ms: int) -> ClusterView:
    request = view.requests[action.number]
    view = replace(view, requests=without(view.requests, action.number))
    if action.outcome is Outcome.EXPIRED:
        counts = request.state is RequestState.GRANTED
        view = failed_attempt(view, request.place, at_ms, action.reason, counts=counts)
    if action.avoid and request.kind is not RequestKind.RESERVATION:
        view = avoid(view, action.avoid, at_ms, request.place, action.reason)
    job = view.jobs.get(job_of(request.place))
    if request.kind is RequestKind.RESERVATION and isinstance(request.place, SlotId) and job is not None:
        until = at_ms + 4 * job.policy.samehost_timeout_ms
        view = replace(view, no_displacing=put(view.no_displacing, request.place.processor, until))
    if isinstance(request.place, SlotId):
        view = unsettle(view, (request.place.processor,)) if job is not None else view
    return with_news(
        view,
        News(
            "request_cancelled",
            job=job_of(request.place),
            host=request.host,
            reason=action.reason,
            data={
                "place": str(request.place),
                "kind": request.kind.value,
                "outcome": action.outcome.value,
            },
        ),
    )


def _release_container(view: ClusterView, action: todo.ReleaseContainer, at_ms: int) -> ClusterView:
    known = view.containers[action.container]
    view = with_news(
        view,
        News(
            "container_released",
            container=known.id,
            host=known.host,
            reason=action.reason,
            data={"outcome": action.outcome.value, "place": str(known.place) if known.place else None},
        ),
    )
    job = view.job_of(known)
    displaces = any(
        view.records[task].record.displaced == copy for task, copy in view.assigned.get(known.id, {}).items()
    )
    if job is not None and displaces:
        until = at_ms + job.policy.stop_timeout_ms
        ending = Ending(known.incarnation, at_ms, until)
        view = replace(view, ending=put(view.ending, known.id, ending))
    if known.place is not None and action.outcome in _IN_VAIN and job_of(known.place) in view.jobs:
        # It never served: the next request for that place waits, or a full cluster would spin.
        view = failed_attempt(view, known.place, at_ms, action.reason, counts=False)
    if action.outcome is Outcome.SAME_HOST:
        view = with_news(
            view, News("same_host_refused", container=known.id, host=known.host, reason=action.reason)
        )
    if action.outcome is not Outcome.LOST:
        # Ended as planned: no failure, so nothing of the retry budget is spent on it.
        view = replace(
            view, containers=put(view.containers, known.id, replace(known, presence=Presence.LEAVING))
        )
    return gone(view, known.id, at_ms)


def _request_container(view: ClusterView, action: todo.RequestContainer, at_ms: int) -> ClusterView:
    request = Request(
        action.number,
        action.place,
        action.host,
        action.kind,
        RequestState.ASKING,
        at_ms,
        cell=action.cell,
    )
    view = replace(
        view,
        requests=put(view.requests, action.number, request),
        decisions=view.decisions + 1,
    )
    return with_news(
        view,
        News(
            "container_requested",
            job=job_of(action.place),
            copy=action.place.copy if isinstance(action.place, SlotId) else None,
            host=action.host,
            reason=action.reason,
            data={"place": str(action.place), "kind": action.kind.value, "cell": action.cell},
        ),
    )


_RULES: Final[Mapping[type, Callable[[ClusterView, Any, int], ClusterView]]] = {
    todo.WriteRecords: _write_records,
    todo.WriteModel: _write_model,
    todo.WriteStatus: _write_status,
    todo.DeclareLost: _declare_lost,
    todo.DoubtSelf: _doubt_self,
    todo.MissActive: _miss_active,
    todo.PrepareHandover: _prepare_handover,
    todo.ForgetHandover: _forget_handover,
    todo.Settle: _settle,
    todo.Answer: _answer,
    todo.FenceTasks: _fence_tasks,
    todo.SendAssign: _send_assign,
    todo.SendExit: _send_exit,
    todo.ProbePort: _probe_port,
    todo.CancelRequest: _cancel_request,
    todo.ReleaseContainer: _release_container,
    todo.RequestContainer: _request_container,
}
