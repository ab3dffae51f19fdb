"""Decisions that change task records: binding, failover, in-sync sets, claims, undeployment. Pure.

All tasks of a processor share their placement and are decided together: one decision, one write. A
processor whose records are being written is left alone until the write is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from appmaster.planning.actions import Action, Change, WriteRecords
from appmaster.planning.detect import policy_of
from appmaster.planning.view import ClusterView, Container, Job, Presence, Recorded
from locality.samehost import siblings_on
from standby.model import Phase, ProcessorId, ReplicaId, ReplicaStatus, Role, SlotId, TaskRecord


def writes(view: ClusterView) -> Iterator[Action]:
    """Yield at most one decision a processor."""
    taken: set[str] = set()
    bound = view.bound()
    placements = view.placements()
    decided = 0
    for job, processor in view.processors():
        recorded = _settled(view, job, processor)
        if recorded is None:
            continue
        decision = f"{view.epoch}-{view.decisions + 1 + decided}"
        action = (
            _undeploy(view, job, processor, recorded, decision)
            if not job.is_wanted or job.failure
            else _failover(view, processor, recorded, bound, decision)
            or _bind(view, job, processor, recorded, bound, placements, taken, decision)
            or _upkeep(view, processor, recorded, bound, decision)
        )
        if action is not None:
            decided += 1
            if action.binding is not None:
                container, slot = action.binding
                taken.add(container)
                placements[slot] = view.containers[container].host
            yield action


def _settled(view: ClusterView, job: Job, processor: ProcessorId) -> tuple[Recorded, ...] | None:
    """Return the processor's records, blank ones for tasks that have none yet; None while being written."""
    found: list[Recorded] = []
    for task in job.model.processors[processor]:
        if task in view.writing:
            return None
        found.append(view.records.get(task) or Recorded(TaskRecord(task, active=None, epoch=0), -1))
    return tuple(found)


def _changes(recorded: tuple[Recorded, ...], records: list[TaskRecord], decision: str) -> tuple[Change, ...]:
    return tuple(
        Change(replace(new, decision=decision), old.version if old.version >= 0 else None)
        for old, new in zip(recorded, records, strict=True)
        if new != old.record
    )


def _failover(
    view: ClusterView,
    processor: ProcessorId,
    recorded: tuple[Recorded, ...],
    bound: Mapping[SlotId, Container],
    decision: str,
) -> WriteRecords | None:
    """Return the promotion of the best live copy when the active one is lost (design 5)."""
    active = recorded[0].record.active
    if active is None or SlotId(processor, active) in bound:
        return None
    standbys = [
        slot for slot in bound if slot.processor == processor and bound[slot].presence is Presence.LIVE
    ]
    if not standbys:
        return None
    best = min(standbys, key=lambda slot: _fitness(view, recorded, slot, bound[slot]))
    in_sync = all(best.copy in each.record.in_sync for each in recorded)
    records = [
        replace(
            each.record,
            active=best.copy,
            epoch=each.record.epoch + 1,
            in_sync=tuple(sorted({copy for copy in each.record.in_sync if copy != active} | {best.copy})),
        )
        for each in recorded
    ]
    why = "in sync" if in_sync else "not in sync, but the least behind of those that live"
    return WriteRecords(
        decision,
        processor,
        _changes(recorded, records, decision),
        "failover",
        f"copy {active} is lost; copy {best.copy} is {why}",
        data={"from_copy": active, "to_copy": best.copy, "in_sync": in_sync},
    )


def _fitness(
    view: ClusterView, recorded: tuple[Recorded, ...], slot: SlotId, container: Container
) -> tuple[int, int, int, int]:
    """Return how good a copy is to promote, least is best: in sync, lag, warm, number.

    Only what was reported in its present role counts; a copy that reported nothing is the last.
    """
    in_sync = all(slot.copy in each.record.in_sync for each in recorded)
    lag = 0
    for each in recorded:
        status = container.statuses.get(ReplicaId(each.record.task, slot.copy))
        records = status.lag_records if status is not None else None
        lag += records if records is not None else 1 << 40
    return (0 if in_sync else 1, lag, 0 if container.is_warm else 1, slot.copy)


def _bind(
    view: ClusterView,
    job: Job,
    processor: ProcessorId,
    recorded: tuple[Recorded, ...],
    bound: Mapping[SlotId, Container],
    placements: Mapping[SlotId, str],
    taken: set[str],
    decision: str,
) -> WriteRecords | None:
    """Return the binding of a registered container to an empty slot of this processor, if one fits.

    The container goes to the slot it was asked for when that is still empty and the same-host check
    passes, else to the first empty one where it does.
    """
    empty = [
        slot
        for slot in job.model.slots()
        if slot.processor == processor and slot not in bound and not _is_kept(view, slot)
    ]
    for slot in empty:
        container = _fitting(view, job, slot, bound, placements, taken)
        if container is None:
            continue
        active = recorded[0].record.active
        becomes_active = active is None or not any(
            SlotId(processor, copy) in bound for copy in range(job.model.copies)
        )
        if active is None and slot.copy != 0 and SlotId(processor, 0) in empty:
            continue  # the first copy is the first active: every active before any standby (SEP-23)
        records = []
        for each in recorded:
            record = replace(
                each.record,
                placed={**each.record.placed, slot.copy: container.id},
                hosts={**each.record.hosts, slot.copy: container.host},
                in_sync=tuple(copy for copy in each.record.in_sync if copy != slot.copy),
            )
            if becomes_active:
                record = replace(record, active=slot.copy, epoch=record.epoch + 1, in_sync=(slot.copy,))
            records.append(record)
        return WriteRecords(
            decision,
            processor,
            _changes(recorded, records, decision),
            "bind",
            "no other copy lives: it becomes the active" if becomes_active else "an empty place",
            binding=(container.id, slot),
            data={"host": container.host, **({"from_copy": active} if active is not None else {})},
        )
    return None


