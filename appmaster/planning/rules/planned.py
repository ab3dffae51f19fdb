"""Planned changes of the active: prepared while the active runs on, then decided. Never counted as a failure. Pure.

Reasons: an operator asked for it; the active's host is drained; its process is asked to end; its container runs an
older revision; its copy or its container is not where the model wants it; its processor's other tasks are active
elsewhere; every copy would be lost with its host. Hand-overs that spread actives evenly are decided in
`appmaster.planning.rules.rebalance`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from appmaster.planning.placement.eligibility import free_for
from appmaster.planning.placement.relocation import next_relocation
from appmaster.planning.placement.turn import Cohort, Turn, is_cold, is_current
from appmaster.planning.placement.upgrade import next_container, why_surplus
from appmaster.planning.rules.failover import fitness, is_in_sync
from appmaster.planning.rules.moving import hand_over, is_warming
from appmaster.planning.state.actions import ForgetHandover, PrepareHandover, WriteRecords
from appmaster.planning.state.reasons import HandoverMotive, Reason
from appmaster.planning.state.view import Container, Presence
from standby.shared.model import SlotId

#: Most hand-overs under way at once: each of them takes processor time from all tasks. A job without one may begin one
#: beyond that: those of another job may take long, and be begun again.
MOST_AT_ONCE: Final = 4


def carry_on(turn: Turn, cohorts: tuple[Cohort, ...]) -> WriteRecords | ForgetHandover | None:
    """Return the decision that a prepared hand-over waits for, or its end if it can no longer succeed."""
    processor = cohorts[0].processor
    handover = turn.view.handovers.get(processor)
    if handover is None or processor in turn.handing_over:
        return None
    container = turn.view.holder(handover.to)
    ready = [each for each in cohorts if _leads_to(each, handover.to_copy, handover.to)]
    if any(turn.holder(each, each.record.active or 0) is None for each in ready):
        # What follows is a failover under the job's policy, and is counted as one.
        return ForgetHandover(processor, "the active was lost meanwhile")
    if container is None or container.presence is not Presence.LIVE or not ready:
        return ForgetHandover(processor, f"{handover.to} cannot take over any more")
    if handover.reason.kind is HandoverMotive.REBALANCE and (leaves := turn.view.must_leave(container)):
        return ForgetHandover(processor, leaves)
    waited = turn.view.now_ms - handover.since_ms
    for cohort in ready:
        is_tailing = turn.is_tailing(cohort, handover.to_copy, container)
        statuses = list(turn.statuses(cohort, handover.to_copy, container))
        is_prepared = is_tailing and all(each is not None and each.is_prepared for each in statuses)
        is_over = waited >= cohort.job.policy.prepare_timeout_ms
        is_for_spread = (
            handover.reason.kind is HandoverMotive.REBALANCE and cohort.job.policy.has_warm_standbys
        )
        if is_over and not is_prepared and is_for_spread:
            # It is not urgent, so it is not worth a longer gap.
            return ForgetHandover(processor, f"copy {handover.to_copy} did not get ready")
        if is_prepared or (is_tailing and is_over):
            return hand_over(turn, cohort, handover.to_copy, container, handover.reason)
        if waited >= 2 * cohort.job.policy.prepare_timeout_ms:
            return ForgetHandover(processor, f"copy {handover.to_copy} fell behind meanwhile")
    return None


def _leads_to(cohort: Cohort, copy: int, container: str) -> bool:
    record = cohort.record
    if record.active is None or record.displaced is not None:
        return False
    if record.moving.get(copy) == container:
        return copy == record.active
    return record.placed.get(copy) == container and copy != record.active


def prepare(turn: Turn, cohorts: tuple[Cohort, ...]) -> PrepareHandover | None:
    """Return the beginning of a planned hand-over that is called for; None if none is."""
    processor = cohorts[0].processor
    is_full = turn.preparing.total() >= MOST_AT_ONCE and turn.preparing[processor.job]
    if processor in turn.view.handovers or processor in turn.handing_over or is_full:
        return None
    if any(
        each.record.active is not None and turn.holder(each, each.record.active) is None for each in cohorts
    ):
        return None  # the loss comes first: a preparation begun now would be given up for it
    for cohort in cohorts:
        record = cohort.record
        if record.active is None or record.displaced is not None:
            continue
        holder = turn.holder(cohort, record.active)
        if holder is None or holder.presence is not Presence.LIVE:
            continue
        filled = turn.view.holder(record.moving.get(record.active))
        if filled is not None:
            if (
                filled.presence is Presence.LIVE
                and turn.is_tailing(cohort, record.active, filled)
                and not is_warming(turn, cohort, record.active, filled)
            ):
                moved = Reason(HandoverMotive.MOVED, "the new copy is in sync")
                return prepared(turn, PrepareHandover(processor, record.active, filled.id, moved))
            continue
        reason = (
            _reason(turn, cohort, holder)
            or _next_door(turn, cohorts, cohort, holder)
            or _exposed(turn, cohort)
        )
        main = _gathering(turn, cohorts, cohort) if reason is None else None
        if main is not None:
            reason = Reason(
                HandoverMotive.GATHER, f"the other tasks of {processor} are active in copy {main}"
            )
        target = best_standby(turn, cohort, reason.kind, main) if reason is not None else None
        if reason is None or target is None:
            continue
        copy, container = target
        if _is_worth_the_gap(cohort, reason.kind, container):
            return prepared(turn, PrepareHandover(processor, copy, container.id, reason))
    return None


def _is_worth_the_gap(cohort: Cohort, motive: HandoverMotive, target: Container) -> bool:
    """Return whether the hand-over should begin now: to a container that is not warm it costs some 10 s of output.

    That is more than a failover costs, so one that only makes a double loss less likely waits until the copy is warm.
    """
    return motive is not HandoverMotive.EXPOSED or not is_cold(cohort.job, target)


def prepared(turn: Turn, handover: PrepareHandover) -> PrepareHandover:
    """Return the beginning of a hand-over; from now on it counts for those that this turn begins after it."""
    turn.preparing[handover.processor.job] += 1
    turn.handing_over.add(handover.processor)
    turn.loads.add(handover.container, actives=len(turn.view.job_tasks(handover.processor)))
    return handover


def _reason(turn: Turn, cohort: Cohort, holder: Container) -> Reason[HandoverMotive] | None:
    """Return why another copy should be active; None if none should."""
    if cohort.record.active not in cohort.copies:
        return Reason(HandoverMotive.MODEL, "the active's copy is not in the job model any more")
    if holder.host in turn.view.drained:
        return Reason(HandoverMotive.DRAINED, f"{holder.host} is drained")
    if turn.view.is_orphaned(holder):
        return Reason(HandoverMotive.CELL_LOST, f"the AM of cell {holder.cell} is gone")
    if holder.is_leaving:
        return Reason(HandoverMotive.STOPPING, f"{holder.id} is being stopped")
    # Its processor's standbys are replaced before it.
    if holder.id != next_container(turn, cohort.job):
        return None
    if is_current(cohort.job, holder):
        return Reason(HandoverMotive.SURPLUS, why_surplus(turn, cohort.job, holder))
    return Reason(HandoverMotive.UPGRADE, f"revision {cohort.job.revision} is to run")


def _next_door(
    turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, holder: Container
) -> Reason[HandoverMotive] | None:
    """Return that the active belongs in another container of its own host; None if it does not.

    It cannot be filled there while it runs: a standby takes over, and it moves there as a standby.
    """
    active = cohort.record.active
    if active is None or cohort.job.model.is_mixed:
        return None
    slot = SlotId(cohort.processor, active)
    home = turn.home(cohorts, slot)
    if home is None and turn.home_of(holder.id) != slot:
        home = free_for(turn, (cohort,), slot)
    if home is None or home.id == holder.id or home.host != holder.host:
        return None
    return Reason(HandoverMotive.REGROUP, f"its tasks belong in {home.id} on the same host")


def _exposed(turn: Turn, cohort: Cohort) -> Reason[HandoverMotive] | None:
    """Return that every copy could be lost at once unless the active moves; None if it need not.

    It moves as a standby: an active copy never moves while another can take over.
    """
    found = next_relocation(turn, cohort)
    if found is None or found.copy != cohort.record.active:
        return None
    return Reason(HandoverMotive.EXPOSED, found.reason)


def _gathering(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort) -> int | None:
    """Return the copy that is active for most of the processor's tasks, once they differ in nothing else; else None.

    A change of the model brings together tasks with different actives. While these differ, their copies can neither be
    spread over cells nor settle.
    """
    records = [each.record for each in cohorts]
    if any(each.placed != records[0].placed or each.moving or each.displaced is not None for each in records):
        return None
    counts: Counter[int] = Counter()
    for each in cohorts:
        if each.record.active is not None:
            counts[each.record.active] += len(each.recorded)
    main = max(cohort.copies, key=lambda copy: (counts[copy], -copy))
    holder = turn.holder(cohort, main)
    if main == cohort.record.active or holder is None or turn.view.must_leave(holder):
        return None
    return main


def best_standby(
    turn: Turn, cohort: Cohort, motive: HandoverMotive | None = None, copy: int | None = None
) -> tuple[int, Container] | None:
    """Return the standby that should take over as planned, or ``copy`` if it can; None if none is in sync."""
    found = [
        (each, holder)
        for each in cohort.record.placed
        if each != cohort.record.active
        and (copy is None or each == copy)
        and (holder := turn.holder(cohort, each)) is not None
        and holder.presence is Presence.LIVE
        and is_in_sync(cohort, each)
        and turn.is_tailing(cohort, each, holder)
        and not turn.is_superseded(cohort.job, holder)
        and (copy is not None or (not turn.view.must_leave(holder) and each in cohort.copies))
    ]
    if motive is HandoverMotive.UPGRADE and not cohort.job.model.is_mixed:
        # Or one that has other actives of the processor: once all are in one container, the other can be replaced.
        found = [each for each in found if is_current(cohort.job, each[1]) or _has_active(turn, each[1])]
    if motive is HandoverMotive.REGROUP:
        found = [each for each in found if turn.home_of(each[1].id) == SlotId(cohort.processor, each[0])]
    return min(
        found,
        key=lambda each: (
            not is_current(cohort.job, each[1]),
            *fitness(turn, cohort, *each, is_planned=True),
        ),
        default=None,
    )


def _has_active(turn: Turn, container: Container) -> bool:
    held = turn.view.assigned.get(container.id, {})
    return any(turn.view.records[task].record.active == copy for task, copy in held.items())
