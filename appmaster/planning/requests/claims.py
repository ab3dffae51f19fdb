"""Which processes of a pool the needs of one turn get, so that as many as possible get one. Pure.

What waits in a pool is known, so nothing else is requested: a request for any process would be served with one on the
host of another copy, or on a drained host, which is given back and so used up in vain.

Each need gets a process on the host that the placement rules rank best. If none is left for one, earlier needs are
given other hosts, along the shortest augmenting path between needs and processes. Without such a path no choice of
hosts would serve more needs (Berge 1957). One exception: of a processor's needs only one moves, because the placement
rules judge each by where the others are. If the processes differ in size, a choice in which two move may be missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from appmaster.planning.placement.pool_fit import demand_of, is_pool
from appmaster.planning.placement.turn import Turn
from appmaster.planning.state.model import Slot, job_of
from appmaster.planning.state.view import ClusterView, RequestState
from locality.fit import ANY, Demand, PoolProcess, rest, serves
from standby.shared.model import ProcessorId, SlotId


@dataclass(frozen=True, slots=True)
class ProcessClaim:
    """What a need asks of a pool."""

    slot: Slot
    demand: Demand
    owner: ProcessorId | str | None = None
    """Those of one owner go to different hosts; None: it may share one with any other."""
    hosts: Collection[str] = ()
    """Those that it may have; none: it stays on the one that it gets."""
    may_move: bool = True
    """Whether it may be given another host in favour of others."""


class PoolClaims:
    """The processes of a pool that wait, and which of them the needs of one turn get.

    ``free``: what there is in their place; None: what waits, without what requests under way get.
    """

    def __init__(self, turn: Turn, free: Iterable[PoolProcess] | None = None) -> None:
        view = turn.view
        self.is_pool = is_pool(view)
        self._free = [*free] if free is not None else [each for each in view.processes if each.is_free]
        self._holder: dict[int, ProcessClaim] = {}
        self._held: dict[Slot, int] = {}
        self._owned: dict[ProcessorId | str, set[Slot]] = {}
        self._fitting: dict[Demand, dict[str, list[int]]] = {}
        #: Processes that are known to be out of reach of any need without one.
        self._lost: set[int] = set()
        for request in view.requests.values() if self.is_pool and free is None else ():
            if request.host is not None and request.state is not RequestState.GRANTED:
                self.take(ProcessClaim(request.slot, _demand(view, request.slot)), request.host)

    def hosts(self, demand: Demand) -> set[str]:
        """Return the hosts on which a process that fits is left."""
        return {host for host, fitting in self._fits(demand).items() if list(self._left(fitting))}

    def add(self, process: PoolProcess, claim: ProcessClaim | None = None) -> int:
        """Add a process that a claim has already, or that is about to be free; return its number."""
        self._free.append(process)
        self._fitting.clear()
        self._lost.clear()
        number = len(self._free) - 1
        if claim is not None:
            self._give(claim, number)
        return number

    def holder_of(self, number: int) -> Slot | None:
        """Return the slot that has a process that was added; None if none has."""
        claim = self._holder.get(number)
        return claim.slot if claim is not None else None

    def place(self, claim: ProcessClaim) -> bool:
        """Give a need any process, others another one if necessary; return whether there is a way to."""
        left = next((each for each in self._options(claim, set()) if each not in self._holder), None)
        if left is None:
            return bool(self.make_room(claim))
        self._give(claim, left)
        return True

    def take(self, claim: ProcessClaim, host: str) -> None:
        """Give a need the process on ``host`` that fits best; nothing if none is left there."""
        left = list(self._left(self._fits(claim.demand).get(host, ())))
        if left:
            self._give(claim, min(left, key=lambda each: rest(claim.demand, self._free[each].offer)))

    def make_room(self, claim: ProcessClaim) -> dict[Slot, str]:
        """Give a need a process, others another one; return the new host of each. Empty: there is no way to."""
        if len(self._holder) == len(self._free):
            return {}
        wanted: dict[int, ProcessClaim] = {}
        # Of one owner only one need moves, so that each can be judged by where the others are.
        owners = {claim.slot: frozenset({claim.owner})}
        queue, seen = deque([claim]), set[tuple[Demand, str]]()
        while queue:
            each = queue.popleft()
            for number in self._options(each, seen):
                if number in wanted or number in self._lost:
                    continue
                wanted[number] = each
                holder = self._holder.get(number)
                if holder is None:
                    return self._moved(number, wanted)
                if holder.may_move and (holder.owner is None or holder.owner not in owners[each.slot]):
                    owners[holder.slot] = owners[each.slot] | {holder.owner}
                    queue.append(holder)
        self._lost |= wanted.keys()
        return {}

    def _fits(self, demand: Demand) -> Mapping[str, list[int]]:
        if demand not in self._fitting:
            found = self._fitting[demand] = {}
            for number, each in enumerate(self._free):
                if serves(each, demand):
                    found.setdefault(each.host, []).append(number)
        return self._fitting[demand]

    def _left(self, numbers: Iterable[int]) -> Iterator[int]:
        return (each for each in numbers if each not in self._holder)

    def _options(self, claim: ProcessClaim, seen: set[tuple[Demand, str]]) -> Iterator[int]:
        """Yield the processes that a need may have, without those on hosts that were ``seen``; adds to these."""
        owned = self._owned.get(claim.owner, ()) if claim.owner is not None else ()
        # It may have another process on its own host.
        taken = {self._free[self._held[each]].host for each in owned if each != claim.slot}
        for host, numbers in self._fits(claim.demand).items():
            if host in claim.hosts and host not in taken and (claim.demand, host) not in seen:
                seen.add((claim.demand, host))
                yield from numbers

    def _moved(self, last: int, wanted: Mapping[int, ProcessClaim]) -> dict[Slot, str]:
        """Give every need on the path that ends at a free process the one that it wants."""
        found: dict[Slot, str] = {}
        number: int | None = last
        while number is not None:
            claim = wanted[number]
            before = self._held.get(claim.slot)
            self._give(claim, number)
            found[claim.slot] = self._free[number].host
            number = before
        return found

    def _give(self, claim: ProcessClaim, number: int) -> None:
        self._holder[number] = claim
        self._held[claim.slot] = number
        if claim.owner is not None:
            self._owned.setdefault(claim.owner, set()).add(claim.slot)


def _demand(view: ClusterView, slot: Slot) -> Demand:
    job = view.jobs.get(job_of(slot))
    if job is None or (isinstance(slot, SlotId) and slot.processor not in job.model.processors):
        return ANY
    return demand_of(job, slot)
