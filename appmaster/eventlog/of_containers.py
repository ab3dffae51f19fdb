"""The log entries of containers and of their reports; used by `appmaster.eventlog.derive`. Pure.

``before`` and ``after`` are the views without and with the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from appmaster.eventlog import entries
from appmaster.eventlog.entries import EntryData, EntryKind, LogEntry
from appmaster.planning.containers.assignments import has_closed
from appmaster.planning.state import events as happened
from appmaster.planning.state.model import job_of
from appmaster.planning.state.progress import progress
from appmaster.planning.state.reasons import Loss, Reason
from appmaster.planning.state.view import (
    HOLDING,
    ClusterView,
    Container,
    ContainerRequest,
    Presence,
    RequestState,
)
from standby.shared.model import Phase, ProcessorId, ReplicaStatus, SlotId

#: The result of a rule: the entries of one event or action, in order.
Entries = Iterator[LogEntry]

#: Phases whose beginning is logged.
_KIND_OF_PHASE: Final = {
    Phase.TAILING: EntryKind.REPLICA_RESTORED,
    Phase.ACTIVE: EntryKind.REPLICA_ACTIVE,
    Phase.FENCED: EntryKind.REPLICA_FENCED,
    Phase.FAILED: EntryKind.REPLICA_FAILED,
}


def ended(
    before: ClusterView,
    after: ClusterView,
    container: str,
    loss: Reason[Loss] | None = None,
    lost_ms: int | None = None,
) -> Entries:
    """Yield the loss of a container, if ``loss`` was noticed and anything is lost, and its end, if it is gone."""
    known = before.containers[container]
    reason: Reason[Loss] | str = known.reason
    if loss is not None and known.presence in HOLDING:
        # A container that was told to exit does not count as a failure, and one that is lost already is not lost again.
        reason = loss
        if known.presence is not Presence.EXPECTED or container in before.assigned:
            yield _lost(before, known, loss, lost_ms if lost_ms is not None else before.now_ms)
        # Else it holds nothing that a new leader could miss: a former leader has counted its loss, gave it back, or had
        # not given it anything yet.
    if container not in after.containers:
        yield LogEntry(EntryKind.CONTAINER_GONE, container=container, host=known.host, reason=reason)


def lost_data(view: ClusterView, container: str, silent_ms: int | None = None) -> entries.LostData:
    """Return what a lost container held according to the records, for which the leader need not have heard from it."""
    replicas, actives = len(view.assigned.get(container, {})), len(view.actives_in(container))
    if not replicas:
        role = None
    elif not actives:
        role = "standby"
    else:
        role = "active" if actives == replicas else "mixed"
    return entries.LostData(role, actives, replicas, silent_ms)


def _lost(view: ClusterView, container: Container, loss: Reason[Loss], at_ms: int) -> LogEntry:
    job, home = view.job_of(container), view.home(container.id)
    return LogEntry(
        EntryKind.CONTAINER_LOST,
        lost_data(view, container.id, max(0, at_ms - container.heard_ms)),
        job=job.name if job is not None else None,
        copy=home.copy if home is not None else None,
        container=container.id,
        host=container.host,
        reason=loss,
        at_ms=at_ms,
    )


def unregistered(before: ClusterView, event: happened.ContainerUnregistered, after: ClusterView) -> Entries:
    """Yield the entries for the end of a container's session."""
    if request := before.request_of(event.skein_id):
        yield _launch_failed(request, str(event.setback))
    elif after is not before:
        yield from ended(before, after, event.container, event.loss, event.at_ms)


def completed(before: ClusterView, event: happened.ContainerCompleted, after: ClusterView) -> Entries:
    """Yield the entries for YARN's report that a container has ended."""
    if request := before.request_of(event.skein_id):
        yield _launch_failed(request, event.message)
    elif container := before.container_of(event.skein_id):
        yield from ended(before, after, container.id, event.loss, event.at_ms)


def _launch_failed(request: ContainerRequest, reason: str) -> LogEntry:
    return LogEntry(
        EntryKind.LAUNCH_FAILED,
        entries.RequestData(str(request.slot), request.kind),
        job=job_of(request.slot),
        copy=request.slot.copy if isinstance(request.slot, SlotId) else None,
        host=request.host,
        reason=reason,
    )


def stream_broken(before: ClusterView, event: happened.ContainerStreamBroken, after: ClusterView) -> Entries:
    """Yield the end of a container that is unknown to this leader."""
    if event.container in before.containers and event.container not in after.containers:
        yield from ended(before, after, event.container)


def port_probed(before: ClusterView, event: happened.PortProbed, after: ClusterView) -> Entries:
    """Yield the entries for a port that refuses."""
    if event.container in before.containers and event.container not in after.containers:
        since = before.containers[event.container].silent_since_ms
        yield from ended(before, after, event.container, event.loss, since)


