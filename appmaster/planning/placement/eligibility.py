"""Which containers may take a copy: on a usable host without another copy of its tasks, open or recorded. Pure."""

from __future__ import annotations

from functools import partial
from typing import Final

from appmaster.planning.placement.fault_domains import Location
from appmaster.planning.placement.left_state import freshness_of
from appmaster.planning.placement.pool_fit import has_room
from appmaster.planning.placement.turn import Cohort, Turn, is_current
from appmaster.planning.state.view import Container, Presence, places
from locality.history import NOTHING
from standby.replica.lifecycle import ENDED
from standby.shared.model import SlotId

#: Presences of containers that may have their copies open; an orphan is not waited for.
_MAY_LIVE: Final = frozenset(Presence) - {Presence.ORPHAN}


def free_for(
    turn: Turn,
    cohorts: tuple[Cohort, ...],
    slot: SlotId,
    locations: frozenset[Location] | None = None,
) -> Container | None:
    """Return a free container for a slot that passes the same-host check; one requested for this slot comes first.

    Among several, the order is: a cell with fewer of the other copies, a host without another cell's master, the host
    with the freshest state. ``locations``: the copy could stay and is to move to one of these, so only a container
    that was requested for this slot will do. Any other would be used for its own slot again once the copy is closed.
    """
    job = cohorts[0].job
    others = turn.siblings(cohorts, slot)
    siblings = {each.host.name for each in others}
    cells = [each.host.cell for each in others]

    def fits(each: Container) -> bool:
        is_elsewhere = each.host not in siblings and (
            locations is None or (each.host, each.cell) in locations
        )
        return (
            is_elsewhere
            and not turn.view.must_leave(each)
            and is_current(job, each)
            and has_room(turn, each, sum(len(cohort.recorded) for cohort in cohorts))
        )

    own = [each for each in turn.free_at(job, slot) if fits(each)]
    # A container that was requested for another slot, and which that slot still needs, stays free for it.
    idle = (each for each in turn.idle(job, partial(_is_idle, turn)) if locations is None and fits(each))
    candidates = own or list(idle)
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    state = freshness_of(turn, cohorts, slot.copy)
    return min(
        candidates,
        key=lambda each: (
            cells.count(each.cell),
            turn.view.other_am(each.host, each.cell) != 0,
            state.get(each.host, NOTHING),
            each.id,
        ),
    )


def _is_idle(turn: Turn, container: Container) -> bool:
    """Return whether a free container is needed by no slot of its own."""
    return not isinstance(container.slot, SlotId) or _is_taken(turn, container.slot)


def _is_taken(turn: Turn, slot: SlotId) -> bool:
    """Return whether a slot has a container already, or is no longer in the model."""
    job = turn.view.jobs.get(slot.processor.job)
    model = job.model.processors.get(slot.processor) if job is not None else None
    if job is None or model is None or slot.copy not in model.copies:
        return True
    cohorts = turn.cohorts(job, slot.processor)
    if cohorts is None:
        return False
    return all(
        turn.holder(each, slot.copy) is not None and slot.copy not in each.record.moving for each in cohorts
    )


def fits_host(turn: Turn, cohort: Cohort, copy: int, container: Container) -> bool:
    """Return whether a container of a mixed job may take a copy: no other one is on its host, and it has room.

    A container of an older revision may take one until it is replaced.
    """
    return is_apart(turn, cohort, copy, container) and has_room(turn, container, len(cohort.recorded))


def is_apart(turn: Turn, cohort: Cohort, copy: int, container: Container) -> bool:
    """Return whether a container's host holds no other copy, and the container need not leave."""
    return container.host not in turn.hosts_of_copies(cohort, copy) and not turn.view.must_leave(container)


def is_clear(turn: Turn, cohort: Cohort, container: Container) -> bool:
    """Return whether no other process on a container's host has a copy of the tasks open, as far as is known.

    A process there that was told to close its copy has to close it first: both would use the same directory.
    """
    for name in places(cohort.record):
        holder = turn.view.containers.get(name)
        if holder is not None and not holder.host and holder.presence in _MAY_LIVE:
            return False  # it may be on that host: no record says where a copy is filled
    for other in turn.on_host(container.host):
        # A process whose stream broke, or that is stalled, may well be alive: it counts until it reports that the copy
        # is closed, or is given back.
        if other.id == container.id or other.presence not in _MAY_LIVE:
            continue
        if not other.has_said_hello:
            return False  # unknown what it has open until this leader has heard from it or given it back
        if other.applied < other.sent:
            return False  # it may still open what an earlier assignment told it to hold
        for each in other.statuses.values():
            if each.replica.task in cohort.tasks and each.phase not in ENDED:
                return False
    return True
