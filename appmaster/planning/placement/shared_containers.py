"""Containers that a mixed job's processors share: which copy goes to which container (docs/decisions/0007). Pure."""

from __future__ import annotations

from appmaster.planning.placement.eligibility import fits_host
from appmaster.planning.placement.left_state import freshness_of
from appmaster.planning.placement.pool_fit import most_copies, why_none_waits
from appmaster.planning.placement.turn import Cohort, Turn, is_current
from appmaster.planning.placement.upgrade import crowded_containers, may_take, outdated, surplus_container
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import SharedSlotId
from appmaster.planning.state.view import HOLDING, Container, Presence
from locality.history import NOTHING

#: Failed requests in a row after which a mixed job begins with fewer containers.
_IN_VAIN = 2


def choose_shared(
    turn: Turn, cohort: Cohort, copy: int, *, activates: bool, leaves: str = ""
) -> Container | None:
    """Return the container of a mixed job for an unplaced copy: the least loaded that may take it; None if none may.

    While containers are missing, the others take no more than their share, to leave room for the missing ones. An
    active does not wait for them once the job has begun. State on a host counts only for a container that has less
    than its even share. A copy that ``leaves`` a host goes to another host if possible: it is filled there while the
    old one serves.
    """
    job = cohort.job
    live = shared_containers(turn, job)
    are_missing = len(live) < job.model.containers
    if are_missing and not _may_begin(turn, job):
        return None
    share = max(1, len(live) if _in_vain(turn, job) else job.model.containers)
    tasks, copies = len(job.model.processors), len(job.model.slots)
    most = [most_copies(each, share, live) for each in (tasks, copies)]
    even = tasks // share if activates else copies // share
    eligible = [each for each in live if fits_host(turn, cohort, copy, each)]
    if activates:
        eligible = [each for each in eligible if not turn.is_superseded(job, each)]
        roomy = [each for each in eligible if turn.loads.of(each.id).actives < most[0]]
        if cohort.record.active is not None and not roomy:
            roomy = eligible
    else:
        roomy = [each for each in eligible if turn.loads.of(each.id).copies < most[1]]
        # A job without standbys has no copy to hand over to: a copy that must leave goes wherever it can.
        if not roomy and (not are_missing or len(cohort.copies) == 1):
            roomy = eligible
    state = freshness_of(turn, (cohort,), copy)
    last = cohort.record.hosts.get(copy)
    others = [
        holder
        for each in cohort.record.placed
        if each != copy and (holder := turn.holder(cohort, each)) is not None
    ]
    cells = [each.cell for each in others]

    def rank(each: Container) -> tuple[object, ...]:
        actives, all_copies = turn.loads.of(each.id)
        held = state.get(each.host, NOTHING)
        return (
            each.host == leaves,
            cells.count(each.cell),
            sum(
                turn.view.falls_with(each, other.host) or turn.view.falls_with(other, each.host)
                for other in others
            ),
            # A copy that moves to even out the load is placed by load: ranked by state, it would come back at once.
            held if not leaves and (actives if activates else all_copies) < even else NOTHING,
            actives if activates else 0,
            all_copies,
            held,
            each.host != last,
            each.id,
        )

    return min(roomy, key=rank, default=None)


def shared_containers(turn: Turn, job: Job) -> list[Container]:
    """Return the live containers of a mixed job that may be given copies; not the one that is replaced next."""
    crowded = {each.id for each in crowded_containers(turn, job)}
    return [
        each
        for each in turn.of_job(job)
        if each.presence is Presence.LIVE
        and may_take(turn, job, each)
        and (turn.view.assigned.get(each.id) or (is_current(job, each) and each.id not in crowded))
        and not turn.view.must_leave(each)
    ]


def is_overloaded(turn: Turn, cohort: Cohort, copy: int, holder: Container) -> bool:
    """Return whether another container of a mixed job that may take a copy holds at least two copies fewer."""
    return less_loaded(turn, cohort, copy, holder) is not None


def less_loaded(turn: Turn, cohort: Cohort, copy: int, holder: Container) -> Container | None:
    """Return the container with the fewest copies of those on other hosts that may take a copy and hold two fewer."""
    if outdated(turn, cohort.job) or surplus_container(turn, cohort.job) is not None:
        return None  # containers are being replaced anyway: the load is evened out after the upgrade
    mine = turn.loads.of(holder.id).copies
    found = (
        each
        for each in shared_containers(turn, cohort.job)
        if each.host != holder.host
        and mine - turn.loads.of(each.id).copies >= 2
        and fits_host(turn, cohort, copy, each)
    )
    return min(found, key=lambda each: (turn.loads.of(each.id).copies, each.id), default=None)


def lacks_room(turn: Turn, job: Job) -> bool:
    """Return whether a copy of a mixed job is in no container, as far as is known, and some take only so many."""
    if job.name not in turn.lacking:
        is_limited = any(each.most_tasks for each in shared_containers(turn, job))
        turn.lacking[job.name] = is_limited and any(
            (cohorts := turn.cohorts(job, processor)) is None
            or any(turn.holder(each, copy) is None for each in cohorts for copy in each.copies)
            for owner, processor in turn.unsettled()
            if owner.name == job.name and not job.model.processors[processor].parked
        )
    return turn.lacking[job.name]


def _may_begin(turn: Turn, job: Job) -> bool:
    """Return whether a mixed job has begun, or may begin with the containers that are there.

    Without this wait the first containers would get all actives (Spring XD's quiet period).
    """
    if job.was_deployed or any(
        (recorded := turn.view.records.get(task)) is not None and recorded.record.epoch > 0
        for task in job.model.tasks
    ):
        return True
    quiet = turn.view.now_ms - turn.view.arrived_ms.get(job.name, turn.view.now_ms)
    return quiet >= job.policy.quiet_ms


def _in_vain(turn: Turn, job: Job) -> bool:
    """Return whether the containers that a mixed job lacks are unavailable for now.

    A container that is to leave is not lacked yet: its standbys stay until another one has come.
    """
    is_asked = bool(turn.view.requests_of(job.name))
    if turn.view.processes and not is_asked:
        return len(_held(turn, job)) < job.model.containers and bool(why_no_container(turn, job))
    return any(
        isinstance(slot, SharedSlotId) and slot.job == job.name and each.in_row >= _IN_VAIN
        for slot, each in turn.view.attempts.items()
    )


def why_no_container(turn: Turn, job: Job) -> str:
    """Return why no process of the pool that waits can be a container of a mixed job; empty on YARN, or if one can."""
    hosts = {each.host for each in _held(turn, job) if each.host}
    is_scarce = len(hosts) < job.model.copies
    closed = dict.fromkeys(hosts, f"holds a container of {job.name}") if is_scarce else {}
    return why_none_waits(turn, job, SharedSlotId(job.name, 0), closed)


def _held(turn: Turn, job: Job) -> list[Container]:
    return [each for each in turn.of_job(job) if each.presence in HOLDING]
