"""Moves copies that share a fault domain (a host, a cell, a rack) although better locations are free. Pure.

Placement prefers hosts that share nothing with the other copies (`locality.rules`). But a copy may have been created
while only one cell, or one rack, was available, or the master of the other copies' cell may have moved to its host.
When there is a better location, one copy moves there, for a few processors at a time, once the job's containers are
warm: the processes that are started for it would delay that. If it is the active, a standby takes over first.

Every step lowers the exposure of its tasks (`FaultDomains.exposure`), so that no copy moves back and forth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from appmaster.planning.placement.fault_domains import (
    Exposure,
    FaultDomains,
    Location,
    Relocation,
    fault_domains_of,
)
from appmaster.planning.placement.pool_fit import demand_of, rests
from appmaster.planning.placement.turn import Cohort, Turn
from locality.hosts import HostInfo
from standby.shared.model import ProcessorId, SlotId

#: Most processors with a relocation under way: each of them restores a copy. A job without one may begin one beyond
#: that: those of another job may wait long for a container.
MOST_AT_ONCE: Final = 4


def next_relocation(turn: Turn, cohort: Cohort) -> Relocation | None:
    """Return which copy of a processor is to move where now; None if none is, or if others are moved first.

    None also while its tasks are placed differently: they are brought together first.
    """
    if turn.relocations is None:
        turn.relocations = _relocations(turn)
    return turn.relocations.get(cohort.processor)


def can_relocate(turn: Turn, cohort: Cohort) -> bool:
    """Return whether all copies of a processor share a fault domain, and one of them has a better location."""
    stands = _stands(turn, cohort)
    if len(stands) < 2:
        return False
    domains = _domains(turn, cohort)
    exposure = domains.exposure(stands.values())
    options = (each for copy in stands for each in _options(turn, cohort, stands, copy, exposure))
    return any(exposure) and next(options, None) is not None


def _relocations(turn: Turn) -> dict[ProcessorId, Relocation]:
    """Return the standbys that make room for other copies, and the first few processors that need a relocation."""
    found = {**turn.room}
    jobs: set[str] = set()
    for job, processor in turn.unsettled():
        if processor in found or (len(found) >= MOST_AT_ONCE and job.name in jobs) or turn.is_warming_up(job):
            continue
        cohort = turn.only_cohort(job, processor)
        if cohort is not None and can_relocate(turn, cohort):
            found[processor] = _best_step(turn, cohort)
            jobs.add(job.name)
    return found


def _best_step(turn: Turn, cohort: Cohort) -> Relocation:
    """Return the step that lowers the exposure most; among equal ones that of a standby, of the highest copy."""
    stands = _stands(turn, cohort)
    domains = _domains(turn, cohort)
    exposure = domains.exposure(stands.values())
    least, mover, locations = exposure, cohort.copies[0], frozenset[Location]()
    for copy in sorted(stands, key=lambda each: (each == cohort.record.active, -each)):
        options = list(_options(turn, cohort, stands, copy, exposure))
        lowest = min((each for each, _ in options), default=least)
        if lowest < least:
            least, mover = lowest, copy
            locations = frozenset(location for each, location in options if each == lowest)
    return Relocation(mover, locations, domains.reason(stands.values(), exposure, least))


def _stands(turn: Turn, cohort: Cohort) -> dict[int, HostInfo]:
    """Return copy → its location, if every copy has its slot and none has to leave it anyway; else nothing.

    Includes copies that a new leader only expects, if their hosts are known. While a cell does not answer it is
    unknown what containers it could offer, so nothing is returned.
    """
    record, job = cohort.record, cohort.job
    if record.displaced is not None or job.model.is_mixed or record.placed.keys() != set(cohort.copies):
        return {}
    found = {}
    for copy in cohort.copies:
        holder = turn.holder(cohort, copy)
        if holder is None or not holder.host or turn.view.must_leave(holder):
            return {}
        if not turn.view.is_of_cell_that_answers(holder):
            return {}
        found[copy] = turn.host(holder.host, holder.cell)
    return found


def _domains(turn: Turn, cohort: Cohort) -> FaultDomains:
    spread = cohort.job.policy.spread
    if spread not in turn.fault_domains:
        turn.fault_domains[spread] = fault_domains_of(turn.view, spread)
    return turn.fault_domains[spread]


def _roomy(turn: Turn, cohort: Cohort, copy: int) -> Collection[str] | None:
    """Return the hosts of a pool with a process that a copy may have, or has got for its move; None on YARN.

    The one that it has got may have been the last one there.
    """
    slot = SlotId(cohort.processor, copy)
    waiting = rests(turn, demand_of(cohort.job, slot))
    return None if waiting is None else {*waiting, *turn.reserved_hosts(cohort.job, slot)}


def _options(
    turn: Turn, cohort: Cohort, stands: Mapping[int, HostInfo], copy: int, exposure: Exposure
) -> Iterator[tuple[Exposure, Location]]:
    """Yield each location of a copy that would lower the exposure, with the exposure it would have."""
    domains, roomy = _domains(turn, cohort), _roomy(turn, cohort, copy)
    others = [each for other, each in stands.items() if other != copy]
    own = stands[copy].name
    taken = {own, *(each.name for each in others)}
    is_elsewhere = False
    for hosts in domains.alike.values():
        if (0, *domains.exposure((*others, hosts[0]))[1:-1], 0) >= exposure:
            continue  # none of them will do
        for each in hosts:
            if each.name in taken or (roomy is not None and each.name not in roomy):
                continue
            if (then := domains.exposure((*others, each))) < exposure:
                is_elsewhere = True
                yield then, (each.name, each.cell)
    if is_elsewhere:
        return
    for each in (each for hosts in domains.alike.values() for each in hosts if each.name == own):
        then = domains.exposure((*others, each))
        if then < exposure:
            yield then, (each.name, each.cell)
