"""Asking YARN for containers, and giving back those that do not fit. Pure.

Per place: preferred host (its state lies there) → the other allowed hosts, best first → any host. Every
request expires; a host that let one expire is avoided for a while; repeated failures wait longer each time,
and more than the job allows within its window fail it or park the processor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from appmaster.planning.actions import (
    Action,
    CancelRequest,
    Outcome,
    ReleaseContainer,
    RequestContainer,
)
from appmaster.planning.detect import policy_of
from appmaster.planning.failover import has_stopped, poison, reservation
from appmaster.planning.model import BerthId, Place, job_of
from appmaster.planning.orders import is_told
from appmaster.planning.placing import move_reason
from appmaster.planning.turn import Cohort, Turn, is_current
from appmaster.planning.upgrade import crowding, spare_hosts
from appmaster.planning.view import (
    Attempts,
    ClusterView,
    Container,
    Job,
    Presence,
    Request,
    RequestKind,
    RequestState,
)
from locality.judging import best
from locality.question import Question, Sibling
from standby.model import Held, ProcessorId, SlotId, TaskId, TaskRecord

#: So many requests in vain go to named hosts before any host is asked for, then both in turn.
NAMED_FIRST: Final = 2


@dataclass(frozen=True, slots=True)
class Need:
    """A place that lacks a container."""

    place: Place
    job: Job
    is_active: bool
    """Nothing of its tasks is processed until it is there."""
    is_reservation: bool = False
    is_met: bool = False
    """Its container is there, and waits."""
    only_host: bool = False
    """Policy ``restart``: its own host is asked for, and no other yet."""
    preferred: str | None = None
    siblings: tuple[Sibling, ...] = ()
    histories: Mapping[TaskId, tuple[Held, ...]] = field(default_factory=dict)


# ---- what is needed ----


def needs(turn: Turn) -> dict[Place, Need]:
    """Return every place that lacks a container, actives' first."""
    found: list[Need] = []
    mixed: set[str] = set()
    for job, processor in turn.unsettled():
        if not job.is_led or job.model.processors[processor].parked:
            continue
        if job.model.is_mixed:
            mixed.add(job.name)
            continue
        cohorts = turn.cohorts(job, processor)
        if cohorts is not None and processor not in turn.touched:
            found += _of_processor(turn, job, processor, cohorts)
    # Containers that came or went show in the processors they serve; an empty one serves none.
    for job in turn.view.jobs.values():
        if job.model.is_mixed and job.is_led:
            found += _berths(turn, job)
    found.sort(key=lambda need: not need.is_active)
    return {each.place: each for each in found}


def _of_processor(
    turn: Turn, job: Job, processor: ProcessorId, cohorts: tuple[Cohort, ...]
) -> Iterator[Need]:
    for copy in job.model.processors[processor].copies:
        slot = SlotId(processor, copy)
        need = None
        for cohort in cohorts:
            need = need or _of_cohort(turn, cohorts, cohort, slot)
        if need is not None:
            yield need


def _of_cohort(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, slot: SlotId) -> Need | None:
    """Return the need of one copy of a cohort; None when it has its container, or will get its slot's home."""
    record, copy, job = cohort.record, slot.copy, cohort.job
    holder = turn.holder(cohort, copy)
    is_active = copy == record.active or (record.active is None and copy == cohort.copies[0])
    if turn.is_kept(cohort, copy) and record.displaced is None:
        return None
    if record.displaced is not None:
        if not is_active:
            return None
        host = record.hosts.get(copy, "")
        is_met = reservation(turn, cohort, host) is not None
        return Need(slot, job, is_active=True, is_reservation=True, is_met=is_met, preferred=host)
    home = turn.home(cohorts, slot)
    if holder is None:
        if home is not None or (is_active and poison(cohort, turn)):
            return None
        lost = turn.view.lost_actives.get(cohort.processor)
        only_host = (
            is_active
            and lost is not None
            and job.policy.restarts
            and any(turn.holder(cohort, each) is not None for each in record.placed)
            and turn.view.now_ms >= turn.view.no_displacing.get(cohort.processor, 0)
        )
        return _need(turn, cohorts, cohort, slot, is_active=is_active, only_host=only_host)
    if copy in record.moving or not move_reason(turn, cohorts, cohort, copy, holder):
        return None
    if home is not None and home.id != holder.id:
        return None
    return _need(turn, (cohort,), cohort, slot, is_active=False, only_host=False)


