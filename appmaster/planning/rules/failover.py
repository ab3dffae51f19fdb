"""Failover of a lost active: which copy replaces it, under both policies (SEP-23, part 3). Pure.

``promote``: the best standby becomes active in place. ``restart``: the active is started again, on its own host if
that is available in time, else on the host of a standby, which is displaced. SEP-23's steps: the standby's locality is
deleted and the active's is set to that host (3 and 4); the standby is stopped while an empty container reserves the
host (5 and 6); once both are confirmed, the active starts (7); the displaced standby then goes to any host (8).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from appmaster.planning.containers.assignments import has_closed
from appmaster.planning.placement.turn import Cohort, Turn, activated, is_cold
from appmaster.planning.state.actions import (
    Action,
    DecisionKind,
    Facts,
    FailoverPolicy,
    MissActive,
    WriteRecords,
)
from appmaster.planning.state.job import Job
from appmaster.planning.state.reasons import DecisionBasis, FailureReason, Loss, NoStandbyReason, Reason
from appmaster.planning.state.view import (
    Container,
    LostActive,
    Presence,
    ReplicaProgress,
    RequestState,
)
from locality.history import forget
from standby.shared.model import ReplicaId, SlotId, TaskRecord


def missed(turn: Turn) -> Iterator[Action]:
    """Yield a note of every active that was lost without this leader seeing the loss."""
    for job, processor in turn.unsettled():
        if not job.is_led or processor in turn.view.lost_actives:
            continue
        for cohort in turn.cohorts(job, processor) or ():
            active = cohort.record.active
            if active is None or turn.holder(cohort, active) is not None:
                continue
            container = cohort.record.placed.get(active, "")
            # An only copy that was stopped as planned is in no container either, and is no loss.
            has_others = any(turn.holder(cohort, each) is not None for each in cohort.record.placed)
            if container or cohort.record.displaced is not None or has_others:
                lost = LostActive(container, Loss.GONE_BEFORE_TAKEOVER, turn.view.now_ms)
                yield MissActive(processor, lost)
                break


def poison(cohort: Cohort, turn: Turn) -> Reason[FailureReason] | None:
    """Return why the cohort's tasks would fail again wherever they ran; None if they would not."""
    policy = cohort.job.policy
    for each in cohort.recorded:
        failures = turn.view.crashes.get(each.record.task) or each.record.failures
        if failures is not None and policy.fails_on_error and failures.count >= policy.error_attempts:
            return Reason(
                FailureReason.POISON,
                f"poison: {each.record.task} failed {failures.count} times at input offset "
                f"{failures.offset}; the last time: {failures.reason}",
            )
    return None


def is_lost(turn: Turn, cohort: Cohort) -> bool:
    """Return whether a cohort has a lost active that is to be replaced and would not merely fail again."""
    active = cohort.record.active
    return active is not None and turn.holder(cohort, active) is None and not poison(cohort, turn)


def _candidates(turn: Turn, cohort: Cohort) -> list[tuple[int, Container]]:
    """Return the live copies other than the active, including those that are moving, with their containers."""
    record = cohort.record
    found = [(copy, turn.holder(cohort, copy)) for copy in record.placed if copy != record.active]
    found += [(copy, turn.view.holder(container)) for copy, container in record.moving.items()]
    return [
        (copy, holder)
        for copy, holder in found
        if holder is not None and holder.presence is Presence.LIVE and not holder.has_ended
    ]


