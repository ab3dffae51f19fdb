"""Decisions that change task records, processor by processor, by `appmaster.planning.rules.table`. Pure.

A processor whose records are being written is left alone until the write is acknowledged. A processor with nothing
left to do is left alone until something happens to it: a turn in which nothing happens must cost nothing, whatever
the number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from appmaster.planning.containers.assignments import is_up_to_date
from appmaster.planning.placement.relocation import can_relocate, next_relocation
from appmaster.planning.placement.turn import Cohort, Turn, is_current
from appmaster.planning.placement.upgrade import surplus_container
from appmaster.planning.rules import rebalance
from appmaster.planning.rules.failover import missed
from appmaster.planning.rules.moving import move_reason, relocation_of
from appmaster.planning.rules.table import first
from appmaster.planning.state.actions import Action, Settle
from appmaster.planning.state.job import Job
from appmaster.planning.state.view import Presence
from standby.shared.model import Phase, ProcessorId, Role, SlotId


def writes(turn: Turn) -> Iterator[Action]:
    """Yield at most one decision per processor, and which processors are settled."""
    yield from missed(turn)
    settled: list[ProcessorId] = []
    for job, processor in turn.unsettled():
        cohorts = turn.cohorts(job, processor)
        if cohorts is None:
            continue
        action = first(turn, cohorts)
        if action is not None:
            yield action
        elif is_settled(turn, job, processor, cohorts):
            settled.append(processor)
    if settled:
        yield Settle(tuple(settled))
    yield from _spread(turn)


def _spread(turn: Turn) -> Iterator[Action]:
    """Yield the next hand-over that spreads a job's actives, or when to check its job again."""
    for job in rebalance.due(turn):
        rest = rebalance.look(turn, job)
        if rest is not None:
            yield rest
            continue
        cohorts = turn.cohorts(job, turn.next_move.processor) if turn.next_move is not None else None
        action = first(turn, cohorts) if cohorts is not None else None
        if action is not None:
            yield action


def is_settled(turn: Turn, job: Job, processor: ProcessorId, cohorts: tuple[Cohort, ...]) -> bool:
    """Return whether a processor needs nothing and waits for nothing."""
    if not job.is_led:
        return False  # it is over soon, and is looked at until then
    if job.model.processors[processor].parked:
        return True
    if any(
        isinstance(each.slot, SlotId) and each.slot.processor == processor
        for each in turn.view.requests.values()
    ):
        return False
    return (
        is_whole(turn, job, processor, cohorts)
        and next_relocation(turn, cohorts[0]) is None
        and not can_relocate(turn, cohorts[0])
    )


def is_whole(turn: Turn, job: Job, processor: ProcessorId, cohorts: tuple[Cohort, ...]) -> bool:
    """Return whether every copy of a processor does what it should, though one may be wished in a better location."""
    view = turn.view
    if len(cohorts) != 1 or processor in view.handovers or processor in view.lost_actives:
        return False
    cohort = cohorts[0]
    record = cohort.record
    if record.moving or record.displaced is not None or set(record.placed) != set(cohort.copies):
        return False
    for copy in cohort.copies:
        holder = turn.holder(cohort, copy)
        if holder is None or holder.presence is not Presence.LIVE or holder.has_ended:
            return False
        if not is_up_to_date(view, holder) or not is_current(job, holder) or view.must_leave(holder):
            return False
        is_wish = relocation_of(turn, cohort, copy) is not None
        if not is_wish and move_reason(turn, cohorts, cohort, copy, holder):
            return False
        role = Role.ACTIVE if record.active == copy else Role.STANDBY
        expected = Phase.ACTIVE if role is Role.ACTIVE else Phase.TAILING
        for status in turn.statuses(cohort, copy, holder):
            if status is None or status.role is not role or status.phase is not expected:
                return False
    # Its surplus container is emptied once the rest of a mixed job is whole, which is seen only while all is unsettled.
    return surplus_container(turn, job) is None and all(
        each.record.claimed
        and len(each.record.in_sync) == len(cohort.copies)
        and each.record.failures is None
        for each in cohort.recorded
    )
