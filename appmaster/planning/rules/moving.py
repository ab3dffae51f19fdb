"""Copies that move to another container: filled there while the old one serves (Kafka's reassignment). Pure.

A standby replaces the old copy when it is in sync, and warm if the old one is. An active moves by a planned hand-over.
Only the copy of a job without standbys on its only host is stopped before it starts again.
"""

from __future__ import annotations

from dataclasses import replace

from appmaster.planning.placement.eligibility import free_for, is_clear
from appmaster.planning.placement.fault_domains import Relocation
from appmaster.planning.placement.relocation import next_relocation
from appmaster.planning.placement.shared_containers import (
    choose_shared,
    is_overloaded,
    lacks_room,
    less_loaded,
)
from appmaster.planning.placement.turn import Cohort, Turn, activated, is_current, may_become_warm
from appmaster.planning.placement.upgrade import next_container
from appmaster.planning.rules.failover import holds_up_displacing, is_in_sync
from appmaster.planning.rules.placing import dropping, is_beside_another
from appmaster.planning.state.actions import DecisionKind, Facts, WriteRecords
from appmaster.planning.state.mappings import without
from appmaster.planning.state.reasons import DecisionBasis, HandoverMotive, Reason
from appmaster.planning.state.view import Container, Presence
from standby.shared.model import SlotId, TaskRecord


