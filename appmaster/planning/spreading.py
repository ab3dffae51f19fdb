"""Copies that would all be lost at once although that need not be: with a cell, or with a host. Pure.

Placing prefers another cell than the other copies', and hosts without another cell's master (`locality.rules`), but
a copy that was created again while only one cell could be asked stays where it is, and so does one to whose host the
master of the others' cell comes. When there is another place, one standby of such a task is filled there, a few
processors at a time; where the active is the one to leave a host, a standby takes over first.
"""

from __future__ import annotations

from typing import Final

from appmaster.planning.turn import Cohort, Turn
from appmaster.planning.view import Container
from standby.model import ProcessorId

#: So many processors are spread anew at once: each of them fills a copy.
MOST_AT_ONCE: Final = 4


def lost_together(turn: Turn, cohort: Cohort, copy: int) -> int:
    """Return the cell that ``copy`` is to leave, or not to enter, lest all copies of the tasks be lost at once; else 0.

    It leaves the cell that all of them are in (the last standby does: the active stays where it is), or the host that
    has the master of the cell of all others. 0 as well when no host can be asked on which it would be better off.
    """
    holders = _spreadable(turn, cohort)
    holder = holders.pop(copy, None)
    cells = {each.cell for each in holders.values()}
    if holder is None or len(cells) != 1:
        return 0
    (cell,) = cells
    if holder.cell == cell:
        standbys = [each for each in (*holders, copy) if each != cohort.record.active]
        return cell if copy == max(standbys) else 0
    if turn.view.other_master(holder.host, holder.cell) != cell:
        return 0
    taken = {holder.host, *(each.host for each in holders.values()), *turn.view.excluded}
    is_elsewhere = any(each.cell != cell and each.name not in taken for each in turn.view.offers)
    return cell if is_elsewhere else 0


def _spreadable(turn: Turn, cohort: Cohort) -> dict[int, Container]:
    """Return copy → its container, if every copy has its place and there are cells to choose from; else nothing.

    Those count too that a new leader only expects yet: where they are is known.
    """
    record, job = cohort.record, cohort.job
    if record.displaced is not None or job.model.is_mixed or "cell" not in job.policy.spread:
        return {}
    if sum(each.is_up for each in turn.view.cells.values()) < 2:
        return {}
    holders = {each: turn.holder(cohort, each) for each in record.placed}
    found = {copy: each for copy, each in holders.items() if each is not None}
    return found if len(found) == len(holders) and found.keys() == set(cohort.copies) else {}


def spread_now(turn: Turn) -> frozenset[ProcessorId]:
    """Return the processors of which a copy may go elsewhere at this moment, only not to be lost with the others."""
    if turn.spread_now is None:
        found: list[ProcessorId] = []
        for job, processor in turn.unsettled():
            if len(found) == MOST_AT_ONCE:
                break
            cohorts = turn.cohorts(job, processor) or ()
            if len(cohorts) == 1 and any(
                lost_together(turn, cohorts[0], copy) for copy in cohorts[0].record.placed
            ):
                found.append(processor)
        turn.spread_now = frozenset(found)
    return turn.spread_now
