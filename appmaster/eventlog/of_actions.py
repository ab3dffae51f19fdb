"""The log entries of a started action of the leader; used by `appmaster.eventlog.derive`. Pure.

``before`` and ``after`` are the views without and with the action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from appmaster.eventlog import entries
from appmaster.eventlog.entries import DECIDED, EntryKind, LogEntry
from appmaster.eventlog.of_containers import Entries, ended, lost_data
from appmaster.planning.state import actions as todo
from appmaster.planning.state.actions import Outcome
from appmaster.planning.state.job import JobState
from appmaster.planning.state.model import job_of
from appmaster.planning.state.reasons import Reason
from appmaster.planning.state.view import ClusterView, ContainerRequest, Failover
from standby.shared.model import SlotId


def entries_of(before: ClusterView, action: todo.Action, after: ClusterView, at_ms: int) -> Entries:
    """Yield the entries of ``action``, which was started at ``at_ms`` of the leader's clock."""
    rule = _RULES.get(type(action))
    if rule is not None:
        yield from rule(before, action, after, at_ms)


def _write_records(before: ClusterView, action: todo.WriteRecords, after: ClusterView, at_ms: int) -> Entries:
    numbers = [each.record.task.partition for each in action.changes]
    yield LogEntry(
        DECIDED[action.kind],
        entries.DecisionData(action.processor.number, numbers, action.facts),
        job=action.processor.job,
        container=action.container or None,
        copy=action.copy,
        task_epoch=action.changes[0].record.epoch,
        reason=action.reason,
        decision=action.decision,
    )
    if action.processor in before.handovers and action.changes[0].record.active is None:
        yield handover_given_up(action.processor.job, action.processor.number, "its tasks are withdrawn")
    failover = after.failovers.get(action.processor)
    if (
        failover is not None
        and failover is not before.failovers.get(action.processor)
        and not failover.is_planned
    ):
        yield from _failover(before, action, failover)


def _failover(before: ClusterView, action: todo.WriteRecords, failover: Failover) -> Entries:
    new, facts = action.changes[0].record, action.facts
    old = before.records.get(new.task)
    was = old.record.active if old is not None else None
    if action.processor in before.handovers:
        yield handover_given_up(
            action.processor.job, action.processor.number, "the active was lost meanwhile"
        )
    details = entries.FailoverStartedData(
        [each.partition for each in failover.tasks],
        action.processor.number,
        failover.lost,
        failover.to,
        was if was is not None else failover.to_copy,
        failover.to_copy,
        before.wall(failover.detected_ms),
        bool(facts.in_sync),
        facts.policy or todo.FailoverPolicy.PROMOTE,
    )

    def about(kind: EntryKind, reason: Reason[Any]) -> LogEntry:
        return LogEntry(
            kind,
            details,
            job=action.processor.job,
            copy=failover.to_copy,
            container=failover.to,
            host=before.containers[failover.to].host,
            task_epoch=new.epoch,
            reason=reason,
            decision=action.decision,
        )

    yield about(EntryKind.FAILOVER_STARTED, Reason(failover.reason))
    if not facts.in_sync and not facts.in_place:
        yield about(EntryKind.FAILOVER_WITHOUT_STANDBY, facts.without or action.reason)


def _write_model(before: ClusterView, action: todo.WriteModel, after: ClusterView, at_ms: int) -> Entries:
    model, known = action.model, before.jobs[action.job].model
    details = entries.ModelChangedData(model.version, len(model.processors), len(model.tasks), model.copies)
    yield LogEntry(EntryKind.MODEL_CHANGED, details, job=action.job, reason=action.reason)
    for processor, each in model.processors.items():
        former = known.processors.get(processor)
        if each.parked != (former.parked if former is not None else None):
            yield LogEntry(
                EntryKind.PROCESSOR_PARKED if each.parked is not None else EntryKind.PROCESSOR_UNPARKED,
                entries.ProcessorData(processor.number),
                job=action.job,
                reason=each.parked or action.reason,
            )


def _write_status(before: ClusterView, action: todo.WriteStatus, after: ClusterView, at_ms: int) -> Entries:
    job, state = before.jobs[action.job], JobState(action.state)
    if (state, action.reasons) != (job.state, job.reasons):
        has_failed = action.failure is not None and job.failure is None
        yield LogEntry(
            EntryKind.JOB_STATUS,
            entries.JobStatusData(state, action.traceback if has_failed else ""),
            job=job.name,
            reason="; ".join(action.reasons) or None,
        )


def _declare_lost(before: ClusterView, action: todo.DeclareLost, after: ClusterView, at_ms: int) -> Entries:
    yield from ended(before, after, action.container, action.reason, at_ms)


def _doubt_self(before: ClusterView, action: todo.DoubtSelf, after: ClusterView, at_ms: int) -> Entries:
    reason = f"{action.silent} of {action.of} containers fell silent at once"
    yield LogEntry(EntryKind.LEADER_DOUBTS_ITSELF, reason=reason)


