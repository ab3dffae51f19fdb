"""Which slots need a container: a copy that has none or is to move, and each one that a mixed job lacks. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from appmaster.planning.placement.fault_domains import Location
from appmaster.planning.placement.left_state import histories
from appmaster.planning.placement.turn import Cohort, Turn, is_current
from appmaster.planning.placement.upgrade import extra_containers
from appmaster.planning.rules.failover import poison, reservation
from appmaster.planning.rules.moving import kept_apart, move_reason, relocation_of
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import SharedSlotId, Slot
from appmaster.planning.state.view import Container, Presence, RequestState
from locality.history import History
from locality.question import Sibling
from standby.shared.model import ProcessorId, SlotId, TaskId


@dataclass(frozen=True, slots=True)
class Need:
    """A slot that needs a container."""

    slot: Slot
    job: Job
    is_active: bool
    """Its tasks are not processed until the container is there."""
    is_reservation: bool = False
    is_met: bool = False
    """Its container is there and waits."""
    only_host: bool = False
    """Policy ``restart``: only its own host is requested for now."""
    preferred: str | None = None
    locations: frozenset[Location] | None = None
    """Only these locations will do, because the copy could stay where it is; None: any will do."""
    siblings: tuple[Sibling, ...] = ()
    histories: Mapping[TaskId, History] = field(default_factory=dict)


def needs(turn: Turn) -> dict[Slot, Need]:
    """Return every slot that needs a container, actives' first."""
    found: list[Need] = []
    for job, processor in turn.unsettled():
        if not job.is_led or job.quarantined or job.model.processors[processor].parked:
            continue
        if job.model.is_mixed:
            continue
        cohorts = turn.cohorts(job, processor)
        if cohorts is not None and processor not in turn.touched:
            found += _of_processor(turn, job, processor, cohorts)
    # Containers that came or went affect the processors they serve; an empty one serves none, so all are checked.
    for job in turn.view.jobs.values():
        if job.model.is_mixed and job.is_led and not job.quarantined:
            found += _shared_slots(turn, job)
    found.sort(key=lambda need: not need.is_active)
    return {each.slot: each for each in found}


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
    """Return the need of one copy of a cohort; None if it has its container, or will get its slot's home."""
    record, copy, job = cohort.record, slot.copy, cohort.job
    holder = turn.holder(cohort, copy)
    is_active = copy == record.active or (record.active is None and copy == cohort.copies[0])
    if turn.is_kept(cohort, copy) and record.displaced is None:
        return None
    if record.displaced is not None:
        if not is_active:
            return None
        host = record.hosts.get(copy, "")
        is_met = reservation(turn, job, slot, host) is not None
        return Need(slot, job, is_active=True, is_reservation=True, is_met=is_met, preferred=host)
    home = turn.home(cohorts, slot)
    if holder is None:
        if home is not None:
            return None
        activates = is_active or all(turn.holder(cohort, each) is None for each in record.placed)
        if activates and poison(cohort, turn):
            return None
        lost = turn.view.lost_actives.get(cohort.processor)
        only_host = (
            is_active
            and lost is not None
            and cohort.restarts
            and any(turn.holder(cohort, each) is not None for each in record.placed)
            and turn.view.now_ms >= turn.view.no_displacing.get(cohort.processor, 0)
        )
        return _need(turn, cohorts, cohort, slot, is_active=is_active, only_host=only_host)
    if copy in record.moving or not move_reason(turn, cohorts, cohort, copy, holder):
        return None
    if home is not None and home.id != holder.id:
        return None
    among = kept_apart(turn, cohorts, cohort, slot, holder)
    return _need(turn, among, cohort, slot, is_active=False, only_host=False)


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
    relocation = relocation_of(turn, cohort, slot.copy) if holder is not None else None
    if holder is not None and relocation is None:
        # It is to move to another host, if there is one.
        taken = {holder.host, *(each.host.name for each in siblings)}
        if any(host not in taken and host not in turn.view.drained for host in turn.view.hosts):
            siblings = (*siblings, Sibling(str(slot), turn.host(holder.host, holder.cell)))
    affine = cohort.job.policy.host_affinity
    return Need(
        slot,
        cohort.job,
        is_active=is_active,
        only_host=only_host,
        preferred=record.hosts.get(slot.copy) if affine and holder is None else None,
        locations=relocation.locations if relocation is not None else None,
        siblings=siblings,
        histories=histories(turn, (cohort,), slot.copy),
    )


def counted_containers(turn: Turn, job: Job) -> list[Container]:
    """Return the containers that count towards a mixed job's number; one that has to leave is replaced beforehand."""
    view = turn.view
    return [
        each
        for each in turn.of_job(job)
        if each.presence not in (Presence.LEAVING, Presence.ORPHAN)
        and not (each.presence is Presence.LIVE and view.must_leave(each))
        and not (each.presence is Presence.LIVE and not is_current(job, each) and view.is_free(each))
    ]


def _shared_slots(turn: Turn, job: Job) -> Iterator[Need]:
    """Yield a need for every container that a mixed job lacks, those first that it has requested."""
    view = turn.view
    held = counted_containers(turn, job)
    lacking = job.model.containers + extra_containers(turn, job) - len(held)
    requests = sorted(view.requests_of(job.name), key=lambda each: each.state is not RequestState.GRANTED)
    asked = [each.slot for each in requests]
    missing = lacking - len(asked)
    if lacking <= 0:
        return
    used = {each.slot for each in held} | set(asked)
    slots = (SharedSlotId(job.name, number) for number in itertools.count())
    vacant = itertools.islice((each for each in slots if each not in used), max(0, missing))
    hosts = {each.host for each in held if each.host}
    # Containers go to different hosts until there are as many as a task has copies; after that they may share one.
    is_scarce = len(hosts) < job.model.copies
    siblings = tuple(
        Sibling(f"a container of {job.name}", turn.host(host, cell))
        for host, cell in sorted({(each.host, each.cell) for each in held if each.host})
        if is_scarce
    )
    is_begun = any(each.id in view.assigned for each in held)
    for slot in asked[:lacking]:
        yield Need(slot, job, is_active=not is_begun, siblings=siblings)
    last = sorted({host for _, host in _last_hosts(turn, job)} - {each.host for each in held})
    for at, slot in enumerate(vacant):
        preferred = last[at] if at < len(last) and job.policy.host_affinity else None
        yield Need(
            slot,
            job,
            is_active=not is_begun,
            preferred=preferred,
            siblings=siblings,
        )


def _last_hosts(turn: Turn, job: Job) -> Iterator[tuple[TaskId, str]]:
    """Yield the last hosts of copies that are in no container now."""
    for _, processor in ((j, p) for j, p in turn.unsettled() if j.name == job.name):
        for cohort in turn.cohorts(job, processor) or ():
            for copy in cohort.copies:
                if turn.holder(cohort, copy) is None and cohort.record.hosts.get(copy):
                    yield cohort.record.task, cohort.record.hosts[copy]
