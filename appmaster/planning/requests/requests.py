"""Requests to YARN for containers. Pure.

For each slot the order is: the preferred host (where its state lies), the other allowed hosts, best first, then any
host. Every request expires, and a host that let one expire is avoided for a while. The wait grows with repeated
failures; more failures within the window than the job allows fail the job or park the processor.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from appmaster.planning.placement.left_state import leftovers
from appmaster.planning.placement.pool_fit import demand_of, rests
from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests.claims import PoolClaims, ProcessClaim
from appmaster.planning.requests.needs import Need, counted_containers
from appmaster.planning.state.actions import (
    Action,
    RequestContainer,
)
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import Slot, SpareSlotId
from appmaster.planning.state.reasons import SetbackKind
from appmaster.planning.state.view import HOLDING, ClusterView, Presence, RequestKind
from locality.history import freshness
from locality.judging import best
from locality.question import PlacementQuestion, Sibling, Verdict
from locality.rules import FILTERS
from standby.shared.model import ProcessorId, SlotId

#: Attempts with a named host before any host is requested; afterwards the two alternate. Not in a pool.
NAMED_FIRST: Final = 2

#: Why a host is requested that is not the best for its copy.
_ROOM: Final = "so that each copy finds a process on a host of its own"


def requests(turn: Turn, needed: Mapping[Slot, Need]) -> Iterator[Action]:
    """Yield a request for every need that has none under way; in a pool, only for processes that wait."""
    view = turn.view
    busy: set[Slot | None] = {each.slot for each in view.requests.values()}
    waiting = {each.slot for each in view.containers.values() if view.is_free(each) or each.binding}
    if not needed:
        return
    batch = _Batch(turn)
    if view.cells and not batch.cells:
        return  # no cell can be asked
    for slot, need in needed.items():
        if need.is_met or slot in busy or (slot in waiting and not need.is_reservation):
            continue
        attempts = view.attempts.get(slot, Attempts())
        if exhausted(view, need.job, attempts):
            continue
        is_refused = attempts.last is not None and attempts.last.kind is SetbackKind.REFUSED
        in_row, not_before_ms = attempts.row(is_move=view.is_held(slot))
        if view.now_ms < not_before_ms and (is_refused or not need.only_host):
            continue
        if not need.is_reservation:
            # The slot of a lost active becomes a standby's slot when another copy takes over.
            can_wait = not need.only_host and not (need.is_active and _is_alone(turn, slot))
            if can_wait and is_failing_over(view, need.job):
                continue
        batch.add(need, in_row)
    yield from batch.requests()


class _Batch:
    """The requests of one turn. Each depends on those before it, which the view shows only in the next turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._claims = PoolClaims(turn)
        self._loads = host_loads(turn)
        #: Job → the loads that count for its spare containers.
        self._spare_loads: dict[str, dict[str, tuple[int, int]]] = {}
        self.cells = cell_loads(turn)
        self._found: dict[Slot, RequestContainer] = {}
        self._asked: dict[ProcessorId, list[SlotId]] = {}
        self._taken: dict[str, set[str]] = {}

    def requests(self) -> Iterator[RequestContainer]:
        """Yield the requests, in the order of their needs."""
        first = self._turn.view.decisions + self._turn.decided + 1
        for at, each in enumerate(self._found.values()):
            yield replace(each, number=first + at)

    def add(self, need: Need, in_row: int) -> None:
        """Note the request for a need; none if none is to be made now. ``in_row``: how many failed before it."""
        for other in self._asked.get(need.slot.processor, ()) if isinstance(need.slot, SlotId) else ():
            asked = self._found[other]
            sibling = Sibling(str(other), self._turn.host(asked.host or "", asked.cell))
            need = replace(need, siblings=(*need.siblings, sibling))
        if self._claims.is_pool and not (need.is_reservation or need.only_host):
            self._claim(need)
            return
        host, cell, kind, reason = _where(self._turn, need, in_row, self._loads_for(need), self.cells)
        if host is None and (need.only_host or need.locations is not None):
            return
        if host is not None:
            self._claims.take(ProcessClaim(need.slot, demand_of(need.job, need.slot)), host)
        self._request(need, host, cell, kind, reason)

    def _loads_for(self, need: Need) -> Mapping[str, tuple[int, int]]:
        """Return the loads of hosts that count for a need."""
        if not isinstance(need.slot, SpareSlotId):
            return self._loads
        name = need.job.name
        if name not in self._spare_loads:
            self._spare_loads[name] = spare_loads(self._turn, need.job)
        return self._spare_loads[name]

    def _claim(self, need: Need) -> None:
        """Note the request for a process of a pool; none if no choice of hosts leaves one for the need.

        A host that is avoided is asked if no other one can be.
        """
        question = placement_question(self._turn, need, self._loads_for(need), self.cells)
        owner, taken = self._owner(need)
        offers = [
            each
            for each in self._turn.view.offers
            if each.name not in taken and (need.locations is None or (each.name, each.cell) in need.locations)
        ]
        demand = demand_of(need.job, need.slot)
        left = self._claims.hosts(demand)
        for asked in (question, *([replace(question, avoided={})] if question.avoided else [])):
            refused = {host for each in FILTERS for host in each.refuse(asked)}
            hosts = {each.name: each.cell for each in offers if each.name not in refused}
            claim = ProcessClaim(need.slot, demand, owner, hosts.keys(), may_move=need.locations is None)
            found = best(asked, [each for each in offers if each.name in left])
            if found is not None:
                self._claims.take(claim, found.host)
                self._request(need, found.host, found.cell, *_kind_of(self._turn, need, found))
                return
            moved = self._claims.make_room(claim) if claim.may_move else {}
            for slot, host in moved.items():
                if slot == need.slot:
                    self._request(need, host, hosts[host], RequestKind.NAMED, _ROOM)
                else:
                    self._move(slot, host)
            if moved:
                return

    def _owner(self, need: Need) -> tuple[ProcessorId | str | None, Collection[str]]:
        """Return the owner of a need's claim (`ProcessClaim.owner`), and the hosts that others of it have already.

        A mixed job's containers go to different hosts until there are as many as a task has copies.
        """
        if isinstance(need.slot, SlotId):
            return need.slot.processor, ()
        if isinstance(need.slot, SpareSlotId):
            return None, ()
        name, view = need.job.name, self._turn.view
        if name not in self._taken:
            asked = (each.host for each in view.requests_of(name))
            held = (each.host for each in counted_containers(self._turn, need.job))
            self._taken[name] = {each for each in (*asked, *held) if each}
        taken = self._taken[name]
        return (name, tuple(taken)) if len(taken) < need.job.model.copies else (None, ())

    def _request(self, need: Need, host: str | None, cell: int, kind: RequestKind, reason: str) -> None:
        slot = need.slot
        if host is not None:
            every, same = self._loads.get(host, (0, 0))
            self._loads[host] = (every + 1, same + need.is_active)
            if isinstance(slot, SlotId):
                self._asked.setdefault(slot.processor, []).append(slot)
            elif isinstance(slot, SpareSlotId):
                copies, spares = self._spare_loads[slot.job].get(host, (0, 0))
                self._spare_loads[slot.job][host] = (copies, spares + 1)
            elif slot.job in self._taken:
                self._taken[slot.job].add(host)
        self.cells[cell] = self.cells.get(cell, 0) + 1
        self._found[slot] = RequestContainer(0, slot, host, kind, reason, cell, demand_of(need.job, slot))

    def _move(self, slot: Slot, host: str) -> None:
        """Name another host in a request of this turn."""
        before = self._found[slot]
        if host == before.host:
            return  # it gets another process there
        for name, more in ((before.host or "", -1), (host, 1)):
            every, same = self._loads.get(name, (0, 0))
            self._loads[name] = (every + more, same)
        self._found[slot] = replace(before, host=host, kind=RequestKind.NAMED, reason=_ROOM)