def _is_kept(view: ClusterView, slot: SlotId) -> bool:
    """Return whether a suspected container keeps ``slot`` for a while: it may come back with its state."""
    return any(
        each.slot == slot and each.is_bound and each.presence is Presence.SUSPECT
        for each in view.containers.values()
    )


def _fitting(
    view: ClusterView,
    job: Job,
    slot: SlotId,
    bound: Mapping[SlotId, Container],
    placements: Mapping[SlotId, str],
    taken: set[str],
) -> Container | None:
    """Return a free container for ``slot`` that passes the same-host check, its own one first."""
    free = [
        each
        for each in view.containers.values()
        if each.presence is Presence.LIVE
        and not each.is_bound
        and each.id not in taken
        and (each.slot is None or each.slot.processor.job == job.name)
        and not siblings_on(slot, each.host, placements)
    ]
    own = [each for each in free if each.slot == slot]
    # One that was asked for another slot which still waits for it stays free for that one.
    idle = [
        each
        for each in free
        if each.slot is None or each.slot in bound or siblings_on(each.slot, each.host, placements)
    ]
    return min(own or idle, key=lambda each: each.id, default=None)


def _upkeep(
    view: ClusterView,
    processor: ProcessorId,
    recorded: tuple[Recorded, ...],
    bound: Mapping[SlotId, Container],
    decision: str,
) -> WriteRecords | None:
    """Return the write of claims and in-sync sets that have changed; batched and rate-limited."""
    records: list[TaskRecord] = []
    claimed = False
    for each in recorded:
        record = each.record
        if record.active is None:
            records.append(record)
            continue
        status = _status(record, record.active, bound.get(SlotId(processor, record.active)))
        if not record.claimed and status is not None and status.phase is Phase.ACTIVE:
            record = replace(record, claimed=True)
            claimed = True
        records.append(replace(record, in_sync=_in_sync(view, processor, record, bound)))
    changes = _changes(recorded, records, decision)
    if not changes:
        return None
    interval = view.jobs[processor.job].policy.in_sync_interval_ms
    if not claimed and view.now_ms - view.in_sync_ms.get(processor, -interval) < interval:
        return None
    kind = "claimed" if claimed else "in-sync"
    reason = ", ".join(f"{each.record.task}: in sync {list(each.record.in_sync)}" for each in changes)
    return WriteRecords(decision, processor, changes, kind, reason)


def _status(record: TaskRecord, copy: int, container: Container | None) -> ReplicaStatus | None:
    """Return what the copy's container says of it under the present epoch; None when it says nothing."""
    if container is None:
        return None
    status = container.statuses.get(ReplicaId(record.task, copy))
    return status if status is not None and status.epoch == record.epoch else None


def _in_sync(
    view: ClusterView, processor: ProcessorId, record: TaskRecord, bound: Mapping[SlotId, Container]
) -> tuple[int, ...]:
    """Return the copies in sync: the active, and each standby within the lag policy.

    A standby whose lag is unknown (the broker is away) stays what it is; one that is not bound any
    more is out; it returns only when it has caught up under the present epoch (acceptance D2).
    """
    members = {record.active} if record.active is not None else set[int]()
    for slot, container in bound.items():
        if slot.processor != processor or slot.copy == record.active:
            continue
        status = _status(record, slot.copy, container)
        was_in = slot.copy in record.in_sync
        if status is None or status.role is not Role.STANDBY:
            is_in = was_in
        elif status.phase is Phase.TAILING:
            lag = status.lag_ms
            is_in = was_in if lag is None else lag <= policy_of(view, container).lag_time_ms
        else:
            # Restoring: it was in sync only if it has merely reopened under this epoch, which it says soon.
            is_in = False
        if is_in:
            members.add(slot.copy)
    return tuple(sorted(members))


def _undeploy(
    view: ClusterView,
    job: Job,
    processor: ProcessorId,
    recorded: tuple[Recorded, ...],
    decision: str,
) -> WriteRecords | None:
    """Return the record that takes the active away: first step of a kill (design 4.6).

    The epoch rises, so no container can claim the task after this, whatever it was about to do.
    """
    if all(each.record.active is None for each in recorded):
        return None
    records = [
        replace(each.record, active=None, epoch=each.record.epoch + 1, placed={}, in_sync=())
        for each in recorded
    ]
    return WriteRecords(
        decision,
        processor,
        _changes(recorded, records, decision),
        "undeploy",
        job.failure or "the job is being undeployed",
    )
