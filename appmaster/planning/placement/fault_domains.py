"""The hosts where copies of a job can be placed, and which failures would lose all copies of a task. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from appmaster.planning.state.reasons import DecisionBasis
from appmaster.planning.state.view import ClusterView
from locality.hosts import HostInfo

#: A host, and the cell that is asked for a container there.
Location = tuple[str, int]

#: What the copies of a task share, most serious first: whether all would be lost with one host; for each attribute of
#: ``job.locality.spread`` in which hosts differ, whether all have the same value; the number of hosts whose loss would
#: lose all. Less is better. Hosts count most, since they are lost more often than cells and racks.
Exposure = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Relocation:
    """One copy that is to move because all copies of its tasks could be lost at once, or to make room for another."""

    copy: int
    locations: frozenset[Location]
    """The best locations. The copy's own host, in another cell, is among them only if no other host will do."""
    reason: str
    basis: DecisionBasis = DecisionBasis.OTHER


@dataclass(frozen=True, slots=True)
class FaultDomains:
    """The hosts of cells that answer, and the attributes that the copies of one job's tasks may share."""

    attributes: tuple[str, ...]
    """The attributes of ``job.locality.spread`` in which the hosts differ."""
    am_hosts: Mapping[int, str]
    """Cell → the host of its Skein AM."""
    alike: Mapping[tuple[str, ...], list[HostInfo]]
    """Values of those attributes → the hosts that have them."""

    def exposure(self, locations: Collection[HostInfo]) -> Exposure:
        """Return the exposure of copies at these locations."""
        shared = [{each.value(attribute) for each in locations} for attribute in self.attributes]
        hosts = len(self.lost_with(locations))
        return (hosts > 0, *(len(each) == 1 and "" not in each for each in shared), hosts)

    def lost_with(self, locations: Collection[HostInfo]) -> set[str]:
        """Return the hosts whose loss loses all copies, with the host itself or with a Skein AM on it."""
        if "cell" not in self.attributes:
            return set()
        return set.intersection(
            *({each.name, self.am_hosts.get(each.cell) or each.name} for each in locations)
        )

    def reason(self, locations: Collection[HostInfo], exposure: Exposure, better: Exposure) -> str:
        """Return, in words, what part of ``exposure`` is removed once it is ``better``."""
        one = next(iter(locations))
        for attribute, was, is_still in zip(self.attributes, exposure[1:-1], better[1:-1], strict=True):
            if was and not is_still:
                return f"every copy of its tasks is in {attribute} {one.value(attribute)}"
        return f"every copy of its tasks would be lost with {', '.join(sorted(self.lost_with(locations)))}"


def fault_domains_of(view: ClusterView, spread: tuple[str, ...]) -> FaultDomains:
    """Return the hosts that can be requested, or are full at present, for copies that ``spread`` keeps apart."""
    full = (
        replace(view.hosts[name], cell=number)
        for number, cell in sorted(view.cells.items())
        if cell.is_up
        for name in sorted(cell.full & view.hosts.keys())
    )
    hosts = [each for each in (*view.offers, *full) if each.name not in view.drained]
    attributes = tuple(
        attribute for attribute in spread if len({each.value(attribute) for each in hosts} - {""}) > 1
    )
    alike: dict[tuple[str, ...], list[HostInfo]] = {}
    for each in hosts:
        alike.setdefault(tuple(map(each.value, attributes)), []).append(each)
    return FaultDomains(attributes, {number: each.am_host for number, each in view.cells.items()}, alike)