def host_loads(turn: Turn, but: str = "") -> dict[str, tuple[int, int]]:
    """Return host → containers there or requested there: all, and those for actives; without container ``but``."""
    found: dict[str, tuple[int, int]] = {}
    for each in turn.view.containers.values():
        if each.host and each.presence is not Presence.LEAVING and each.id != but:
            every, actives = found.get(each.host, (0, 0))
            has_active = turn.loads.of(each.id).actives > 0
            found[each.host] = (every + 1, actives + has_active)
    for request in turn.view.requests.values():
        if request.host is not None:
            every, actives = found.get(request.host, (0, 0))
            found[request.host] = (every + 1, actives)
    return found


def spare_loads(turn: Turn, job: Job) -> dict[str, tuple[int, int]]:
    """Return host → copies of a job there, and spare containers of it there or requested there.

    A spare on a host can take over every copy that has no other copy there. So the fewer copies the host has, the more
    a spare there can take over.
    """
    found: dict[str, tuple[int, int]] = {}
    for each in turn.of_job(job):
        copies, spares = found.get(each.host, (0, 0))
        found[each.host] = (copies + turn.loads.of(each.id).copies, spares)
    here = [each.host for each in turn.spares(job) if each.presence in HOLDING]
    asked = [each.host for each in turn.view.requests_of(job.name, are_spare=True)]
    for host in (*here, *asked):
        if host:
            copies, spares = found.get(host, (0, 0))
            found[host] = (copies, spares + 1)
    return found


def cell_loads(turn: Turn, but: str = "") -> dict[int, int]:
    """Return each cell that can be asked → its containers and requests; without container ``but``."""
    if not turn.view.cells:
        return {1: 0}
    loads = {number: 0 for number, each in turn.view.cells.items() if each.is_up}
    held = [
        each.cell
        for each in turn.view.containers.values()
        if each.presence is not Presence.LEAVING and each.id != but
    ]
    asked = [each.cell for each in turn.view.requests.values()]
    for each in itertools.chain(held, asked):
        if each in loads:
            loads[each] += 1
    return loads