def _miss_active(before: ClusterView, action: todo.MissActive, after: ClusterView, at_ms: int) -> Entries:
    recorded = (before.records.get(task) for task in before.job_tasks(action.processor))
    held = [
        each.record
        for each in recorded
        if each is not None
        and each.record.active is not None
        and each.record.displaced is None
        and each.record.placed.get(each.record.active) == action.missed.container
    ]
    if action.missed.container in before.logged_lost or not held:
        # Logged with another processor that it served; or a standby is displaced, and a former leader logged the loss.
        return
    copy = held[0].active or 0
    yield LogEntry(
        EntryKind.CONTAINER_LOST,
        lost_data(before, action.missed.container),
        job=action.processor.job,
        copy=copy,
        container=action.missed.container,
        host=held[0].hosts.get(copy),
        reason=Reason(action.missed.loss, "YARN did not list it when this leader took over"),
    )


def _prepare_handover(
    before: ClusterView, action: todo.PrepareHandover, after: ClusterView, at_ms: int
) -> Entries:
    yield LogEntry(
        EntryKind.HANDOVER_STARTED,
        entries.ProcessorData(action.processor.number),
        job=action.processor.job,
        copy=action.to_copy,
        container=action.container,
        host=before.containers[action.container].host,
        reason=action.reason,
    )


def _forget_handover(
    before: ClusterView, action: todo.ForgetHandover, after: ClusterView, at_ms: int
) -> Entries:
    yield handover_given_up(action.processor.job, action.processor.number, action.reason)


def handover_given_up(job: str, processor: int, reason: str) -> LogEntry:
    """Return the entry of a hand-over that was given up while it was being prepared."""
    return LogEntry(EntryKind.HANDOVER_GIVEN_UP, entries.ProcessorData(processor), job=job, reason=reason)


def _answer(before: ClusterView, action: todo.Answer, after: ClusterView, at_ms: int) -> Entries:
    details = entries.CommandAnsweredData(action.is_refused)
    yield LogEntry(EntryKind.COMMAND_ANSWERED, details, reason=action.said)


def _fence_tasks(before: ClusterView, action: todo.FenceTasks, after: ClusterView, at_ms: int) -> Entries:
    yield LogEntry(EntryKind.FENCING_TASKS, entries.FencingData(len(action.tasks)), job=action.job)


def _waive_fence(before: ClusterView, action: todo.WaiveFence, after: ClusterView, at_ms: int) -> Entries:
    yield LogEntry(EntryKind.FENCE_WAIVED, job=action.job)


def _send_exit(before: ClusterView, action: todo.SendExit, after: ClusterView, at_ms: int) -> Entries:
    host = before.containers[action.container].host
    yield LogEntry(EntryKind.CONTAINER_DISMISSED, container=action.container, host=host, reason=action.reason)


def _cancel_request(
    before: ClusterView, action: todo.CancelRequest, after: ClusterView, at_ms: int
) -> Entries:
    yield request_cancelled(before.requests[action.number], action.outcome, str(action.reason))


def request_cancelled(request: ContainerRequest, outcome: Outcome, reason: str) -> LogEntry:
    """Return the entry of a request that the leader does not wait for any longer."""
    return LogEntry(
        EntryKind.REQUEST_CANCELLED,
        entries.RequestData(str(request.slot), request.kind, outcome=outcome),
        job=job_of(request.slot),
        host=request.host,
        reason=reason,
    )


def _release_container(
    before: ClusterView, action: todo.ReleaseContainer, after: ClusterView, at_ms: int
) -> Entries:
    known = before.containers[action.container]
    details = entries.ReleasedData(action.outcome, str(known.slot) if known.slot is not None else None)
    yield LogEntry(
        EntryKind.CONTAINER_RELEASED, details, container=known.id, host=known.host, reason=action.reason
    )
    if action.outcome is Outcome.SAME_HOST:
        yield LogEntry(EntryKind.SAME_HOST_REFUSED, container=known.id, host=known.host, reason=action.reason)
    yield from ended(before, after, action.container)


def _request_container(
    before: ClusterView, action: todo.RequestContainer, after: ClusterView, at_ms: int
) -> Entries:
    yield LogEntry(
        EntryKind.CONTAINER_REQUESTED,
        entries.RequestData(str(action.slot), action.kind, cell=action.cell),
        job=job_of(action.slot),
        copy=action.slot.copy if isinstance(action.slot, SlotId) else None,
        host=action.host,
        reason=action.reason,
    )


def _take_spare(before: ClusterView, action: todo.TakeSpare, after: ClusterView, at_ms: int) -> Entries:
    known = before.containers[action.container]
    yield LogEntry(
        EntryKind.SPARE_TAKEN,
        entries.SpareTakenData(str(known.slot), str(action.slot), known.is_warm),
        job=job_of(action.slot),
        copy=action.slot.copy if isinstance(action.slot, SlotId) else None,
        container=known.id,
        host=known.host,
    )


#: Actions that are not listed here have no entries.
_RULES: Final[Mapping[type, Callable[[ClusterView, Any, ClusterView, int], Entries]]] = {
    todo.WriteRecords: _write_records,
    todo.WriteModel: _write_model,
    todo.WriteStatus: _write_status,
    todo.DeclareLost: _declare_lost,
    todo.DoubtSelf: _doubt_self,
    todo.MissActive: _miss_active,
    todo.PrepareHandover: _prepare_handover,
    todo.ForgetHandover: _forget_handover,
    todo.Answer: _answer,
    todo.FenceTasks: _fence_tasks,
    todo.WaiveFence: _waive_fence,
    todo.TakeSpare: _take_spare,
    todo.SendExit: _send_exit,
    todo.CancelRequest: _cancel_request,
    todo.ReleaseContainer: _release_container,
    todo.RequestContainer: _request_container,
}
