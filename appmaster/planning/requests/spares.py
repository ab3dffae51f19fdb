"""Spare containers: which slot takes one, how many a job has now, and which are given back. Pure.

A spare container (`job.container.spare.count`) holds no copy; its process has the job's code and a warm pipeline. A
slot that needs a container takes one, and from then on it counts as a container that was requested for that slot
(docs/decisions/0047). Spares are the last to be requested and the first to be given back (rule `spares-last`): none is
requested before its job is whole and warm and nothing in the cluster lacks a container, and where something gets none
for want of room, that many spares fewer are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from appmaster.planning.placement.eligibility import is_clear
from appmaster.planning.placement.pool_fit import demand_of
from appmaster.planning.placement.turn import Turn, is_current
from appmaster.planning.requests.claims import PoolClaims, ProcessClaim
from appmaster.planning.requests.needs import Need
from appmaster.planning.requests.requests import cell_loads, host_loads, placement_question, spare_loads
from appmaster.planning.rules.deploy import is_whole
from appmaster.planning.state.actions import TakeSpare
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import Slot, SpareSlotId, vacant_spares
from appmaster.planning.state.reasons import SetbackKind
from appmaster.planning.state.view import (
    HOLDING,
    Container,
    Presence,
    RequestState,
)
from locality.fit import fits
from locality.judging import best
from standby.shared.model import SlotId


@dataclass(frozen=True, slots=True)
class SpareShare:
    """What there is to be of spare containers now."""

    needs: Mapping[Slot, Need] = field(default_factory=dict)
    """Those that are to be requested, or whose requests are to stand."""
    surplus: Mapping[str, str] = field(default_factory=dict)
    """Spare containers to give back → the reason."""


def take(turn: Turn, needed: Mapping[Slot, Need]) -> Iterator[TakeSpare]:
    """Yield which slots that need a container take a spare one, and note in the turn that it is taken."""
    view = turn.view
    if not needed or not _are_there(turn):
        return
    waiting = {each.slot for each in view.containers.values() if view.is_free(each) or each.binding}
    for slot, need in needed.items():
        request = turn.request_at(slot)
        if need.is_met or slot in waiting or (request is not None and request.state is RequestState.GRANTED):
            continue
        found = _best(turn, need)
        if found is not None:
            turn.take(found)
            yield TakeSpare(found.id, slot)


def _are_there(turn: Turn) -> bool:
    return any(each.is_spare for each in turn.view.containers.values())


def _best(turn: Turn, need: Need) -> Container | None:
    """Return the spare container for a need: a ready one first, then by the rules of placement; None: none will do."""
    open_ones = [each for each in turn.spares(need.job) if _may_serve(turn, need, each)]
    if not open_ones:
        return None
    question = placement_question(turn, need, host_loads(turn), cell_loads(turn), of_spares=True)
    ready = [each for each in open_ones if each.is_warm]
    for among in (ready, open_ones):
        verdict = best(question, [turn.host(each.host, each.cell) for each in among])
        if verdict is not None:
            there = [each for each in among if (each.host, each.cell) == (verdict.host, verdict.cell)]
            return min(there, key=lambda each: each.id)
    return None


def _may_serve(turn: Turn, need: Need, spare: Container) -> bool:
    """Return whether a spare container may serve a need; the same-host check is one of the rules of placement."""
    if spare.presence is not Presence.LIVE or spare.id in turn.taken or not _may_stay(turn, need.job, spare):
        return False
    if not fits(demand_of(need.job, need.slot), spare.offer):
        return False
    if (need.is_reservation or need.only_host) and spare.host != need.preferred:
        return False
    if need.locations is not None and (spare.host, spare.cell) not in need.locations:
        return False
    if not isinstance(need.slot, SlotId):
        return True
    # Otherwise it would wait for a process on its host that may be stalled for long.
    cohorts = turn.cohorts(need.job, need.slot.processor) or ()
    return need.is_reservation or all(is_clear(turn, each, spare) for each in cohorts)


def _may_stay(turn: Turn, job: Job, spare: Container) -> bool:
    return is_current(job, spare) and not turn.view.must_leave(spare)


def share(turn: Turn, needed: Mapping[Slot, Need]) -> SpareShare:
    """Return what there is to be of spare containers, given the needs that have not taken one."""
    view = turn.view
    are_there = _are_there(turn)
    jobs = [
        each for each in view.jobs.values() if each.policy.spare_count or (are_there and turn.spares(each))
    ]
    if not jobs:
        return SpareShare()
    # A copy that could stay where it is may wait long: YARN lists a host that is down for ten minutes.
    wished = {slot: each for slot, each in needed.items() if each.locations is not None}
    lacking = {slot: each for slot, each in needed.items() if not each.is_met and slot not in wished}
    starving = dict(_starving(turn, lacking))
    allowed = _allowed(jobs, starving)
    is_last = (
        not lacking
        and not any(each.is_met for each in wished.values())
        and all(
            isinstance(each.slot, SpareSlotId)
            or (each.slot in wished and each.state is not RequestState.GRANTED)
            for each in view.requests.values()
        )
    )
    found: dict[Slot, Need] = {}
    surplus: dict[str, str] = {}
    for job in jobs:
        if not job.is_led:
            continue
        target = allowed[job.name]
        kept = _ranked(turn, job, target, starving)
        reason = (
            f"{next(iter(starving))} finds no room"
            if target < job.policy.spare_count
            else "the job has enough spare containers"
        )
        surplus.update({each.id: reason for each in kept[target:] if each.presence is Presence.LIVE})
        asked = view.requests_of(job.name, are_spare=True)
        requests = sorted(asked, key=lambda each: each.state is not RequestState.GRANTED)
        standing = [each for each in requests if not lacking or each.state is RequestState.GRANTED]
        slots = [each.slot for each in standing[: max(0, target - len(kept))]]
        missing = target - len(kept) - len(slots)
        if missing > 0 and is_last and _is_whole(turn, job) and not turn.is_warming_up(job):
            slots += _vacant(turn, job, missing)
        found.update({slot: Need(slot, job, is_active=False) for slot in slots})
    return SpareShare(found, surplus)


def _is_whole(turn: Turn, job: Job) -> bool:
    """Return whether nothing in a job has to be done or waited for: no take-over and no restore is under way."""
    if job.quarantined or not job.model.processors:
        return False
    for owner, processor in turn.unsettled():
        if owner is not job:
            continue
        cohorts = turn.cohorts(job, processor)
        is_begun = processor in turn.touched or processor in turn.handing_over
        if is_begun or cohorts is None or not is_whole(turn, job, processor, cohorts):
            return False
    return True


def _vacant(turn: Turn, job: Job, count: int) -> list[SpareSlotId]:
    """Return so many slots of spare containers for which there is neither a container nor a request."""
    used = {each.slot for each in turn.spares(job)} | {each.slot for each in turn.view.requests.values()}
    return list(islice(vacant_spares(job.name, used), count))


def _ranked(turn: Turn, job: Job, target: int, starving: Mapping[Slot, tuple[Need, int]]) -> list[Container]:
    """Return the spare containers that count, the ``target`` of them first that are kept.

    Kept are those that are of no use to what finds no room, ready ones, then those on hosts with fewer copies of the
    job.
    """
    counted = [
        each
        for each in turn.spares(job)
        if each.presence in HOLDING and each.id not in turn.taken and _may_stay(turn, job, each)
    ]
    if len(counted) <= target:
        return counted
    copies = spare_loads(turn, job)

    def is_wanted(each: Container) -> bool:
        return any(
            each.host not in {sibling.host.name for sibling in need.siblings}
            and fits(demand_of(need.job, need.slot), each.offer)
            for need, _ in starving.values()
        )

    return sorted(
        counted,
        key=lambda each: (is_wanted(each), not each.is_warm, copies.get(each.host, (0, 0)), each.id),
    )


def _allowed(jobs: list[Job], starving: Mapping[Slot, tuple[Need, int]]) -> dict[str, int]:
    """Return job → how many spare containers it may have: fewer for each need that finds no room, its own job's first.

    It follows from what was asked in vain and not from how many spares are left, so none is given back twice.
    """
    allowed = {each.name: each.policy.spare_count for each in jobs}
    for need, more in starving.values():
        left = more
        for name in sorted(allowed, key=lambda each: (each != need.job.name, each)):
            fewer = min(left, allowed[name])
            allowed[name] -= fewer
            left -= fewer
    return allowed


def _starving(turn: Turn, lacking: Mapping[Slot, Need]) -> Iterator[tuple[Slot, tuple[Need, int]]]:
    """Yield the needs that find no room → how many spare containers' places they may have.

    In a pool those for which no process is left, one each. On YARN, as often as the slot's requests were not granted in
    a row.
    """
    view = turn.view
    if not view.processes:
        for slot, need in lacking.items():
            attempts = view.attempts.get(slot, Attempts())
            if attempts.last is not None and attempts.last.kind is SetbackKind.NOT_GRANTED:
                in_row, _ = attempts.row(is_move=view.is_held(slot))
                yield slot, (need, in_row)
        return
    claims = PoolClaims(turn) if lacking else None
    for slot, need in lacking.items():
        if claims is None or turn.request_at(slot) is not None:
            continue
        demand = demand_of(need.job, slot)
        closed = {each.host.name for each in need.siblings} | view.drained.keys()
        owner = slot.processor if isinstance(slot, SlotId) else None
        hosts = {each.host for each in view.processes} - closed
        if not claims.place(ProcessClaim(slot, demand, owner, hosts)):
            yield slot, (need, 1)