def _need(
    turn: Turn,
    cohorts: tuple[Cohort, ...],
    cohort: Cohort,
    slot: SlotId,
    *,
    is_active: bool,
    only_host: bool,
) -> Need:
    record = cohort.record
    holder = turn.holder(cohort, slot.copy)
    siblings = turn.siblings(cohorts, slot)
    if holder is not None:
        # It is to go elsewhere, if there is an elsewhere.
        taken = {holder.host, *(each.host.name for each in siblings)}
        if any(host not in taken and host not in turn.view.excluded for host in turn.view.hosts):
            siblings = (*siblings, Sibling(str(slot), turn.host(holder.host)))
    affine = cohort.job.policy.host_affinity
    return Need(
        slot,
        cohort.job,
        is_active=is_active,
        only_host=only_host,
        preferred=record.hosts.get(slot.copy) if affine and holder is None else None,
        siblings=siblings,
        histories={
            each.record.task: each.record.history
            if holder is not None
            else _held(turn, each.record, slot.copy)
            for each in cohort.recorded
        }
        if affine
        else {},
    )


def _held(turn: Turn, record: TaskRecord, copy: int) -> tuple[Held, ...]:
    """Return the hosts that held a task, the last one of a lost copy among them.

    Nobody wrote down how far that one had come when it was lost; older state is not taken for fresher than it.
    """
    last = record.hosts.get(copy)
    if not last:
        return record.history
    position = max((each.position or 0 for each in record.history), default=None)
    others = (each for each in record.history if each.host != last)
    return (Held(last, turn.view.wall(turn.view.now_ms), position), *others)


def _berths(turn: Turn, job: Job) -> Iterator[Need]:
    """Yield a need for every container that a mixed job lacks."""
    view = turn.view
    held = [
        each
        for each in view.containers.values()
        if (found := view.job_of(each)) is not None
        and found.name == job.name
        and each.presence not in (Presence.LEAVING, Presence.ORPHAN)
        and not (each.presence is Presence.LIVE and each.host in view.excluded)
        and not (each.presence is Presence.LIVE and not is_current(job, each) and view.is_free(each))
    ]
    asked = [each.place for each in view.requests.values() if job_of(each.place) == job.name]
    # Where two share a host that the copies need for themselves, another is asked for before one is given up.
    extra = 1 if crowding(turn, job) and spare_hosts(turn, job) else 0
    missing = job.model.containers + extra - len(held) - len(asked)
    if missing <= 0 and not asked:
        return
    used = {each.place for each in held} | set(asked)
    numbers = [
        each for each in range(job.model.containers + len(held)) if BerthId(job.name, each) not in used
    ]
    hosts = {each.host for each in held if each.host}
    # As many hosts as a task has copies come first; after that containers may share one.
    is_scarce = len(hosts) < job.model.copies
    siblings = tuple(
        Sibling(f"a container of {job.name}", turn.host(each)) for each in sorted(hosts) if is_scarce
    )
    is_begun = any(each.id in view.assigned for each in held)
    for place in asked:
        yield Need(place, job, is_active=not is_begun, siblings=siblings)
    last = sorted({host for _, host in _last_hosts(turn, job)} - {each.host for each in held})
    for at, number in enumerate(numbers[: max(0, missing)]):
        preferred = last[at] if at < len(last) and job.policy.host_affinity else None
        yield Need(
            BerthId(job.name, number), job, is_active=not is_begun, preferred=preferred, siblings=siblings
        )


def _last_hosts(turn: Turn, job: Job) -> Iterator[tuple[TaskId, str]]:
    """Yield where copies that are nowhere now were last."""
    for _, processor in ((j, p) for j, p in turn.unsettled() if j.name == job.name):
        for cohort in turn.cohorts(job, processor) or ():
            for copy in cohort.copies:
                if turn.holder(cohort, copy) is None and cohort.record.hosts.get(copy):
                    yield cohort.record.task, cohort.record.hosts[copy]


