"""Which container gets which copies: fills empty slots, and drops copies that are not wanted. Pure.

Two copies of a task never share a host (SEP-23, Invariant 1). Nothing here moves an active.
"""

from __future__ import annotations

from appmaster.planning.placement.eligibility import free_for, is_apart, is_clear
from appmaster.planning.placement.shared_containers import choose_shared
from appmaster.planning.placement.turn import Cohort, Turn, is_current
from appmaster.planning.placement.upgrade import is_restarting, may_take, why_surplus
from appmaster.planning.rules.failover import is_lost, poison
from appmaster.planning.state.actions import DecisionKind, Facts, FailoverPolicy, WriteRecords
from appmaster.planning.state.reasons import DecisionBasis, NoStandbyReason, Reason
from appmaster.planning.state.view import Container, Presence
from standby.shared.model import SlotId


def drop(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the drop of a standby: beside another copy, without a slot in the model, or in a replaced container."""
    return _parted(turn, cohort) or _dropped(turn, cohort)


def is_beside_another(turn: Turn, cohort: Cohort, copy: int, host: str) -> bool:
    """Return whether another copy of the tasks is placed on the host of a copy.

    No decision places a copy there, but a record that was written while a host was unknown may. The loss of that host
    would end both.
    """
    record = cohort.record
    others = (turn.holder(cohort, each) for each in record.placed if each not in (copy, record.displaced))
    return any(each is not None and each.host == host for each in others if host)


def _parted(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the drop of a standby that is on the host of another copy; it is placed again elsewhere."""
    record = cohort.record
    # The one that is less use first.
    for copy in sorted(record.placed, key=lambda each: (each in record.in_sync, each)):
        holder = turn.holder(cohort, copy)
        if copy in (record.active, record.displaced) or holder is None:
            continue
        if is_beside_another(turn, cohort, copy, holder.host):
            return _drop(turn, cohort, copy, Reason(DecisionBasis.SHARED_HOST, holder.host))
    return None


def _dropped(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    for copy, container in sorted(cohort.record.placed.items()):
        if copy in (cohort.record.active, cohort.record.displaced):
            continue
        if copy not in cohort.copies:
            if cohort.record.active not in cohort.copies:
                continue  # it may have to take over first
            return dropping(turn, cohort, copy, "the job has fewer standbys now")
        holder = turn.view.holder(container)
        if holder is None:
            continue
        if not cohort.restarts and is_lost(turn, cohort) and turn.is_superseded(cohort.job, holder):
            revision = holder.revisions.get(cohort.job.name)
            return dropping(
                turn, cohort, copy, f"it runs revision {revision}, which is not wanted: it cannot take over"
            )
        if is_restarting(turn, cohort, holder):
            reason = f"its container is replaced by one with revision {cohort.job.revision}"
            if is_current(cohort.job, holder):
                reason = f"its container is surplus: {why_surplus(turn, cohort.job, holder)}"
            return dropping(turn, cohort, copy, reason)
        is_stuck = holder.host in turn.view.drained and copy not in cohort.record.moving
        if is_stuck and not can_move(turn, cohort, copy, holder.host):
            return dropping(turn, cohort, copy, f"{holder.host} is drained, and no other host will do")
    return None


def dropping(turn: Turn, cohort: Cohort, copy: int, reason: str) -> WriteRecords | None:
    """Return the planned drop of a copy."""
    return _drop(turn, cohort, copy, Reason(DecisionBasis.OTHER, reason))


def _drop(turn: Turn, cohort: Cohort, copy: int, reason: Reason[DecisionBasis]) -> WriteRecords | None:
    return turn.decide(
        cohort, DecisionKind.DROP, reason, lambda record: turn.dropped(cohort, record, copy), copy=copy
    )


def can_move(turn: Turn, cohort: Cohort, copy: int, host: str) -> bool:
    """Return whether some known host could take a copy that has to leave its own."""
    slot = SlotId(cohort.processor, copy)
    taken = {host, *(each.host.name for each in turn.siblings((cohort,), slot))}
    return any(each not in taken and each not in turn.view.drained for each in turn.view.hosts)


def start(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort) -> WriteRecords | None:
    """Return the placement of a copy that becomes active thereby, if a container is available for one."""
    return _bind(turn, cohorts, cohort, activates=True)


def fill(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort) -> WriteRecords | None:
    """Return the placement of a standby, if a container is available for one."""
    return _bind(turn, cohorts, cohort, activates=False)


def _bind(turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, *, activates: bool) -> WriteRecords | None:
    record = cohort.record
    alive = [copy for copy in record.placed if turn.holder(cohort, copy) is not None]
    kept = [copy for copy in record.placed if turn.is_kept(cohort, copy)]
    empty = [copy for copy in cohort.copies if copy not in alive and copy not in kept]
    for copy in empty:
        is_active = copy == record.active
        if activates != (record.active is None or is_active or not alive):
            continue
        if record.displaced is not None and (is_active or copy == record.displaced):
            continue  # decided by the steps of policy restart
        if record.active is None and copy != cohort.copies[0] and cohort.copies[0] in empty:
            continue  # the first copy is the first active: every active before any standby (SEP-23)
        if is_active and alive and not cohort.restarts:
            continue  # a live copy is about to be promoted; this slot becomes a standby's then
        if activates and poison(cohort, turn):
            return None  # no other copy would fare better
        container = _container_for(turn, cohorts, cohort, copy, activates=activates)
        if container is None or (activates and turn.is_superseded(cohort.job, container)):
            continue
        if is_clear(turn, cohort, container):
            return binding(turn, cohort, copy, container, activates=activates)
    return None


def binding(
    turn: Turn, cohort: Cohort, copy: int, container: Container, *, activates: bool
) -> WriteRecords | None:
    """Return the placement of a copy in a container; ``activates``: it becomes the active there."""
    lost = cohort.record.active
    in_place = lost == copy and cohort.restarts and container.host == cohort.record.hosts.get(copy)
    without: Reason[NoStandbyReason] | None = None
    if in_place:
        reason = Reason(DecisionBasis.OTHER, f"copy {copy} is started again on its own host")
    elif activates and lost is not None and any(turn.holder(cohort, each) for each in cohort.record.placed):
        without = Reason(
            NoStandbyReason.STANDBY_STAYED, "its host could not be reserved, so the active starts elsewhere"
        )
        reason = Reason(DecisionBasis.OTHER, str(without))
    elif activates and lost is not None:
        without = Reason(NoStandbyReason.NO_OTHER_COPY, "it becomes the active")
        reason = Reason(DecisionBasis.NO_OTHER_COPY, "it becomes the active")
    elif activates:
        reason = Reason(DecisionBasis.FIRST_COPY, "it becomes the active")
    else:
        reason = Reason(DecisionBasis.EMPTY_SLOT)
    tasks = len(cohort.recorded)
    turn.loads.add(container.id, actives=tasks if activates else 0, copies=tasks)
    return turn.decide(
        cohort,
        DecisionKind.BIND,
        reason,
        lambda record: turn.placed(cohort, record, copy, container, activates=activates),
        container=container,
        copy=copy,
        facts=Facts(
            host=container.host,
            in_place=in_place,
            from_copy=lost,
            without=without,
            policy=FailoverPolicy.RESTART if cohort.restarts else FailoverPolicy.PROMOTE,
        ),
    )


def _container_for(
    turn: Turn, cohorts: tuple[Cohort, ...], cohort: Cohort, copy: int, *, activates: bool
) -> Container | None:
    """Return the container for an unplaced copy: its slot's home, else a free one that fits; None if neither."""
    if cohort.job.model.is_mixed:
        return choose_shared(turn, cohort, copy, activates=activates)
    slot = SlotId(cohort.processor, copy)
    home = turn.home(cohorts, slot)
    if home is not None:
        # Of any revision, unless it is about to be replaced: the other tasks of the slot are there.
        is_staying = home.presence is Presence.LIVE and may_take(turn, cohort.job, home)
        is_open = not home.binding and home.id not in turn.taken
        return home if is_staying and is_open and is_apart(turn, cohort, copy, home) else None
    return free_for(turn, cohorts, slot)