def end_move(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the end of moving a copy: given up, or completed. Actives arrive by a planned hand-over."""
    record = cohort.record
    for copy, container in sorted(record.moving.items()):
        known = turn.view.containers.get(container)
        if known is not None and known.presence is Presence.SUSPECT:
            continue  # it may come back, and has the copy open; a new leader may not even know its host
        target = turn.view.holder(container)
        reason = (
            _why_given_up(turn, cohort, copy, target)
            if target is not None
            else Reason(DecisionBasis.OTHER, f"{container} is of no use any more")
        )
        if reason is not None:
            return turn.decide(
                cohort,
                DecisionKind.STAY,
                reason,
                lambda record, copy=copy: replace(record, moving=without(record.moving, copy)),  # type: ignore[misc]
                copy=copy,
            )
        if (
            target is not None
            and copy != record.active
            and turn.is_tailing(cohort, copy, target)
            and not is_warming(turn, cohort, copy, target)
        ):
            return _moved(turn, cohort, copy, target)
    return None


def is_warming(turn: Turn, cohort: Cohort, copy: int, target: Container) -> bool:
    """Return whether the old copy is kept although the new one is in sync, because only the old one is warm.

    A failover or hand-over to a copy that is not warm takes some 10 s. An old copy that ends anyway, with its process
    or its cell, is not kept.
    """
    holder = turn.holder(cohort, copy)
    return (
        may_become_warm(cohort.job, target, turn.view.now_ms)
        and holder is not None
        and holder.presence is Presence.LIVE
        and holder.is_warm
        and not (holder.has_ended or holder.is_leaving or turn.view.is_orphaned(holder))
    )


def begin_move(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort) -> WriteRecords | None:
    """Return the first step of moving a copy that should be in another container; None if no copy can move now."""
    record = cohort.record
    if record.displaced is not None or record.moving or record.active is None:
        return None
    stopped = _renumbered(turn, cohorts, cohort)
    if stopped is not None:
        return stopped
    for copy in cohort.copies:
        holder = turn.holder(cohort, copy)
        if holder is None or holder.presence is not Presence.LIVE:
            continue
        target = _target(turn, cohorts, cohort, copy, holder)
        if target is None:
            continue
        if target.host in turn.hosts_of_copies(cohort, copy):
            given_up = _make_way(turn, cohort, copy, target.host)
            if given_up is not None:
                return given_up
            continue  # the active is in the way: it is to move itself, and moves first
        if target.host == holder.host:
            if copy == record.active and not _is_alone(cohort, copy):
                continue  # both would use the same directory: a standby takes over first
            if copy == record.active:
                reason = move_reason(turn, cohorts, cohort, copy, holder)
                return _stopping(turn, cohort, copy, f"{reason}, on {holder.host}")
            # Both would use the same directory: it is closed here before it is opened there.
            return dropping(turn, cohort, copy, f"its tasks belong in {target.id} on the same host")
        if not is_clear(turn, cohort, target):
            continue  # another process there has not closed it yet; it may be stalled
        reason = move_reason(turn, cohorts, cohort, copy, holder)
        relocation = relocation_of(turn, cohort, copy)
        basis = relocation.basis if relocation is not None else DecisionBasis.OTHER
        turn.loads.add(target.id, copies=len(cohort.recorded))
        return turn.decide(
            cohort,
            DecisionKind.MOVE,
            Reason(basis, f"copy {copy} is filled on {target.host}: {reason}"),
            lambda record, copy=copy, target=target: replace(  # type: ignore[misc]
                turn.vacated(record, copy, target.host), moving={copy: target.id}
            ),
            container=target,
            copy=copy,
            facts=Facts(host=target.host),
        )
    return None


def move_reason(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, copy: int, holder: Container) -> str:
    """Return why a copy should be in another container; empty if it should not."""
    is_alone = _is_alone(cohort, copy)
    leaves = turn.view.must_leave(holder)
    if cohort.job.model.is_mixed:
        if leaves and (copy != cohort.record.active or is_alone):
            return leaves
        if is_alone and holder.id == next_container(turn, cohort.job):
            return f"revision {cohort.job.revision} is to run"
        relocation = relocation_of(turn, cohort, copy)
        if relocation is not None:
            return relocation.reason
        if (copy != cohort.record.active or is_alone) and is_overloaded(turn, cohort, copy, holder):
            return f"{holder.id} holds more than its share"
        return ""
    slot = SlotId(cohort.processor, copy)
    home = turn.home(cohorts, slot) if len(cohorts) > 1 else holder
    if turn.home_of(holder.id) != slot or (home is not None and home.id != holder.id):
        return f"its tasks belong to {cohort.processor}"
    if home is None:
        return f"copy {copy} of {cohort.processor} has no host of its own"
    if leaves and (copy != cohort.record.active or is_alone):
        return leaves
    if is_alone and not is_current(cohort.job, holder):
        return f"revision {cohort.job.revision} is to run"
    relocation = relocation_of(turn, cohort, copy)
    return relocation.reason if relocation is not None else ""


def kept_apart(
    turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, slot: SlotId, holder: Container
) -> tuple[Cohort, ...]:
    """Return the cohorts whose copies the container for a cohort's move has to avoid."""
    return cohorts if _is_crowded_out(turn, cohorts, slot, holder) else (cohort,)


def _is_crowded_out(turn: Turn, cohorts: tuple[Cohort, ...], slot: SlotId, holder: Container) -> bool:
    """Return whether a slot has containers, ``holder`` among them, but all on hosts of other copies' homes.

    This happens when tasks have come together: their processor then needs a container on one more host.
    """
    return turn.home_of(holder.id) == slot and turn.home(cohorts, slot) is None


def relocation_of(turn: Turn, cohort: Cohort, copy: int) -> Relocation | None:
    """Return where a standby is to move only because of the other copies; None if it is not to."""
    found = next_relocation(turn, cohort) if copy != cohort.record.active else None
    return found if found is not None and found.copy == copy else None


def _is_alone(cohort: Cohort, copy: int) -> bool:
    """Return whether a copy is the active of a job without standbys: no other copy can take over."""
    return copy == cohort.record.active and len(cohort.copies) == 1


def _moved(turn: Turn, cohort: Cohort, copy: int, target: Container) -> WriteRecords | None:
    def edit(record: TaskRecord) -> TaskRecord:
        record = turn.placed(cohort, record, copy, target, activates=False)
        return replace(record, in_sync=tuple(sorted({*record.in_sync, copy})))

    reason = Reason(DecisionBasis.OTHER, f"copy {copy} is in sync on {target.host}")
    return turn.decide(cohort, DecisionKind.MOVED, reason, edit, copy=copy, facts=Facts(host=target.host))


def _make_way(turn: Turn, cohort: Cohort, copy: int, host: str) -> WriteRecords | None:
    """Return the end of the standby that is in the way of its own task's move; it is placed again afterwards."""
    for other in cohort.record.placed:
        holder = turn.holder(cohort, other)
        if other not in (copy, cohort.record.active) and holder is not None and holder.host == host:
            return dropping(turn, cohort, other, f"displaced by copy {copy} on {host}")
    return None


def _stopping(turn: Turn, cohort: Cohort, copy: int, reason: str) -> WriteRecords | None:
    """Return the stop of an only copy that is started again on its own host, because no other is available."""

    def edit(record: TaskRecord) -> TaskRecord:
        # It stays the active and a member of its in-sync set: no other copy has its state.
        return replace(turn.dropped(cohort, record, copy), in_sync=record.in_sync)

    why = Reason(DecisionBasis.OTHER, f"its only copy is started again: {reason}")
    return turn.decide(cohort, DecisionKind.DROP, why, edit, copy=copy)


def _renumbered(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort) -> WriteRecords | None:
    """Return the stop of an only copy that the model has no slot for, if its tasks' container is on the same host.

    It cannot be filled there while it runs, and no other copy can take over meanwhile.
    """
    active = cohort.record.active
    holder = turn.holder(cohort, active) if active is not None else None
    if active is None or active in cohort.copies or holder is None:
        return None
    others = [
        copy for copy in cohort.record.placed if copy != active and turn.holder(cohort, copy) is not None
    ]
    if others and (len(cohort.copies) > 1 or cohort.copies[0] in others):
        return None
    for copy in cohort.copies:
        home = turn.home(cohorts, SlotId(cohort.processor, copy))
        if home is not None and home.presence is Presence.LIVE and home.host == holder.host:
            if others:
                reason = "the job has fewer standbys now, and its active has to start again on its host"
                return dropping(turn, cohort, others[0], reason)
            return _stopping(turn, cohort, active, f"its tasks belong in {home.id} on the same host")
    return None


def _why_given_up(turn: Turn, cohort: Cohort, copy: int, target: Container) -> Reason[DecisionBasis] | None:
    """Return why a move under way is given up; None if it goes on."""
    is_useful = copy in cohort.copies and not turn.view.must_leave(target)
    if not is_useful or is_beside_another(turn, cohort, copy, target.host):
        return Reason(DecisionBasis.NO_NEED)
    if holds_up_displacing(turn, cohort, copy):
        return Reason(DecisionBasis.OTHER, f"copy {copy} is to be displaced where it is")
    return None


def _target(
    turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, copy: int, holder: Container
) -> Container | None:
    """Return where a copy is to move, if it is to move and the container exists; else None."""
    if not move_reason(turn, cohorts, cohort, copy, holder):
        return None
    if cohort.job.model.is_mixed:
        if _waits_for_others(turn, cohort, copy, holder):
            return None
        found = choose_shared(turn, cohort, copy, activates=False, leaves=holder.host)
        # If no other host will do, a copy that would end with its cell is closed and opened again on its own host.
        may_stay = _is_alone(cohort, copy) or turn.view.is_orphaned(holder)
        if found is None or found.host != holder.host or may_stay:
            return found
        # Only a container on the copy's own host has room, where a second replica of the task must not be filled.
        return less_loaded(turn, cohort, copy, holder)
    slot = SlotId(cohort.processor, copy)
    home = turn.home(cohorts, slot)
    if home is not None and home.id != holder.id:
        is_ready = home.presence is Presence.LIVE and not turn.view.must_leave(home)
        return home if is_ready and home.id not in turn.taken and not home.binding else None
    among = kept_apart(turn, cohorts, cohort, slot, holder)
    relocation = relocation_of(turn, cohort, copy)
    return free_for(turn, among, slot, relocation.locations if relocation is not None else None)


def _waits_for_others(turn: Turn, cohort: Cohort, copy: int, holder: Container) -> bool:
    """Return whether a copy of a mixed job is to move only to even out the load, while others lack a place.

    It would take the room that only they can use.
    """
    if turn.view.must_leave(holder) or relocation_of(turn, cohort, copy) is not None:
        return False
    return lacks_room(turn, cohort.job) and is_overloaded(turn, cohort, copy, holder)


def hand_over(
    turn: Turn, cohort: Cohort, to_copy: int, container: Container, reason: Reason[HandoverMotive]
) -> WriteRecords | None:
    """Return the decision that makes a prepared standby, or a filled copy, active as planned."""

    def edit(record: TaskRecord) -> TaskRecord:
        if record.placed.get(to_copy) == container.id:
            # The former active continues as a standby, with everything that was committed.
            then = activated(record, to_copy, is_chosen=reason.kind is HandoverMotive.ASKED)
            return replace(then, in_sync=tuple(sorted({*record.in_sync, to_copy})))
        return turn.placed(cohort, record, to_copy, container, activates=True)

    return turn.decide(
        cohort,
        DecisionKind.HANDOVER,
        reason,
        edit,
        copy=to_copy,
        facts=Facts(from_copy=cohort.record.active, to_copy=to_copy, in_sync=is_in_sync(cohort, to_copy)),
    )