# ---- asking ----


def requests(turn: Turn, needed: Mapping[Place, Need]) -> Iterator[Action]:
    """Yield a request for every need that nothing is under way for."""
    view = turn.view
    busy: set[Place | None] = {each.place for each in view.requests.values()}
    waiting = {each.place for each in view.containers.values() if view.is_free(each) or each.binding}
    number = view.decisions + turn.decided
    asked_on: dict[str, tuple[int, int]] = _loads(turn) if needed else {}
    asked: dict[ProcessorId, list[Sibling]] = {}
    for place, need in needed.items():
        if need.is_met or place in busy or (place in waiting and not need.is_reservation):
            continue
        attempts = view.attempts.get(place, Attempts())
        if exhausted(view, need.job, attempts):
            continue
        if view.now_ms < attempts.not_before_ms and not need.only_host:
            continue
        if not need.is_reservation:
            # The place of a lost active is about to be a standby's, when another copy can take over.
            can_wait = not need.only_host and not (need.is_active and _is_alone(turn, place))
            if can_wait and _is_failing_over(view, need.job):
                continue
        if isinstance(place, SlotId) and place.processor in asked:
            # Asked for in this turn: the view knows of it only in the next.
            need = replace(need, siblings=(*need.siblings, *asked[place.processor]))  # noqa: PLW2901
        host, kind, reason = _where(turn, need, attempts, asked_on)
        if need.only_host and host is None:
            continue
        number += 1
        if isinstance(place, SlotId) and host is not None:
            asked.setdefault(place.processor, []).append(Sibling(str(place), turn.host(host)))
        if host is not None:
            every, same = asked_on.get(host, (0, 0))
            asked_on[host] = (every + 1, same + need.is_active)
        yield RequestContainer(number, place, host, kind, reason)


def _loads(turn: Turn) -> dict[str, tuple[int, int]]:
    """Return host → containers there, or asked for there: all, and those that are for actives."""
    loads: dict[str, tuple[int, int]] = {}
    for each in turn.view.containers.values():
        if each.host and each.presence is not Presence.LEAVING:
            every, actives = loads.get(each.host, (0, 0))
            has_active = turn.loads().get(each.id, [0, 0])[0] > 0
            loads[each.host] = (every + 1, actives + has_active)
    for request in turn.view.requests.values():
        if request.host is not None:
            every, actives = loads.get(request.host, (0, 0))
            loads[request.host] = (every + 1, actives)
    return loads


def _is_alone(turn: Turn, place: Place) -> bool:
    """Return whether no live copy can take over what is lost."""
    if isinstance(place, BerthId):
        return False
    job = turn.view.jobs[place.processor.job]
    for cohort in turn.cohorts(job, place.processor) or ():
        if any(turn.holder(cohort, copy) is not None for copy in cohort.record.placed):
            return False
    return True


def _is_failing_over(view: ClusterView, job: Job) -> bool:
    """Return whether a failover of ``job`` is under way that lost copies should leave the machines to."""
    if any(
        failover.processor.job == job.name
        and not failover.is_planned
        and view.now_ms - failover.detected_ms < job.policy.restore_delay_ms
        for failover in view.failovers.values()
    ):
        return True
    return not job.policy.restarts and any(
        processor.job == job.name and view.now_ms - lost.at_ms < job.policy.restore_delay_ms
        for processor, lost in view.lost_actives.items()
    )


def exhausted(view: ClusterView, job: Job, attempts: Attempts) -> bool:
    """Return whether a place failed more often within the window than the job allows."""
    if job.policy.retry_count < 0:
        return False
    recent = [each for each in attempts.failures_ms if each > view.now_ms - job.policy.retry_window_ms]
    return len(recent) > job.policy.retry_count


def question(turn: Turn, need: Need, loads: Mapping[str, tuple[int, int]]) -> Question:
    """Return what the rules of placement are asked about a need."""
    view = turn.view
    return Question(
        siblings=need.siblings,
        histories=need.histories,
        preferred=need.preferred,
        excluded=view.excluded,
        avoided={host: why for host, (until, why) in view.avoided.items() if until > view.now_ms},
        loads=loads,
        spread=need.job.policy.spread,
    )


