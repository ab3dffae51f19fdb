"""What the view records of a started action, so that the next turn does not repeat it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from appmaster.planning.fold.changes import (
    avoid,
    failed_attempt,
    gone,
    lost,
    unsettle,
    unsettle_around,
    without_request,
)
from appmaster.planning.fold.failovers import begun
from appmaster.planning.state import actions as todo
from appmaster.planning.state.actions import Action, DecisionKind, Outcome
from appmaster.planning.state.job import JobState
from appmaster.planning.state.mappings import put, without
from appmaster.planning.state.model import SpareSlotId
from appmaster.planning.state.reasons import HandoverMotive, Loss, Setback, SetbackKind
from appmaster.planning.state.view import (
    ClusterView,
    ContainerRequest,
    EndingContainer,
    Handover,
    Presence,
    Rebalancing,
    RequestKind,
    RequestState,
)
from standby.shared.model import SlotId

#: Outcomes of a container that did nothing wrong but was never used: the next request for its slot waits.
_IN_VAIN: Final = frozenset({Outcome.SAME_HOST, Outcome.DRAINED, Outcome.SURPLUS})


#: How often the pause between hand-overs that spread a job's actives is doubled at most: once per failed attempt.
_MOST_DOUBLINGS: Final = 5


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
    if action.kind is DecisionKind.DISPLACE:
        view = _asks_at_once(view, action)
    if action.kind is DecisionKind.IN_SYNC:
        view = replace(view, in_sync_ms=put(view.in_sync_ms, action.processor, at_ms))
    return begun(view, action, at_ms)


def _asks_at_once(view: ClusterView, action: todo.WriteRecords) -> ClusterView:
    """Return the view in which a displaced standby's host may be requested at once.

    No copy is active from now on, so the waits after failed requests for the active's slot are dropped.
    """
    active = action.changes[0].record.active
    slot = SlotId(action.processor, active) if active is not None else None
    attempts = view.attempts.get(slot) if slot is not None else None
    if slot is None or attempts is None:
        return view
    return replace(view, attempts=put(view.attempts, slot, replace(attempts, not_before_ms=0, in_row=0)))


def _write_model(view: ClusterView, action: todo.WriteModel, at_ms: int) -> ClusterView:
    known = view.jobs[action.job]
    return replace(view, jobs=put(view.jobs, action.job, replace(known, is_modelling=True)))


def _write_status(view: ClusterView, action: todo.WriteStatus, at_ms: int) -> ClusterView:
    job = view.jobs[action.job]
    state = JobState(action.state)
    was_deployed = job.was_deployed or state is JobState.DEPLOYED
    has_failed = action.failure is not None and job.failure is None
    is_well = state is JobState.DEPLOYED and not action.traceback
    job = replace(
        job,
        state=state,
        reasons=action.reasons,
        lacks=action.lacks,
        was_deployed=was_deployed,
        failure=job.failure or action.failure,
        # An earlier traceback has nothing to do with later failures.
        last_traceback="" if is_well else job.last_traceback,
        traceback=action.traceback,
        is_reported_over=action.is_over,
        is_risk_recorded=action.is_at_risk,
    )
    view = replace(view, jobs=put(view.jobs, job.name, job))
    return unsettle(view, job.model.processors) if has_failed else view


def _declare_lost(view: ClusterView, action: todo.DeclareLost, at_ms: int) -> ClusterView:
    container = view.containers[action.container]
    # Its silence began when it was last heard; the leader's knowledge dates from this moment.
    view = lost(view, container, action.reason, at_ms)
    home = view.home(container.id)
    if home is not None and action.reason.kind is Loss.SILENT:
        view = avoid(view, container.host, at_ms, home, "a container there fell silent")
    if not action.may_return:
        view = gone(view, container.id, at_ms)
    return view


def _doubt_self(view: ClusterView, action: todo.DoubtSelf, at_ms: int) -> ClusterView:
    longest = max((job.policy.heartbeat_timeout_ms for job in view.jobs.values()), default=2_000)
    # Only once: the doubt ends a time-out later, and containers that are still silent then are lost.
    return replace(view, self_doubt_until_ms=at_ms + longest)


def _miss_active(view: ClusterView, action: todo.MissActive, at_ms: int) -> ClusterView:
    return replace(
        view,
        lost_actives=put(view.lost_actives, action.processor, action.missed),
        logged_lost=view.logged_lost | {action.missed.container},
    )


def _prepare_handover(view: ClusterView, action: todo.PrepareHandover, at_ms: int) -> ClusterView:
    handover = Handover(action.to_copy, action.container, at_ms, action.reason)
    view = replace(view, handovers=put(view.handovers, action.processor, handover))
    return unsettle(view, (action.processor,))


def _forget_handover(view: ClusterView, action: todo.ForgetHandover, at_ms: int) -> ClusterView:
    handover = view.handovers.get(action.processor)
    view = replace(view, handovers=without(view.handovers, action.processor))
    view = unsettle(view, (action.processor,))
    job = view.jobs.get(action.processor.job)
    if job is None or handover is None or handover.reason.kind is not HandoverMotive.REBALANCE:
        return view
    known = view.rebalancing.get(job.name, Rebalancing())
    in_vain = known.in_vain + 1
    again_ms = at_ms + (job.policy.rebalance_pause_ms << min(in_vain, _MOST_DOUBLINGS))
    later = replace(known, in_vain=in_vain, not_before_ms=again_ms)
    return replace(view, rebalancing=put(view.rebalancing, job.name, later))


def _settle(view: ClusterView, action: todo.Settle, at_ms: int) -> ClusterView:
    view = replace(view, unsettled=view.unsettled.difference(action.processors))
    whole = {each.job for each in action.processors}.difference(each.job for each in view.unsettled)
    known = {name: view.rebalancing[name] for name in whole if name in view.rebalancing}
    if not known:
        return view
    since = {name: replace(each, whole_ms=at_ms) for name, each in known.items()}
    return replace(view, rebalancing={**view.rebalancing, **since})


def _rest_rebalancing(view: ClusterView, action: todo.RestRebalancing, at_ms: int) -> ClusterView:
    known = view.rebalancing.get(action.job)
    if known is None:
        return view
    if action.until_ms is not None:
        later = replace(known, not_before_ms=action.until_ms)
        return replace(view, rebalancing=put(view.rebalancing, action.job, later))
    if known.whole_ms is None:
        # The requested rebalance is done. The job is not whole yet, so its actives are checked again when it is.
        view = replace(view, rebalancing=put(view.rebalancing, action.job, Rebalancing()))
    else:
        view = replace(view, rebalancing=without(view.rebalancing, action.job))
    return view


def _answer(view: ClusterView, action: todo.Answer, at_ms: int) -> ClusterView:
    commands = tuple(each for each in view.commands if each.number != action.number)
    if action.rebalances:
        known = view.rebalancing.get(action.rebalances)
        whole_ms = known.whole_ms if known is not None else at_ms
        asked = Rebalancing(whole_ms, is_asked=True)
        view = replace(view, rebalancing=put(view.rebalancing, action.rebalances, asked))
    attempts = {slot: each for slot, each in view.attempts.items() if slot not in action.clears}
    return replace(view, commands=commands, attempts=attempts)


def _fence_tasks(view: ClusterView, action: todo.FenceTasks, at_ms: int) -> ClusterView:
    job = replace(view.jobs[action.job], fence=action.number)
    return replace(view, jobs=put(view.jobs, job.name, job), fences=max(view.fences, action.number))


def _waive_fence(view: ClusterView, action: todo.WaiveFence, at_ms: int) -> ClusterView:
    job = replace(view.jobs[action.job], fence=0, is_fenced=True, fencing_error="")
    return replace(view, jobs=put(view.jobs, job.name, job))


def _take_spare(view: ClusterView, action: todo.TakeSpare, at_ms: int) -> ClusterView:
    known = replace(view.containers[action.container], slot=action.slot)
    view = replace(view, containers=put(view.containers, known.id, known))
    if isinstance(action.slot, SlotId):
        return unsettle(view, (action.slot.processor,))
    return unsettle_around(view, known)


def _send_assignment(view: ClusterView, action: todo.SendAssignment, at_ms: int) -> ClusterView:
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
    leaving = replace(known, presence=Presence.LEAVING, since_ms=at_ms, farewell=action.reason)
    return replace(view, containers=put(view.containers, known.id, leaving))


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
    view = without_request(view, request, at_ms)
    if isinstance(action.reason, Setback):
        counts = request.state is RequestState.GRANTED
        view = failed_attempt(view, request.slot, at_ms, action.reason, counts=counts)
    # What a spare container did not get makes no difference to where others are requested.
    is_spare = isinstance(request.slot, SpareSlotId)
    if action.avoid and request.kind is not RequestKind.RESERVATION and not is_spare:
        view = avoid(view, action.avoid, at_ms, request.slot, str(action.reason))
    if isinstance(request.slot, SlotId):
        view = unsettle(view, (request.slot.processor,))
    return view


def _release_container(view: ClusterView, action: todo.ReleaseContainer, at_ms: int) -> ClusterView:
    known = view.containers[action.container]
    job = view.job_of(known)
    displaces = any(
        view.records[task].record.displaced == copy for task, copy in view.assigned.get(known.id, {}).items()
    )
    if job is not None and displaces:
        until = at_ms + job.policy.stop_timeout_ms
        ending = EndingContainer(known.incarnation, at_ms, until)
        view = replace(view, ending=put(view.ending, known.id, ending))
    if known.slot is not None and action.outcome in _IN_VAIN:
        # It never served: without a wait before the next request for its slot, a full cluster would loop.
        is_same_host = action.outcome is Outcome.SAME_HOST
        kind = SetbackKind.SAME_HOST if is_same_host else SetbackKind.OF_NO_USE
        last = Setback(kind, known.host, detail=action.reason)
        view = failed_attempt(view, known.slot, at_ms, last, counts=False)
    if action.outcome is not Outcome.LOST:
        # Ended as planned: not a failure, so it spends no retry budget.
        view = replace(
            view, containers=put(view.containers, known.id, replace(known, presence=Presence.LEAVING))
        )
    return gone(view, known.id, at_ms)


def _request_container(view: ClusterView, action: todo.RequestContainer, at_ms: int) -> ClusterView:
    request = ContainerRequest(
        action.number,
        action.slot,
        action.host,
        action.kind,
        RequestState.ASKING,
        at_ms,
        cell=action.cell,
    )
    return replace(
        view,
        requests=put(view.requests, action.number, request),
        decisions=view.decisions + 1,
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
    todo.RestRebalancing: _rest_rebalancing,
    todo.Answer: _answer,
    todo.FenceTasks: _fence_tasks,
    todo.WaiveFence: _waive_fence,
    todo.TakeSpare: _take_spare,
    todo.SendAssignment: _send_assignment,
    todo.SendExit: _send_exit,
    todo.ProbePort: _probe_port,
    todo.CancelRequest: _cancel_request,
    todo.ReleaseContainer: _release_container,
    todo.RequestContainer: _request_container,
}