def _is_alone(turn: Turn, slot: Slot) -> bool:
    """Return whether no live copy of a slot's tasks can take over."""
    if not isinstance(slot, SlotId):
        return False
    job = turn.view.jobs[slot.processor.job]
    for cohort in turn.cohorts(job, slot.processor) or ():
        if any(turn.holder(cohort, copy) is not None for copy in cohort.record.placed):
            return False
    return True


def is_failing_over(view: ClusterView, job: Job) -> bool:
    """Return whether a failover of ``job`` is under way, for which requests for lost copies should wait."""
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
    """Return whether a slot failed more often within the window than the job allows."""
    if job.policy.retry_count < 0:
        return False
    recent = [each for each in attempts.failures_ms if each > view.now_ms - job.policy.retry_window_ms]
    return len(recent) > job.policy.retry_count


def placement_question(
    turn: Turn,
    need: Need,
    loads: Mapping[str, tuple[int, int]],
    cells: Mapping[int, int],
    *,
    of_spares: bool = False,
) -> PlacementQuestion:
    """Return the question to the placement rules about a need; ``loads`` by host, ``cells`` by cell.

    ``of_spares``: it is about spare containers that are there, so a host on which requests failed will do, and what
    waits in a pool makes no difference.
    """
    view = turn.view
    avoided = (
        {} if of_spares else {host: why for host, (until, why) in view.avoided.items() if until > view.now_ms}
    )
    return PlacementQuestion(
        siblings=need.siblings,
        histories=need.histories,
        leftovers=leftovers(turn),
        preferred=need.preferred,
        drained=view.drained,
        avoided=avoided,
        loads=loads,
        cells=cells,
        # A mixed job's containers are spread over the hosts, and each copy finds one there
        # (`appmaster.planning.placement.shared_containers`). A spare one is for any copy.
        shuns_masters=isinstance(need.slot, SlotId),
        # A spare container goes where it can take over most, whatever size of process waits there.
        rests={}
        if of_spares or isinstance(need.slot, SpareSlotId)
        else rests(turn, demand_of(need.job, need.slot)) or {},
        spread=need.job.policy.spread,
    )


def _where(
    turn: Turn,
    need: Need,
    in_row: int,
    loads: Mapping[str, tuple[int, int]],
    cells: Mapping[int, int],
) -> tuple[str | None, int, RequestKind, str]:
    """Return the host to request (None for any), the cell to ask, the kind of request, and why."""
    view = turn.view
    cell = _cell_for(need, cells)
    if need.is_reservation or need.only_host:
        cell = _cell_of(view, need.preferred, cells, cell)
    if need.is_reservation:
        return need.preferred, cell, RequestKind.RESERVATION, "the standby there is displaced for it"
    if need.only_host:
        if need.preferred in view.hosts and need.preferred not in view.drained:
            return need.preferred, cell, RequestKind.PREFERRED, "the active was there when it was lost"
        return None, cell, RequestKind.PREFERRED, "its own host cannot be requested"
    if need.locations is None and in_row >= NAMED_FIRST and in_row % 2 == 0:
        # Alternates with named hosts: hosts that were added after the submit cannot be requested by name.
        return None, cell, RequestKind.ANY, f"any host, after {in_row} failed requests"
    asked = placement_question(turn, need, loads, cells)
    offers = view.offers
    if need.locations is not None:
        offers = tuple(each for each in offers if (each.name, each.cell) in need.locations)
    found = best(asked, offers)
    if found is not None:
        return found.host, found.cell, *_kind_of(turn, need, found)
    if not offers:
        reason = "every host that is known by name is full" if view.hosts else "no host is known by name"
        return None, cell, RequestKind.ANY, reason
    return None, cell, RequestKind.ANY, "any host: no named host fits"


def _kind_of(turn: Turn, need: Need, found: Verdict) -> tuple[RequestKind, str]:
    """Return the kind of a request on the best host, and why it is the best."""
    has_state = found.host in freshness(need.histories, leftovers(turn))
    is_preferred = found.host == need.preferred or has_state
    kind = RequestKind.PREFERRED if is_preferred else RequestKind.NAMED
    return kind, "; ".join(found.reasons) or "the best of the allowed hosts"


def _cell_of(view: ClusterView, host: str | None, cells: Mapping[int, int], otherwise: int) -> int:
    """Return the cell to ask for a host."""
    found = [each.cell for each in view.offers if each.name == host and each.cell in cells]
    return min(found, key=lambda each: (cells[each], each), default=otherwise)


def _cell_for(need: Need, cells: Mapping[int, int]) -> int:
    """Return the cell to ask if no host determines it: the one that holds fewest of the other copies."""
    shared = dict.fromkeys(cells, 0)
    for sibling in need.siblings:
        if sibling.host.cell in shared:
            shared[sibling.host.cell] += 1
    return min(shared, key=lambda each: (shared[each], cells[each], each))
