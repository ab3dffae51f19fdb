"""Spreading actives evenly over hosts by planned hand-overs, one at a time, once everything else is done. Pure.

`appmaster.planning.placement.spread` chooses the next hand-over. It begins once the job has been whole for a while and
the copy that is to take over is in sync and warm (rule `calm-moves`). Only jobs that an event has affected are checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from appmaster.planning.placement.spread import Stand, Step, active_processors, next_steps, stands_of
from appmaster.planning.placement.turn import Cohort, Turn, is_cold
from appmaster.planning.placement.upgrade import outdated, surplus_container
from appmaster.planning.rules.failover import is_in_sync
from appmaster.planning.rules.planned import best_standby, prepared
from appmaster.planning.state.actions import PrepareHandover, RestRebalancing
from appmaster.planning.state.job import Job
from appmaster.planning.state.reasons import HandoverMotive, Reason
from appmaster.planning.state.view import ClusterView, Container, Rebalancing

#: How long after a check that found no copy ready the job is checked again.
LOOK_MS: Final = 1_000


def due(turn: Turn) -> Iterator[Job]:
    """Yield the jobs whose spread is to be checked now."""
    view = turn.view
    for name, known in view.rebalancing.items():
        job = view.jobs.get(name)
        if job is not None and _may(view, job, known) and not turn.preparing and not is_busy(view, job):
            yield job


def _may(view: ClusterView, job: Job, known: Rebalancing) -> bool:
    if not job.is_led or view.now_ms < known.not_before_ms or known.is_spent(len(job.model.processors)):
        return False
    if known.is_asked:
        return True
    return (
        job.policy.rebalance == "auto"
        and known.whole_ms is not None
        and view.now_ms - known.whole_ms >= job.policy.rebalance_pause_ms
    )


def is_busy(view: ClusterView, job: Job) -> bool:
    """Return whether a hand-over of any job, or a failover of this job, is under way."""
    return bool(view.handovers) or any(
        (each.processor.job == job.name or each.reason is HandoverMotive.REBALANCE)
        and view.holder(each.to) is not None
        for each in view.failovers.values()
    )


def look(turn: Turn, job: Job) -> RestRebalancing | None:
    """Set `Turn.next_move` to the next hand-over of a job; if there is none, return when to check the job again."""
    view = turn.view
    if outdated(turn, job) or surplus_container(turn, job) is not None:
        # An upgrade hands actives over itself, and none may go back to an older revision.
        return RestRebalancing(job.name, view.now_ms + LOOK_MS)
    stands = stands_of(view, job, is_asked=view.rebalancing[job.name].is_asked)
    steps = next_steps(stands, _crowd(view, job))
    if not steps:
        return RestRebalancing(job.name, None if is_at_rest(turn, job) else view.now_ms + LOOK_MS)
    for step in steps:
        container = _ready(turn, job, step)
        if container is not None:
            turn.next_move = PrepareHandover(step.processor, step.copy, container.id, _reason(step, stands))
            return None
    return RestRebalancing(job.name, view.now_ms + LOOK_MS)


def is_at_rest(turn: Turn, job: Job) -> bool:
    """Return whether all copies of a job are in sync and none is moving: no further options are to be expected."""
    for owner, processor in turn.unsettled():
        if owner is not job:
            continue
        cohorts = turn.cohorts(job, processor)
        if cohorts is None or any(each.record.moving for each in cohorts):
            return False
        for each in cohorts:
            placed = (copy for copy in each.record.placed if turn.holder(each, copy) is not None)
            if not all(is_in_sync(each, copy) for copy in placed):
                return False
    return True


def _crowd(view: ClusterView, job: Job) -> dict[str, int]:
    """Return place → the number of other jobs' actives on its host."""
    others: Counter[str] = Counter()
    for other in view.jobs.values():
        if other.name != job.name:
            others.update(active_processors(view, other))
    if not others or not job.model.is_mixed:
        return others
    return {each.id: others[each.host] for each in view.containers.values()}


def _ready(turn: Turn, job: Job, step: Step) -> Container | None:
    """Return the container of the copy that is to take over, if the copy is in sync and warm; else None."""
    if step.processor in turn.touched:
        return None
    cohort = turn.only_cohort(job, step.processor)
    found = best_standby(turn, cohort, copy=step.copy) if cohort is not None else None
    return found[1] if found is not None and not is_cold(job, found[1]) else None


def _reason(step: Step, stands: list[Stand]) -> Reason[HandoverMotive]:
    counts = Counter(each.place for each in stands)
    many, few = counts[step.source], counts[step.target]
    actives = "active" if many == 1 else "actives"
    return Reason(HandoverMotive.REBALANCE, f"{step.source} has {many} {actives}, {step.target} has {few}")


def begin(turn: Turn, cohorts: tuple[Cohort, ...]) -> PrepareHandover | None:
    """Return the beginning of the next hand-over that spreads actives."""
    move = turn.next_move
    if move is None or move.processor != cohorts[0].processor or move.processor in turn.handing_over:
        return None
    return prepared(turn, move)
