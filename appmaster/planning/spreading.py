"""Copies that share a cell although another could have one: after a cell has come back (issue: no task all in one).

Placing prefers another cell than the other copies' (`locality.rules`), but a copy that was created again while only
one cell could be asked stays where it is. When another cell can be asked again, one standby of such a task is filled
there, a few processors at a time. Pure.
"""

from __future__ import annotations

from typing import Final

from appmaster.planning.turn import Cohort, Turn
from standby.model import ProcessorId

#: So many processors are spread anew at once: each of them fills a copy.
MOST_AT_ONCE: Final = 4


def together(turn: Turn, cohort: Cohort, copy: int) -> int:
    """Return the cell that holds every copy of the tasks, if ``copy`` is the one to leave it; else 0.

    That is the last standby: the active stays where it is.
    """
    record = cohort.record
    standbys = [each for each in record.placed if each != record.active]
    if not standbys or copy != max(standbys) or record.displaced is not None:
        return 0
    if cohort.job.model.is_mixed or "cell" not in cohort.job.policy.spread:
        return 0
    if sum(each.is_up for each in turn.view.cells.values()) < 2:
        return 0
    holders = [turn.holder(cohort, each) for each in record.placed]
    # Those count too that a new leader only expects yet: where they are is known.
    cells = {each.cell for each in holders if each is not None}
    if None in holders or len(cells) != 1 or set(record.placed) != set(cohort.copies):
        return 0
    return next(iter(cells))


def spread_now(turn: Turn) -> frozenset[ProcessorId]:
    """Return the processors of which a copy may go to another cell at this moment."""
    if turn.spread_now is None:
        found: list[ProcessorId] = []
        for job, processor in turn.unsettled():
            if len(found) == MOST_AT_ONCE:
                break
            cohorts = turn.cohorts(job, processor) or ()
            if len(cohorts) == 1 and any(
                together(turn, cohorts[0], copy) for copy in cohorts[0].record.placed
            ):
                found.append(processor)
        turn.spread_now = frozenset(found)
    return turn.spread_now
