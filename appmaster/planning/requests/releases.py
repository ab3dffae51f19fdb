"""Cancels requests, and releases containers, that are no longer needed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from appmaster.planning.containers.assignments import is_assignment_sent, is_of_unreadable
from appmaster.planning.containers.detect import policy_of
from appmaster.planning.placement.pool_fit import demand_of
from appmaster.planning.placement.turn import Turn, is_current
from appmaster.planning.placement.upgrade import crowded_containers, extra_containers
from appmaster.planning.requests.needs import Need, counted_containers
from appmaster.planning.requests.spares import SpareShare
from appmaster.planning.rules.failover import has_stopped
from appmaster.planning.state.actions import (
    Action,
    CancelRequest,
    Outcome,
    ReleaseContainer,
)
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import SharedSlotId, Slot, job_of
from appmaster.planning.state.reasons import Setback, SetbackKind
from appmaster.planning.state.view import (
    ClusterView,
    Container,
    ContainerRequest,
    Presence,
    RequestKind,
    RequestState,
)
from locality.fit import fits
from standby.shared.model import ProcessorId, SlotId


def releases(turn: Turn, needed: Mapping[Slot, Need], spares: SpareShare) -> Iterator[Action]:
    """Yield the end of every request and container that is no longer needed."""
    view = turn.view
    requested = {**needed, **spares.needs}
    for request in view.requests.values():
        if request.state is RequestState.ASKING:
            continue
        over = _over(turn, request, requested)
        if over is not None:
            outcome, reason = over
            avoid = request.host or "" if outcome is Outcome.EXPIRED else ""
            yield CancelRequest(
                request.number, request.skein_id, outcome, reason, avoid, job_of(request.slot)
            )
    # Of a mixed job; an empty container is rare.
    surplus = cache(lambda job: _surplus_shared(turn, view.jobs[job]))
    for container in view.containers.values():
        if container.presence is Presence.LIVE:
            if _is_empty(turn, container):
                found = _does_not_fit(turn, container, needed, spares, surplus)
                if found is not None:
                    yield _given_back(view, container, *found)
            continue
        waited = view.now_ms - container.since_ms
        if container.presence is Presence.SUSPECT:
            is_useless = container.loss is not None and container.loss.kind.is_final
            if is_useless or waited >= policy_of(view, container).suspect_grace_ms:
                yield _given_back(view, container, Outcome.LOST, container.reason)
        elif container.presence is Presence.LEAVING and waited >= policy_of(view, container).exit_timeout_ms:
            reason = f"did not leave by itself: {container.reason}"
            yield _given_back(view, container, Outcome.ENDED, reason)
    yield from _stuck(turn)


def _is_empty(turn: Turn, container: Container) -> bool:
    """Return whether a live container is known to hold nothing, and this turn gives it nothing."""
    view = turn.view
    return (
        view.is_free(container) and container.id not in turn.taken and not is_of_unreadable(view, container)
    )


def _given_back(view: ClusterView, container: Container, outcome: Outcome, reason: str) -> ReleaseContainer:
    job = view.job_of(container)
    return ReleaseContainer(
        container.id, container.skein_id, outcome, reason, job.name if job is not None else ""
    )


def _stuck(turn: Turn) -> Iterator[Action]:
    """Yield the release of every displaced standby's container that does not confirm the stop in time.

    Its death then confirms the stop.
    """
    given_back: set[str] = set()
    for job, processor in turn.unsettled():
        for cohort in turn.cohorts(job, processor) or ():
            displaced = cohort.record.displaced
            if displaced is None or has_stopped(turn, cohort, displaced):
                continue
            holder = turn.holder(cohort, displaced)
            # While tasks change processors, one container may hold displaced standbys of several processors.
            if holder is None or holder.id in given_back or not is_assignment_sent(turn.view, holder):
                continue
            if turn.view.now_ms - holder.sent_ms > job.policy.stop_timeout_ms:
                given_back.add(holder.id)
                reason = f"did not stop its standby in {job.policy.stop_timeout_ms} ms"
                yield _given_back(turn.view, holder, Outcome.REPLACED, reason)


def _over(
    turn: Turn, request: ContainerRequest, needed: Mapping[Slot, Need]
) -> tuple[Outcome, str | Setback] | None:
    """Return what became of a request, and why; None if it stands."""
    view = turn.view
    job = view.jobs.get(job_of(request.slot))
    waited = view.now_ms - request.since_ms
    if job is None or not job.is_led:
        return Outcome.ENDED, "the job is being undeployed"
    if isinstance(request.slot, SlotId) and turn_is_closed(turn, job, request.slot.processor):
        return None
    need = needed.get(request.slot)
    if need is None:
        return Outcome.SURPLUS, "the slot is taken, or not wanted any more"
    if need.is_reservation != (request.kind is RequestKind.RESERVATION):
        return Outcome.SURPLUS, "something else is needed there now"
    limit = job.policy.request_timeout_ms
    if need.only_host:
        limit = job.policy.samehost_timeout_ms
    elif need.is_reservation:
        limit = job.policy.reservation_ms
    if request.host is None:
        limit = job.policy.any_timeout_ms
    if request.state is RequestState.WAITING and waited > limit:
        return Outcome.EXPIRED, Setback(SetbackKind.NOT_GRANTED, request.host, waited)
    if request.state is RequestState.GRANTED and waited > job.policy.launch_timeout_ms:
        return Outcome.EXPIRED, Setback(SetbackKind.NOT_REGISTERED, request.host, waited)
    if request.host is not None and request.host in view.drained:
        return Outcome.DRAINED, f"{request.host} is drained"
    return None


def turn_is_closed(turn: Turn, job: Job, processor: ProcessorId) -> bool:
    """Return whether a processor's records are being written or about to be: it is judged after that."""
    is_known = processor in job.model.processors
    return is_known and (processor in turn.touched or turn.cohorts(job, processor) is None)