def granted(before: ClusterView, event: happened.ContainerGranted, after: ClusterView) -> Entries:
    """Yield the grant of a request."""
    request = before.request_of(event.skein_id)
    if request is not None and request.state is not RequestState.GRANTED:
        waited = event.at_ms - request.since_ms
        yield LogEntry(
            EntryKind.REQUEST_GRANTED,
            entries.RequestData(str(request.slot), request.kind, waited_ms=waited),
            job=job_of(request.slot),
            host=request.host,
        )


def registered(before: ClusterView, event: happened.ContainerRegistered, after: ClusterView) -> Entries:
    """Yield the registration of a container, and the input it gave up while it was not heard."""
    if after is before:
        return
    known, container = before.containers.get(event.container), after.containers[event.container]
    yield from _given_up(known, container)
    job = after.job_of(container)
    yield LogEntry(
        EntryKind.CONTAINER_REGISTERED,
        entries.RegisteredData(
            event.skein_id,
            event.pid,
            len(event.replicas),
            str(container.slot) if container.slot is not None else None,
        ),
        job=job.name if job is not None else None,
        container=event.container,
        host=event.host,
        reason="returned" if known is not None else "new",
    )


def reported(before: ClusterView, event: happened.ReportReceived, after: ClusterView) -> Entries:
    """Yield what is new in a container's report."""
    if after is before:
        return
    known, container = before.containers[event.container], after.containers[event.container]
    yield from _phases(known, container)
    yield from _given_up(known, container)
    yield from _stopped(after, known, container)
    yield from _finished(before, after, container)


def _phases(before: Container, container: Container) -> Entries:
    """Yield every replica of ``container`` that entered a phase in `_KIND_OF_PHASE`."""
    for each in container.statuses.values():
        kind = _KIND_OF_PHASE.get(each.phase)
        old = before.statuses.get(each.replica)
        if kind is None or (old is not None and (old.phase, old.epoch) == (each.phase, each.epoch)):
            continue
        yield _of_replica(
            kind, container, each, each.detail, entries.PhaseData(each.since_ms, each.applied, each.traceback)
        )


def _of_replica(
    kind: EntryKind, container: Container, status: ReplicaStatus, reason: str, details: EntryData
) -> LogEntry:
    return LogEntry(
        kind,
        details,
        job=status.replica.task.job,
        task=status.replica.task,
        copy=status.replica.copy,
        container=container.id,
        host=container.host,
        task_epoch=status.epoch,
        reason=reason or None,
    )


def _given_up(before: Container | None, container: Container) -> Entries:
    """Yield the input that actives of ``container`` have given up since ``before``.

    A report names the last few of a task. The number of the others is in the entry of the first that it names.
    """
    for each in container.statuses.values():
        old = before.statuses.get(each.replica) if before is not None else None
        if old is not None and old.epoch != each.epoch:
            old = None
        known = {(one.topic, one.offset) for one in old.given_up} if old is not None else set()
        fresh = [one for one in each.given_up if (one.topic, one.offset) not in known]
        unnamed = 0
        if old is not None:
            unnamed = max(0, each.skipped - old.skipped - sum(one.offsets for one in fresh))
        for one in fresh:
            details = entries.RecordGivenUpData(
                one.topic,
                each.replica.task.partition,
                one.offset,
                one.offsets,
                one.how,
                one.error,
                one.at_ms,
                unnamed,
            )
            yield _of_replica(EntryKind.RECORD_GIVEN_UP, container, each, one.reason, details)
            unnamed = 0


def _stopped(view: ClusterView, before: Container, container: Container) -> Entries:
    """Yield each displaced standby in ``container`` that has just confirmed its stop (SEP-23, step 5)."""
    found: dict[ProcessorId, LogEntry] = {}
    for task, copy in view.assigned.get(container.id, {}).items():
        processor = view.processor_of(task)
        if processor is None or view.records[task].record.displaced != copy:
            continue
        tasks = [each for each in view.job_tasks(processor) if each in view.assigned[container.id]]
        if has_closed(view, container, tasks, copy) and not has_closed(view, before, tasks, copy):
            found[processor] = LogEntry(
                EntryKind.STANDBY_STOPPED,
                entries.ProcessorData(processor.number),
                job=task.job,
                copy=copy,
                container=container.id,
                host=container.host,
                reason="its container confirms it: it was displaced by the active",
            )
    yield from found.values()


def _finished(before: ClusterView, after: ClusterView, container: Container) -> Entries:
    """Yield each failover and hand-over to ``container`` that is finished according to its report."""
    for processor, failover in before.failovers.items():
        if failover.to != container.id or processor in after.failovers:
            continue
        found = progress(after, container, failover)
        if found is not None and found.is_finished:
            yield LogEntry(
                EntryKind.HANDOVER_FINISHED if failover.is_planned else EntryKind.FAILOVER_FINISHED,
                entries.FinishedData(found.times, failover.lost, processor.number),
                job=processor.job,
                copy=failover.to_copy,
                container=container.id,
                host=container.host,
                reason=Reason(failover.reason),
            )
