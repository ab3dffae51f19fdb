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


def together(turn: Turn, cohort: Cohort, copy: int) -> int:
    """Return the cell that holds every copy of the tasks, if ``copy`` is the one to leave it; else 0.

    That is the last standby: the active stays where it is.
    """
    holders = _spreadable(turn, cohort)
    cells = {each.cell for each in holders.values()}
    standbys = [each for each in holders if each != cohort.record.active]
    if len(cells) != 1 or not standbys or copy != max(standbys):
        return 0
    return next(iter(cells))


def exposed(turn: Turn, cohort: Cohort, copy: int) -> int:
    """Return the cell that has its master on the host of ``copy`` and all other copies of the tasks; else 0.

    That host's loss would take every copy. 0 as well when no host can be asked on which it would be better off.
    """
    holders = _spreadable(turn, cohort)
    holder = holders.pop(copy, None)
    cell = turn.view.other_master(holder.host, holder.cell) if holder is not None else 0
    if holder is None or not cell or {each.cell for each in holders.values()} != {cell}:
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
                together(turn, cohorts[0], copy) or exposed(turn, cohorts[0], copy)
                for copy in cohorts[0].record.placed
            ):
                found.append(processor)
        turn.spread_now = frozenset(found)
    return turn.spread_now