def _does_not_fit(
    turn: Turn,
    container: Container,
    needed: Mapping[Slot, Need],
    spares: SpareShare,
    surplus: Callable[[str], Mapping[str, tuple[Outcome, str]]],
) -> tuple[Outcome, str] | None:
    """Return why a container that serves nothing is released; None if it is about to serve, or may soon."""
    view = turn.view
    job = view.job_of(container)
    if container.is_leaving or (job is not None and not job.is_led):
        return None  # it ends with an exit order: at once, or after the fence
    if job is None and container.revisions:
        return Outcome.SURPLUS, f"it has the code of {', '.join(sorted(container.revisions))}, which is gone"
    if job is None and any(not each.is_led and not each.is_over for each in view.jobs.values()):
        return None  # it may belong to one of those jobs
    if job is None and len(view.jobs) == 1 and not any(each.is_led for each in view.jobs.values()):
        return None  # it can only belong to that job
    if job is not None and not is_current(job, container):
        return Outcome.REPLACED, f"it runs revision {container.revisions.get(job.name)}"
    if container.host in view.drained:
        return Outcome.DRAINED, f"{container.host} is drained"
    if view.is_orphaned(container):
        return Outcome.REPLACED, f"its cell is lost: the AM of cell {container.cell} is gone"
    if container.is_spare and job is not None:
        reason = spares.surplus.get(container.id)
        return (Outcome.SURPLUS, reason) if reason is not None else None
    if any(turn_is_closed(turn, other, each) for other, each in turn.unsettled() if job in (None, other)):
        return None  # a decision is being written: it is judged after that
    if job is not None and job.model.is_mixed:
        return surplus(job.name).get(container.id)
    # A mixed job counts only what it knows to be its own, not what an earlier leader requested for it.
    mine = [
        each
        for each in needed.values()
        if (job is None or each.job.name == job.name) and not isinstance(each.slot, SharedSlotId)
    ]
    if job is None and needed and not mine:
        return Outcome.SURPLUS, "an earlier leader requested it, and it is not known for which job"
    return _unwanted(container, needed, mine)


def _surplus_shared(turn: Turn, job: Job) -> dict[str, tuple[Outcome, str]]:
    """Return each container of a mixed job that is given back → why: no more than it has too many."""
    found: dict[str, tuple[Outcome, str]] = {}
    held = counted_containers(turn, job)
    empty = {each.id: each for each in held if turn.view.is_free(each) and each.id not in turn.taken}
    on_host = Counter(each.host for each in held)
    while empty and len(held) - len(found) > job.model.containers + extra_containers(turn, job):
        chosen = max(empty.values(), key=lambda each: (on_host[each.host], each.id))
        on_host[chosen.host] -= 1
        found[empty.pop(chosen.id).id] = Outcome.SURPLUS, "the job has enough containers"
    crowded = [each for each in crowded_containers(turn, job) if each.id not in found]
    sharing = Counter(each.host for each in crowded)
    for each in crowded:
        # One stays: without it the host would hold none, and another would be requested.
        if each.id in empty and sharing[each.host] > 1:
            sharing[each.host] -= 1
            found[each.id] = Outcome.SAME_HOST, f"{each.host} holds another container of {job.name}"
    return found


def _unwanted(
    container: Container, needed: Mapping[Slot, Need], mine: list[Need]
) -> tuple[Outcome, str] | None:
    """Return why a free container fits none of the needs; None if it fits one."""
    if not mine:
        return Outcome.SURPLUS, "every slot is taken"
    own = needed.get(container.slot) if container.slot is not None else None
    for need in [own] if own is not None else mine:
        if not fits(demand_of(need.job, need.slot), container.offer):
            continue
        if need.is_reservation:
            if container.host == need.preferred:
                return None
        elif (need.locations is None or (container.host, container.cell) in need.locations) and all(
            container.host != each.host.name for each in need.siblings
        ):
            return None
    labels = (each.label for need in mine for each in need.siblings if each.host.name == container.host)
    sharing = next(labels, "")
    if sharing and container.sent:
        # It served, and its copy was given up as planned: policy ``restart`` stops a standby for the active.
        return Outcome.REPLACED, f"{container.host} holds {sharing}, which displaced it"
    if sharing:
        return Outcome.SAME_HOST, f"{container.host} holds {sharing}, a copy of the same tasks"
    return Outcome.SURPLUS, "no container is needed on its host"