def _where(
    turn: Turn, need: Need, attempts: Attempts, loads: Mapping[str, tuple[int, int]]
) -> tuple[str | None, RequestKind, str]:
    """Return the host to ask for, or None for any, with the kind of request, and why."""
    view = turn.view
    if need.is_reservation:
        return need.preferred, RequestKind.RESERVATION, "the standby there makes way for it"
    if need.only_host:
        if need.preferred in view.hosts and need.preferred not in view.excluded:
            return need.preferred, RequestKind.PREFERRED, "it was there when it was lost"
        return None, RequestKind.PREFERRED, "its own host cannot be asked for"
    if attempts.in_row >= NAMED_FIRST and attempts.in_row % 2 == 0:
        # In turn with named ones: hosts that came after submit have no name to ask for.
        return None, RequestKind.ANY, f"any host, after {attempts.in_row} requests in vain"
    asked = question(turn, need, loads)
    found = best(asked, tuple(view.hosts.values()))
    if found is not None:
        has_state = any(each.host == found.host for held in need.histories.values() for each in held)
        is_preferred = found.host == need.preferred or has_state
        kind = RequestKind.PREFERRED if is_preferred else RequestKind.NAMED
        return found.host, kind, "; ".join(found.reasons) or "the best of those that are allowed"
    if not view.hosts:
        return None, RequestKind.ANY, "no host is known by name"
    return None, RequestKind.ANY, "any host: no named one will do"


# ---- giving back ----


def releases(turn: Turn, needed: Mapping[Place, Need]) -> Iterator[Action]:
    """Yield the end of every request and container that serves nothing (any more)."""
    view = turn.view
    for request in view.requests.values():
        if request.state is RequestState.ASKING:
            continue
        outcome, reason, avoid = _is_over(turn, request, needed)
        if outcome is not None:
            yield CancelRequest(request.number, request.skein_id, outcome, reason, avoid)
    for container in view.containers.values():
        if container.presence is Presence.LIVE:
            if view.is_free(container) and container.id not in turn.taken:
                found = _does_not_fit(turn, container, needed)
                if found is not None:
                    yield ReleaseContainer(container.id, container.skein_id, *found)
            continue
        waited = view.now_ms - container.since_ms
        if container.presence is Presence.SUSPECT:
            is_useless = container.reason.startswith("replica-")
            if is_useless or waited >= policy_of(view, container).suspect_grace_ms:
                yield ReleaseContainer(container.id, container.skein_id, Outcome.LOST, container.reason)
        elif container.presence is Presence.LEAVING and waited >= policy_of(view, container).exit_timeout_ms:
            reason = f"did not leave by itself: {container.reason}"
            yield ReleaseContainer(container.id, container.skein_id, Outcome.ENDED, reason)
    yield from _stuck(turn)


def _stuck(turn: Turn) -> Iterator[Action]:
    """Yield the end of every displaced standby that does not confirm its stop in time: its death confirms it."""
    for job, processor in turn.unsettled():
        for cohort in turn.cohorts(job, processor) or ():
            displaced = cohort.record.displaced
            if displaced is None or has_stopped(turn, cohort, displaced):
                continue
            holder = turn.holder(cohort, displaced)
            if holder is None or not is_told(turn.view, holder):
                continue
            if turn.view.now_ms - holder.sent_ms > job.policy.stop_timeout_ms:
                reason = f"did not stop its standby in {job.policy.stop_timeout_ms} ms"
                yield ReleaseContainer(holder.id, holder.skein_id, Outcome.REPLACED, reason)