def promote(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the promotion of the best live copy, in place; None if there is none."""
    candidates = [each for each in _candidates(turn, cohort) if not turn.is_superseded(cohort.job, each[1])]
    if cohort.record.displaced is not None or not candidates:
        return None
    lost = cohort.record.active
    copy, holder = min(candidates, key=lambda each: fitness(turn, cohort, *each))
    in_sync = is_in_sync(cohort, copy) and cohort.record.placed.get(copy) == holder.id

    def edit(record: TaskRecord) -> TaskRecord:
        if record.placed.get(copy) != holder.id:
            record = turn.placed(cohort, record, copy, holder, activates=False)
        return activated(record, copy)

    why = "in sync" if in_sync else "not in sync, but the least behind of those that live"
    turn.loads.add(holder.id, actives=len(cohort.recorded))
    return turn.decide(
        cohort,
        DecisionKind.FAILOVER,
        Reason(DecisionBasis.OTHER, f"copy {lost} is lost; copy {copy} is {why}"),
        edit,
        copy=copy,
        facts=Facts(
            from_copy=lost,
            to_copy=copy,
            in_sync=in_sync,
            without=None if in_sync else Reason(NoStandbyReason.RESTORING, "no standby was in sync"),
            policy=FailoverPolicy.PROMOTE,
        ),
    )


#: Starts within this time count as equally quick.
_QUICK_MS: Final = 500

#: The class of a start whose duration is unknown.
_COLD: Final = 8


def is_in_sync(cohort: Cohort, copy: int) -> bool:
    """Return whether the records have this copy of every task in sync."""
    return all(copy in each.record.in_sync for each in cohort.recorded)


def fitness(
    turn: Turn, cohort: Cohort, copy: int, container: Container, *, is_planned: bool = False
) -> tuple[int, ...]:
    """Return how suitable a copy is to become active, least is best.

    Copies in sync come first. They are ranked by: a host and cell that may stay, another cell than the lost active's,
    warm (if ``is_planned``: a hand-over is to cost little output), the fewest actives (in a mixed job, so that the
    tasks of a container spread over the others), the class of the start, the lag, the number. Copies that are not in
    sync are ranked by: another cell, the lag, the start, the number. A copy without a report comes last.
    """
    in_sync = is_in_sync(cohort, copy) and cohort.record.placed.get(copy) == container.id
    load = turn.loads.of(container.id).actives if in_sync and cohort.job.model.is_mixed else 0
    lag = start = 0
    for each in cohort.recorded:
        status = container.statuses.get(ReplicaId(each.record.task, copy))
        records = status.lag_records if status is not None else None
        lag += records if records is not None else 1 << 40
        start = max(start, slowness(status.start_ms if status is not None else None))
    # A drained host, and a cell that is or may be lost, are the last resort.
    leaves = int(bool(turn.view.must_leave(container)) or not turn.view.is_of_cell_that_answers(container))
    # A cell is lost as a whole: the lost active may be the first of its containers whose loss is noticed.
    lost = turn.view.lost_actives.get(cohort.processor)
    is_beside = lost is not None and lost.cell == container.cell
    return (
        leaves if in_sync else 2,
        int(is_beside),
        int(is_planned and is_cold(cohort.job, container)),
        load,
        start if in_sync else 0,
        lag,
        start,
        copy,
    )


def slowness(start_ms: int | None) -> int:
    """Return the class of a start that takes ``start_ms``: each class takes at least twice as long as the one before.

    Measurements on a busy machine vary; copies of one class count as equal.
    """
    if start_ms is None:
        return _COLD
    return min(_COLD - 1, (start_ms // _QUICK_MS).bit_length())


# ---- an active that is stuck ----


def is_stuck(turn: Turn, cohort: Cohort) -> bool:
    """Return whether the active has lost its state, or has made no progress for too long.

    The latter while becoming active, which includes restoring its state, or while cut off from Kafka.
    """
    return any(
        each.has_lost_state or turn.view.now_ms - each.since_ms > cohort.job.policy.progress_timeout_ms
        for each in _stuck(turn, cohort)
    )


def _stuck(turn: Turn, cohort: Cohort) -> list[ReplicaProgress]:
    """Return the standing of the active's tasks that do not work, in a container that is heard."""
    active = cohort.record.active
    holder = turn.holder(cohort, active) if active is not None else None
    if active is None or holder is None or holder.presence is not Presence.LIVE:
        return []
    return [
        each
        for recorded, each in zip(cohort.recorded, _standings(cohort, active, holder), strict=True)
        # Each task has an epoch of its own.
        if each is not None and not each.can_take_over and each.epoch == recorded.record.epoch
    ]


def promote_another(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the promotion of a copy that has been able to take over for as long as the active has been stuck.

    The condition "for as long" matters while Kafka is unavailable: no copy meets it then, and when Kafka answers
    again every copy has the full time-out. It does not apply if the active has lost its state, which it will not have
    sooner than such a copy. The former active continues as a standby if it can.
    """
    stuck, timeout_ms = cohort.record.active, cohort.job.policy.progress_timeout_ms
    is_state_lost = any(each.has_lost_state for each in _stuck(turn, cohort))
    candidates = [
        (copy, holder)
        for copy, holder in _candidates(turn, cohort)
        if cohort.record.placed.get(copy) == holder.id
        and is_in_sync(cohort, copy)
        and not turn.is_superseded(cohort.job, holder)
        and turn.is_tailing(cohort, copy, holder)
        and all(
            each is not None
            and each.can_take_over
            and (is_state_lost or turn.view.now_ms - each.since_ms > timeout_ms)
            for each in _standings(cohort, copy, holder)
        )
    ]
    if cohort.record.displaced is not None or not candidates:
        return None
    copy, holder = min(candidates, key=lambda each: fitness(turn, cohort, *each))
    turn.loads.add(holder.id, actives=len(cohort.recorded))
    if is_state_lost:
        why = f"copy {stuck} has lost its state and restores it; copy {copy} is in sync"
    else:
        why = f"copy {stuck} has made no progress for {timeout_ms} ms; copy {copy} could"
    return turn.decide(
        cohort,
        DecisionKind.FAILOVER,
        Reason(DecisionBasis.STUCK, why),
        lambda record: activated(record, copy),
        copy=copy,
        facts=Facts(from_copy=stuck, to_copy=copy, in_sync=True, policy=FailoverPolicy.PROMOTE),
    )


def _standings(cohort: Cohort, copy: int, container: Container) -> Iterator[ReplicaProgress | None]:
    for each in cohort.tasks:
        yield container.standing.get(ReplicaId(each, copy))


# ---- policy restart ----


def displace(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return steps 2 to 4: the active's own host was not available in time, so a standby is displaced."""
    record, policy = cohort.record, cohort.job.policy
    active = record.active
    assert active is not None
    # The move of another is given up first (`holds_up_displacing`).
    candidates = [each for each in _displaceable(turn, cohort) if each[0] not in record.moving]
    if not candidates:
        return None
    copy, holder = min(candidates, key=lambda each: fitness(turn, cohort, *each))

    def edit(record: TaskRecord) -> TaskRecord:
        record = turn.remembered(cohort, record, active)
        hosts = {each: host for each, host in record.hosts.items() if each != copy}
        return replace(
            record,
            hosts={**hosts, active: holder.host},
            history=forget(record.history, holder.host),
            displaced=copy,
        )

    return turn.decide(
        cohort,
        DecisionKind.DISPLACE,
        Reason(
            DecisionBasis.OTHER,
            f"copy {active} got no container on its own host in {policy.samehost_timeout_ms} ms; copy {copy} "
            f"is displaced on {holder.host}",
        ),
        edit,
        copy=copy,
        facts=Facts(host=holder.host, in_sync=is_in_sync(cohort, copy)),
    )


def holds_up_displacing(turn: Turn, cohort: Cohort, copy: int) -> bool:
    """Return whether a copy would be displaced if it did not move, and no other one can be.

    It may restore for hours where it moves to. On a drained host nothing can be reserved, so there it goes on.
    """
    if not cohort.restarts or not is_lost(turn, cohort):
        return False
    found = dict(_displaceable(turn, cohort))
    is_of_use = copy in found and found[copy].host not in turn.view.drained
    return is_of_use and found.keys() <= cohort.record.moving.keys()


def _displaceable(turn: Turn, cohort: Cohort) -> list[tuple[int, Container]]:
    """Return the standbys of which one is to be displaced now, where they are; none while it is not time for that."""
    view, record, policy = turn.view, cohort.record, cohort.job.policy
    active = record.active
    assert active is not None
    slot = SlotId(cohort.processor, active)
    lost = view.lost_actives.get(cohort.processor)
    if record.displaced is not None or lost is None or view.now_ms - lost.at_ms < policy.samehost_timeout_ms:
        return []
    if cohort.job.quarantined or view.now_ms < view.no_displacing.get(cohort.processor, 0):
        return []
    if any(each.slot == slot and each.state is RequestState.GRANTED for each in view.requests.values()):
        return []  # its own host became available just in time
    if any(each.slot == slot for each in turn.free(cohort.job)):
        return []
    return [
        (copy, holder) for copy, holder in _candidates(turn, cohort) if record.placed.get(copy) == holder.id
    ]


def start_reserved(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return steps 6 and 7: the start of the active once the displaced standby's stop and the host are confirmed."""
    record, active, displaced = cohort.record, cohort.record.active, cohort.record.displaced
    if active is None or displaced is None:
        return None
    host = record.hosts.get(active, "")
    reserved = reservation(turn, cohort.job, SlotId(cohort.processor, active), host)
    if reserved is None or not has_stopped(turn, cohort, displaced):
        return None
    in_sync = is_in_sync(cohort, displaced)

    def start(record: TaskRecord) -> TaskRecord:
        record = turn.dropped(cohort, record, displaced)
        record = replace(record, displaced=None, history=forget(record.history, host))
        return turn.placed(cohort, record, active, reserved, activates=True)

    return turn.decide(
        cohort,
        DecisionKind.FAILOVER,
        Reason(
            DecisionBasis.OTHER,
            f"copy {displaced} has stopped and {host} is reserved: copy {active} starts there",
        ),
        start,
        container=reserved,
        copy=active,
        facts=Facts(
            from_copy=active,
            to_copy=active,
            in_sync=in_sync,
            without=None
            if in_sync
            else Reason(NoStandbyReason.RESTORING, "the displaced standby was not in sync"),
            policy=FailoverPolicy.RESTART,
        ),
    )


def restore_displaced(turn: Turn, cohort: Cohort) -> WriteRecords | None:
    """Return the restoring of a displaced standby whose host could not be reserved, or whose active came back."""
    record, active, displaced = cohort.record, cohort.record.active, cohort.record.displaced
    if active is None or displaced is None:
        return None
    back = turn.holder(cohort, active)
    if back is not None and back.presence is not Presence.LIVE:
        return None  # this leader has not heard from it yet, so its host is unknown
    if back is not None:
        return _restored(turn, cohort, displaced, back.host, f"copy {active} has come back")
    if active not in cohort.copies:
        # No container is requested for it.
        return _restored(turn, cohort, displaced, "", f"the model has no slot for copy {active}")
    if turn.view.now_ms >= turn.view.no_displacing.get(cohort.processor, 0):
        return None
    host = record.hosts.get(active, "")
    if reservation(turn, cohort.job, SlotId(cohort.processor, active), host) is not None:
        return None
    return _restored(turn, cohort, displaced, "", f"{host} could not be reserved")


def _restored(turn: Turn, cohort: Cohort, displaced: int, active_host: str, why: str) -> WriteRecords | None:
    """Return the record without a displaced standby; the active is on ``active_host``, if on any."""
    active = cohort.record.active
    assert active is not None

    def stay(record: TaskRecord) -> TaskRecord:
        hosts = {each: host for each, host in record.hosts.items() if each != active}
        hosts[displaced] = record.hosts.get(active, "")
        if active_host:
            hosts[active] = active_host
        return replace(record, displaced=None, hosts=hosts)

    reason = Reason(DecisionBasis.OTHER, f"{why}: copy {displaced} is restored in place")
    return turn.decide(cohort, DecisionKind.RESTORE, reason, stay, copy=displaced)


def reservation(turn: Turn, job: Job, slot: SlotId, host: str) -> Container | None:
    """Return the empty container that reserves ``host`` for a slot's active; None if there is none yet."""
    found = [each for each in turn.free(job) if each.host == host and not turn.view.is_orphaned(each)]
    return min(found, key=lambda each: (each.slot != slot, each.id), default=None)


def has_stopped(turn: Turn, cohort: Cohort, displaced: int) -> bool:
    """Return whether the displaced copy has stopped, as confirmed by its container or YARN.

    Silence confirms nothing: a suspect counts as running until it is known to be dead (Invariant 2).
    """
    name = cohort.record.placed.get(displaced, "")
    container = turn.view.containers.get(name)
    if container is not None:
        return has_closed(turn.view, container, cohort.tasks, displaced)
    # A container that was given back is dead when its port refuses; that YARN was asked to end it is not enough.
    return name not in turn.view.ending
