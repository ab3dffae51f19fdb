"""What the leader learns about cells, folded into the view; used by `apply`. Pure.

A cell whose Skein AM is gone is lost even if its containers still run (rule `lost-cell`): no container of Skein
survives its AM, and YARN ends them when it notices. Until then they serve, what they hold is handed over as from a
drained host, and nothing new is placed there. A container belongs to one attempt of its cell's application: the next
attempt does not save it.
"""

from __future__ import annotations

from dataclasses import replace

from appmaster.planning.fold.changes import unsettle_all
from appmaster.planning.state import events as happened
from appmaster.planning.state.mappings import put
from appmaster.planning.state.view import Cell, CellState, ClusterView
from locality.hosts import HostInfo, described_by


def cell_found(view: ClusterView, event: happened.CellFound) -> ClusterView:
    """Return the view in which a cell can be asked for containers."""
    known = view.cells.get(event.cell)
    is_same = known is not None and known.is_up and known.attempt == event.attempt
    cell = Cell(
        event.cell,
        event.attempt,
        event.hosts,
        CellState.UP,
        event.at_ms,
        am_host=event.am_host,
        full=event.full,
        note=event.note,
        processes=event.processes,
    )
    if known is not None and is_same:
        cell = replace(cell, since_ms=known.since_ms)
    else:
        # Requests made to the former attempt ended with it.
        view = _without_requests(view, event.cell)
    before = view.offers
    view = with_offers(replace(view, cells=put(view.cells, event.cell, cell)))
    if is_same:
        return view if view.offers == before else unsettle_all(view)
    return unsettle_all(view)


def cell_awaited(view: ClusterView, event: happened.CellAwaited) -> ClusterView:
    """Return the view with a cell of which a new leader does not know yet whether it is alive."""
    if event.cell in view.cells:
        return view
    cell = Cell(event.cell, event.attempt, (), CellState.AWAITED, event.at_ms, am_host=event.am_host)
    return with_offers(replace(view, cells=put(view.cells, event.cell, cell)))


def cell_lost(view: ClusterView, event: happened.CellLost) -> ClusterView:
    """Return the view in which a cell is lost; news of an attempt before the present one changes nothing."""
    known = view.cells.get(event.cell)
    # One whose application had not started has no attempt yet.
    if known is not None and (known.state is CellState.LOST or known.attempt not in ("", event.attempt)):
        return view
    hosts = known.hosts if known is not None else ()
    cell = Cell(event.cell, event.attempt, hosts, CellState.LOST, event.at_ms, event.reason)
    view = with_offers(replace(view, cells=put(view.cells, event.cell, cell)))
    return unsettle_all(_without_requests(view, event.cell))


def is_of_silent_cell(view: ClusterView, event: happened.ContainerRegistered) -> bool:
    """Return whether a container that this leader did not expect belongs to a cell whose AM is silent.

    The present attempt of that cell has started it, so it is no orphan: it serves until it has handed over.
    """
    cell = view.cells.get(event.cell)
    return cell is not None and not cell.is_up and bool(event.attempt) and cell.attempt == event.attempt


def with_offers(view: ClusterView) -> ClusterView:
    """Return the view with every host of any cell, and one offer for each host and cell that can be asked for it.

    The hosts of a cell whose AM is silent remain known.
    """
    named = (
        {host for each in view.cells.values() for host in each.hosts} if view.cells else view.described.keys()
    )
    hosts = {name: view.described.get(name) or HostInfo(name) for name in sorted(named)}
    for each in (process for cell in view.cells.values() for process in cell.processes):
        if each.offer.attributes:
            # What a job's keys say of a host comes first, then what its first node says.
            hosts[each.host] = described_by(each.offer.attributes, hosts[each.host])
    if not view.cells:
        return replace(view, hosts=hosts, offers=tuple(hosts.values()))
    offers = tuple(
        replace(hosts[host], cell=number, master_of=view.other_am(host, number))
        for number, cell in sorted(view.cells.items())
        if cell.is_up
        for host in cell.hosts
        if host not in cell.full
    )
    return replace(view, hosts=hosts, offers=offers)


def _without_requests(view: ClusterView, cell: int) -> ClusterView:
    """Return the view without the requests made to a cell: no slot has failed, and each requests again."""
    return replace(
        view, requests={number: each for number, each in view.requests.items() if each.cell != cell}
    )
