"""Standbys of a pool that move so that another copy of their job finds a place. Pure.

What is free may be of no use to a copy: it is on the host of another copy of its tasks. Then the path from the copy to
what is free (`appmaster.planning.requests.claims`) goes on over standbys that have a place: in a mixed job over the
room that its containers have left (``--tasks``), else over the processes of the pool. The last standby on the shortest
path moves as one out of a shared fault domain does: it is filled where there is room while its old copy serves
(`appmaster.planning.rules.moving`). That makes the path one step shorter, so it ends.

Only a standby in sync moves, whose active lives, and one of a job at a time. An active never moves for this reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from appmaster.planning.placement.eligibility import free_for
from appmaster.planning.placement.fault_domains import Relocation
from appmaster.planning.placement.pool_fit import demand_of
from appmaster.planning.placement.shared_containers import shared_containers, why_no_container
from appmaster.planning.placement.turn import Cohort, Turn, is_current
from appmaster.planning.placement.upgrade import outdated, surplus_container
from appmaster.planning.requests.claims import PoolClaims, ProcessClaim
from appmaster.planning.requests.requests import is_failing_over
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import Slot
from appmaster.planning.state.reasons import DecisionBasis
from appmaster.planning.state.view import Container, Presence
from locality.fit import ANY, PoolProcess
from standby.shared.model import NodeOffer, ProcessorId, SlotId


@dataclass(frozen=True, slots=True)
class _Standby:
    """A standby that has a place."""

    slot: SlotId
    holder: Container
    claim: ProcessClaim
    goes_to: Collection[str] | None
    """The hosts where something is requested or waits for it; empty: it is being filled elsewhere; None: it stays."""

    def relocation(self, hosts: Collection[str], lacking: Slot) -> Relocation:
        """Return its move to one of ``hosts``, for the sake of a copy that has no place."""
        locations = frozenset((each, self.holder.cell) for each in hosts)
        return Relocation(
            self.slot.copy, locations, f"{lacking} finds no other place", DecisionBasis.MAKES_ROOM
        )


def make_room(turn: Turn) -> None:
    """Note in the turn which standbys are to move so that other copies find a place."""
    if not turn.view.processes:
        return
    processors: dict[str, list[ProcessorId]] = {}
    for job, processor in turn.unsettled():
        if job.is_led and not job.quarantined and not job.model.processors[processor].parked:
            processors.setdefault(job.name, []).append(processor)
    found: dict[ProcessorId, Relocation] = {}
    for name, unsettled in processors.items():
        job = turn.view.jobs[name]
        lacking = [each for processor in unsettled for each in _lacking(turn, job, processor)]
        # What a processor lacks whose records are being written is not known.
        is_known = all(turn.cohorts(job, each) is not None for each in unsettled)
        if lacking or (not is_known and _has_reserved(turn, job)):
            found.update(_relocations(turn, job, lacking, is_known=is_known))
    turn.make_room(found)


def _has_reserved(turn: Turn, job: Job) -> bool:
    """Return whether a process is requested or kept for one copy of a job."""
    is_asked = bool(turn.view.requests_of(job.name))
    return not job.model.is_mixed and (is_asked or bool(turn.free(job)))


def _lacking(turn: Turn, job: Job, processor: ProcessorId) -> Iterator[tuple[Cohort, int]]:
    """Yield the copies of a processor that have no place, and nothing that waits for them."""
    cohort = turn.only_cohort(job, processor)
    if cohort is None or cohort.record.displaced is not None or processor in turn.view.lost_actives:
        return
    for copy in cohort.copies:
        slot = SlotId(processor, copy)
        if turn.holder(cohort, copy) is not None or turn.is_kept(cohort, copy):
            continue
        if job.model.is_mixed or (turn.request_at(slot) is None and free_for(turn, (cohort,), slot) is None):
            yield cohort, copy


def _relocations(
    turn: Turn, job: Job, lacking: list[tuple[Cohort, int]], *, is_known: bool
) -> dict[ProcessorId, Relocation]:
    """Return each processor of which a standby is to move → where to."""
    live = shared_containers(turn, job) if job.model.is_mixed else []
    if job.model.is_mixed and not _is_limited(turn, job, live):
        return {}
    claims = PoolClaims(turn, list(_room(turn, job, live)) if job.model.is_mixed else None)
    standbys = {each.slot: each for each in _standbys(turn, job, live)}
    going = {
        claims.add(_process(job, each.holder)): each for each in standbys.values() if each.goes_to is not None
    }
    wanted = [_claim(turn, cohort, copy, live) for cohort, copy in lacking]
    without = [each for each in wanted if not claims.place(each)]
    if going or not is_known or is_failing_over(turn.view, job):
        # It goes on while another copy needs what it leaves, or may need it.
        return {
            each.slot.processor: each.relocation(each.goes_to, user)
            for number, each in going.items()
            if each.goes_to and (user := claims.holder_of(number) or (each.slot if not is_known else None))
        }
    free = {each.claim.demand: claims.hosts(each.claim.demand) for each in standbys.values()}
    for each in standbys.values():
        claims.add(_process(job, each.holder), each.claim)
    for claim in without:
        for slot, host in claims.make_room(claim).items():
            mover = standbys.get(slot) if isinstance(slot, SlotId) else None
            if mover is not None:
                hosts = free[mover.claim.demand] & {*mover.claim.hosts}
                return {mover.slot.processor: mover.relocation(hosts or {host}, claim.slot)}
    return {}


def _is_limited(turn: Turn, job: Job, live: Sequence[Container]) -> bool:
    """Return whether all containers that a mixed job can have now are there, and some take only so many copies."""
    is_asked = bool(turn.view.requests_of(job.name))
    is_changing = bool(outdated(turn, job)) or surplus_container(turn, job) is not None
    if is_asked or is_changing or not any(each.most_tasks for each in live):
        return False
    return len(live) >= job.model.containers or bool(why_no_container(turn, job))


def _room(turn: Turn, job: Job, live: Sequence[Container]) -> Iterator[PoolProcess]:
    """Yield a process for each copy that the containers of a mixed job take beside those that they have."""
    for each in live:
        most = each.most_tasks or len(job.model.processors)
        for _ in range(most - turn.loads.of(each.id).copies):
            yield _process(job, each)


def _process(job: Job, container: Container) -> PoolProcess:
    """Return what one copy takes of a container."""
    offer = container.offer if container.offer is not None and not job.model.is_mixed else NodeOffer()
    return PoolProcess(container.host, offer)


def _standbys(turn: Turn, job: Job, live: Sequence[Container]) -> Iterator[_Standby]:
    """Yield the standbys of a job that may move, or are about to."""
    for processor, model in job.model.processors.items():
        cohort = turn.only_cohort(job, processor)
        if cohort is None or model.parked or processor in turn.view.handovers:
            continue
        record = cohort.record
        if record.displaced is not None or record.active is None:
            continue
        if turn.holder(cohort, record.active) is None:
            continue
        for copy in cohort.copies:
            holder = turn.holder(cohort, copy)
            if copy == record.active or holder is None or holder.presence is not Presence.LIVE:
                continue
            if turn.view.must_leave(holder) or not is_current(job, holder):
                continue
            slot, claim = SlotId(processor, copy), _claim(turn, cohort, copy, live, holder)
            reserved = turn.reserved_hosts(job, slot) & {*claim.hosts}
            if copy in record.moving:
                yield _Standby(slot, holder, claim, ())
            elif reserved or (copy in record.in_sync and not record.moving):
                yield _Standby(slot, holder, claim, reserved or None)


def _claim(
    turn: Turn, cohort: Cohort, copy: int, live: Sequence[Container], holder: Container | None = None
) -> ProcessClaim:
    job, slot = cohort.job, SlotId(cohort.processor, copy)
    is_mixed = job.model.is_mixed
    known = {each.host for each in live} if is_mixed else turn.view.hosts.keys() - turn.view.drained.keys()
    closed = {each.host.name for each in turn.siblings((cohort,), slot)}
    if holder is not None:
        closed.add(holder.host)
    return ProcessClaim(slot, ANY if is_mixed else demand_of(job, slot), slot.processor, known - closed)
