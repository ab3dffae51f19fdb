"""Copies that would all be lost at once although that need not be: with a host, a cell, a rack. Pure.

Placing prefers hosts that share nothing with the other copies (`locality.rules`), but a copy that was created while
only one cell, or one rack, could be asked stays where it is, and so does one to whose host the master of the others'
cell comes. When there is a better place one copy goes there, of a few processors at a time; where it is the active, a
standby takes over first.

Every step makes the faults of its tasks' places smaller (`Ground.faults`), so that no copy goes back and forth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from appmaster.planning.turn import Cohort, Turn
from appmaster.planning.view import ClusterView
from locality.hosts import HostInfo
from standby.model import ProcessorId

#: So many processors are spread anew at once: each of them fills a copy.
MOST_AT_ONCE: Final = 4

#: A host, and the cell that is asked for a container there.
Spot = tuple[str, int]

#: Whether all copies would be lost with one host, whether they share each thing of ``job.locality.spread`` in which
#: hosts differ, and with how many hosts they would be lost. The first counts most: hosts are lost more often than cells
#: and racks.
Faults = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parting:
    """What one copy is to do lest all copies of its tasks be lost at once."""

    copy: int
    spots: frozenset[Spot]
    """Where it is best off; on its own host, in another cell, only when no other host will do."""
    reason: str


def parting(turn: Turn, cohort: Cohort) -> Parting | None:
    """Return which copy of a processor goes where at this moment; None: none does, or it is not its turn.

    Not while its tasks are in several arrangements: their home draws them back.
    """
    if turn.partings is None:
        turn.partings = _partings(turn)
    return turn.partings.get(cohort.processor)


def can_part(turn: Turn, cohort: Cohort) -> bool:
    """Return whether all copies of a processor would be lost at once, and one of them has a better place to go to."""
    stands = _stands(turn, cohort)
    if len(stands) < 2:
        return False
    ground = _ground(turn, cohort)
    faults = ground.faults(stands.values())
    options = (each for copy in stands for each in _options(ground, stands, copy, faults))
    return any(faults) and next(options, None) is not None


def _partings(turn: Turn) -> dict[ProcessorId, Parting]:
    """Return what is to be done in the first few processors of which a copy should not be lost with the others."""
    found: dict[ProcessorId, Parting] = {}
    for job, processor in turn.unsettled():
        if len(found) == MOST_AT_ONCE:
            break
        cohorts = turn.cohorts(job, processor) or ()
        if len(cohorts) == 1 and can_part(turn, cohorts[0]):
            found[processor] = _best_step(turn, cohorts[0])
    return found


def _best_step(turn: Turn, cohort: Cohort) -> Parting:
    """Return the step after which the faults are the smallest; of equal ones a standby's, the last one's."""
    stands = _stands(turn, cohort)
    ground = _ground(turn, cohort)
    faults = ground.faults(stands.values())
    least, mover, spots = faults, cohort.copies[0], frozenset[Spot]()
    for copy in sorted(stands, key=lambda each: (each == cohort.record.active, -each)):
        options = list(_options(ground, stands, copy, faults))
        lowest = min((each for each, _ in options), default=least)
        if lowest < least:
            least, mover = lowest, copy
            spots = frozenset(spot for each, spot in options if each == lowest)
    return Parting(mover, spots, ground.reason(stands.values(), faults, least))


def _stands(turn: Turn, cohort: Cohort) -> dict[int, HostInfo]:
    """Return copy → where it is, if every copy has its place and none has to leave it anyway; else nothing.

    Those count too that a new leader only expects yet, if it is known where they are. While a cell does not answer,
    what may be had there is not known.
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


@dataclass(frozen=True, slots=True)
class Ground:
    """The hosts that can be asked for, as copies of one job's tasks see them."""

    things: tuple[str, ...]
    """Of ``job.locality.spread`` those in which the hosts differ."""
    masters: Mapping[int, str]
    """Cell → the host of its master."""
    alike: Mapping[tuple[str, ...], list[HostInfo]]
    """What they are in those things → the hosts."""

    def faults(self, stands: Collection[HostInfo]) -> Faults:
        """Return what would take all copies along that stand there."""
        shared = [{each.value(thing) for each in stands} for thing in self.things]
        hosts = len(self.lost_with(stands))
        return (hosts > 0, *(len(each) == 1 and "" not in each for each in shared), hosts)

    def lost_with(self, stands: Collection[HostInfo]) -> set[str]:
        """Return the hosts of which each takes all copies along, itself or by a cell's master; one copy has its own."""
        if "cell" not in self.things:
            return set()
        return set.intersection(*({each.name, self.masters.get(each.cell) or each.name} for each in stands))

    def reason(self, stands: Collection[HostInfo], faults: Faults, better: Faults) -> str:
        """Return in words which of the faults is over when they are the better ones."""
        one = next(iter(stands))
        for thing, was, is_still in zip(self.things, faults[1:-1], better[1:-1], strict=True):
            if was and not is_still:
                return f"every copy of its tasks is in {thing} {one.value(thing)}"
        return f"every copy of its tasks would be lost with {', '.join(sorted(self.lost_with(stands)))}"


def _ground(turn: Turn, cohort: Cohort) -> Ground:
    spread = cohort.job.policy.spread
    if spread not in turn.grounds:
        turn.grounds[spread] = _looked_at(turn.view, spread)
    return turn.grounds[spread]


def _looked_at(view: ClusterView, spread: tuple[str, ...]) -> Ground:
    offers = [each for each in view.offers if each.name not in view.excluded]
    things = tuple(thing for thing in spread if len({each.value(thing) for each in offers} - {""}) > 1)
    alike: dict[tuple[str, ...], list[HostInfo]] = {}
    for each in offers:
        alike.setdefault(tuple(map(each.value, things)), []).append(each)
    return Ground(things, {number: each.master for number, each in view.cells.items()}, alike)


def _options(
    ground: Ground, stands: Mapping[int, HostInfo], copy: int, faults: Faults
) -> Iterator[tuple[Faults, Spot]]:
    """Yield the faults that there would be with a copy elsewhere, if they are smaller, and where that is."""
    others = [each for other, each in stands.items() if other != copy]
    own = stands[copy].name
    taken = {own, *(each.name for each in others)}
    is_elsewhere = False
    for hosts in ground.alike.values():
        if (0, *ground.faults((*others, hosts[0]))[1:-1], 0) >= faults:
            continue  # none of them will do
        for each in hosts:
            if each.name not in taken and (then := ground.faults((*others, each))) < faults:
                is_elsewhere = True
                yield then, (each.name, each.cell)
    if is_elsewhere:
        return
    for each in (each for hosts in ground.alike.values() for each in hosts if each.name == own):
        then = ground.faults((*others, each))
        if then < faults:
            yield then, (each.name, each.cell)