def _is_over(turn: Turn, request: Request, needed: Mapping[Place, Need]) -> tuple[Outcome | None, str, str]:
    """Return what became of a request, why, and which host to avoid then; None first when it stands."""
    view = turn.view
    job = view.jobs.get(job_of(request.place))
    waited = view.now_ms - request.since_ms
    if job is None or not job.is_led:
        return Outcome.ENDED, "the job is being undeployed", ""
    if isinstance(request.place, SlotId) and turn_is_closed(turn, job, request.place.processor):
        return None, "", ""
    need = needed.get(request.place)
    if need is None:
        return Outcome.SURPLUS, "the place is taken, or not wanted any more", ""
    if need.is_reservation != (request.kind is RequestKind.RESERVATION):
        return Outcome.SURPLUS, "something else is needed there now", ""
    limit = job.policy.request_timeout_ms
    if need.only_host:
        limit = job.policy.samehost_timeout_ms
    elif need.is_reservation:
        # No other host will do instead, and its standby has been stopped for it.
        limit = max(limit, job.policy.samehost_timeout_ms)
    if request.state is RequestState.WAITING and request.host is not None and waited > limit:
        return Outcome.EXPIRED, f"host {request.host} gave no container in {waited} ms", request.host
    if request.state is RequestState.GRANTED and waited > job.policy.launch_timeout_ms:
        return Outcome.EXPIRED, f"its container did not register in {waited} ms", request.host or ""
    if request.host is not None and request.host in view.excluded:
        return Outcome.EXCLUDED, f"{request.host} is to be empty", ""
    return None, "", ""


def turn_is_closed(turn: Turn, job: Job, processor: ProcessorId) -> bool:
    """Return whether a processor's records are being written, or about to be: judge when that is done."""
    is_known = processor in job.model.processors
    return is_known and (processor in turn.touched or turn.cohorts(job, processor) is None)


def _does_not_fit(
    turn: Turn, container: Container, needed: Mapping[Place, Need]
) -> tuple[Outcome, str] | None:
    """Return why a container that serves nothing is given back; None when it is about to, or may soon."""
    view = turn.view
    job = view.job_of(container)
    if job is not None and not job.is_led:
        return None  # it leaves by the order that follows the fence
    if job is None and any(not each.is_led for each in view.jobs.values()):
        return None
    if job is not None and not is_current(job, container):
        return Outcome.REPLACED, f"it runs revision {container.revisions.get(job.name)}"
    if container.host in view.excluded:
        return Outcome.EXCLUDED, f"excluded: {container.host} is to be empty"
    if any(turn_is_closed(turn, other, each) for other, each in turn.unsettled() if job in (None, other)):
        return None  # a decision is being written: judge when that is done
    if job is not None and job.model.is_mixed:
        return _surplus_of_mixed(turn, job, container)
    mine = [each for each in needed.values() if job is None or each.job.name == job.name]
    if any(isinstance(each.place, BerthId) for each in mine):
        return None
    return _unwanted(container, needed, mine)


def _surplus_of_mixed(turn: Turn, job: Job, container: Container) -> tuple[Outcome, str] | None:
    serving = [
        each
        for each in turn.view.containers.values()
        if (owner := turn.view.job_of(each)) is not None and owner.name == job.name
    ]
    crowded = crowding(turn, job)
    if len(serving) > job.model.containers + (1 if crowded else 0):
        return Outcome.SURPLUS, "surplus: the job has containers enough"
    if any(each.id == container.id for each in crowded):
        return Outcome.SAME_HOST, f"same-host: {container.host} holds another container of {job.name}"
    return None


def _unwanted(
    container: Container, needed: Mapping[Place, Need], mine: list[Need]
) -> tuple[Outcome, str] | None:
    """Return why a free container fits none of the needs; None when it fits one."""
    if not mine:
        return Outcome.SURPLUS, "surplus: every place is taken"
    own = needed.get(container.place) if container.place is not None else None
    for need in [own] if own is not None else mine:
        if need.is_reservation:
            if container.host == need.preferred:
                return None
        elif all(container.host != each.host.name for each in need.siblings):
            return None
    labels = (each.label for need in mine for each in need.siblings if each.host.name == container.host)
    sharing = next(labels, "")
    if sharing and container.sent:
        # It served, and its copy was given up as planned: policy ``restart`` stops a standby for the active's sake.
        return Outcome.REPLACED, f"replaced: {container.host} holds {sharing}, which it made way for"
    if sharing:
        return Outcome.SAME_HOST, f"same-host: {container.host} holds {sharing}, a copy of the same tasks"
    return Outcome.SURPLUS, "surplus: it is not where a container is needed"
