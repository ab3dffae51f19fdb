"""``derive(before, event, after)``: the source of every entry of a leader's event log. Pure.

The view contains nothing that serves only the log. What an event, or a started action, means for the log follows from
it and from the views before and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from appmaster.eventlog import entries, of_containers
from appmaster.eventlog.entries import EntryKind, LogEntry
from appmaster.eventlog.of_actions import entries_of, handover_given_up, request_cancelled
from appmaster.eventlog.of_containers import Entries
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import Outcome
from appmaster.planning.state.events import Event
from appmaster.planning.state.model import job_of
from appmaster.planning.state.view import ClusterView


def derive(before: ClusterView, event: Event, after: ClusterView) -> tuple[LogEntry, ...]:
    """Return the entries for ``event``, in order, given the views ``before`` and ``after`` it."""
    rule = _RULES.get(type(event))
    if rule is None:
        return ()
    return tuple(
        each if each.at_ms is not None else replace(each, at_ms=after.now_ms)
        for each in rule(before, event, after)
    )


def _started(before: ClusterView, event: happened.Started, after: ClusterView) -> Entries:
    return entries_of(before, event.action, after, event.at_ms)


def _topic_noted(before: ClusterView, event: happened.TopicNoted, after: ClusterView) -> Entries:
    yield LogEntry(
        EntryKind.TOPIC_CHANGED if event.is_changed else EntryKind.TOPIC_RECORDED,
        entries.TopicData(event.topic, event.kind, event.recorded_id or None, event.topic_id),
        job=event.job,
        reason=event.reason,
    )


def _job_loaded(before: ClusterView, event: happened.JobLoaded, after: ClusterView) -> Entries:
    known, job = before.jobs.get(event.name), after.jobs[event.name]
    was_at_risk = known.is_risk_logged if known is not None else event.was_at_risk
    if job.is_risk_logged and not was_at_risk:
        yield LogEntry(EntryKind.CHANGELOG_AT_RISK, job=event.name, reason=event.changelog_risk)
    elif was_at_risk and not job.is_risk_logged:
        yield LogEntry(EntryKind.CHANGELOG_SAFE, job=event.name)
    yield from _without_processor(before, after)


def _model_written(before: ClusterView, event: happened.ModelWritten, after: ClusterView) -> Entries:
    yield from _without_processor(before, after)


def _without_processor(before: ClusterView, after: ClusterView) -> Entries:
    """Yield each hand-over in preparation whose processor the model no longer has."""
    for each in before.handovers.keys() - after.handovers.keys():
        yield handover_given_up(each.job, each.number, "the job model has no such processor any more")


def _model_refused(before: ClusterView, event: happened.ModelRefused, after: ClusterView) -> Entries:
    yield LogEntry(EntryKind.MODEL_REFUSED, job=event.job, reason=event.reason)


def _records_refused(before: ClusterView, event: happened.RecordsRefused, after: ClusterView) -> Entries:
    yield LogEntry(EntryKind.DECISION_REFUSED, decision=event.decision, reason=event.reason)


def _hosts_drained(before: ClusterView, event: happened.HostsDrained, after: ClusterView) -> Entries:
    if event.is_taken_over:
        return
    for host, why in event.hosts.items():
        if host not in before.drained:
            yield LogEntry(EntryKind.HOST_DRAINED, host=host, reason=why)
    for host in before.drained:
        if host not in event.hosts:
            yield LogEntry(EntryKind.HOST_ADMITTED, host=host)


def _cell_found(before: ClusterView, event: happened.CellFound, after: ClusterView) -> Entries:
    yield from _without_requests(before, after, f"cell {event.cell} has another attempt")
    known = before.cells.get(event.cell)
    if known is None or not known.is_up or known.attempt != event.attempt:
        yield LogEntry(
            EntryKind.CELL_FOUND, entries.CellFoundData(event.cell, event.attempt, len(event.hosts))
        )


def _cell_lost(before: ClusterView, event: happened.CellLost, after: ClusterView) -> Entries:
    if after is not before:
        held = sum(each.cell == event.cell for each in before.containers.values())
        details = entries.CellLostData(event.cell, event.attempt, held)
        yield LogEntry(EntryKind.CELL_LOST, details, reason=event.reason)
    yield from _without_requests(before, after, f"cell {event.cell} is lost")


def _without_requests(before: ClusterView, after: ClusterView, reason: str) -> Entries:
    """Yield the end of each request that was made to a cell's former attempt."""
    for number, request in before.requests.items():
        if number not in after.requests:
            yield request_cancelled(request, Outcome.LOST, reason)


def _request_refused(before: ClusterView, event: happened.RequestRefused, after: ClusterView) -> Entries:
    request = before.requests.get(event.number)
    if request is not None:
        yield LogEntry(
            EntryKind.REQUEST_REFUSED,
            entries.RequestData(str(request.slot), request.kind),
            job=job_of(request.slot),
            host=request.host,
            reason=event.reason,
        )


def _tasks_fenced(before: ClusterView, event: happened.TasksFenced, after: ClusterView) -> Entries:
    if after is not before:
        yield LogEntry(EntryKind.TASKS_FENCED, job=event.job)


def _fencing_failed(before: ClusterView, event: happened.FencingFailed, after: ClusterView) -> Entries:
    if after is not before:
        yield LogEntry(EntryKind.FENCING_FAILED, job=event.job, reason=event.reason)


def _effect_failed(before: ClusterView, event: happened.EffectFailed, after: ClusterView) -> Entries:
    if event.job in before.jobs:
        yield LogEntry(
            EntryKind.EFFECT_FAILED, entries.EffectData(event.effect), job=event.job, reason=event.reason
        )


def _effect_done(before: ClusterView, event: happened.EffectDone, after: ClusterView) -> Entries:
    if event.job in before.jobs:
        yield LogEntry(EntryKind.EFFECT_DONE, entries.EffectData(event.effect), job=event.job)


#: Events that are not listed here have no entries.
_RULES: Final[Mapping[type, Callable[[ClusterView, Any, ClusterView], Entries]]] = {
    happened.Started: _started,
    happened.TopicNoted: _topic_noted,
    happened.JobLoaded: _job_loaded,
    happened.ModelWritten: _model_written,
    happened.ModelRefused: _model_refused,
    happened.RecordsRefused: _records_refused,
    happened.HostsDrained: _hosts_drained,
    happened.CellFound: _cell_found,
    happened.CellLost: _cell_lost,
    happened.RequestRefused: _request_refused,
    happened.ContainerGranted: of_containers.granted,
    happened.ContainerCompleted: of_containers.completed,
    happened.ContainerUnregistered: of_containers.unregistered,
    happened.ContainerRegistered: of_containers.registered,
    happened.ReportReceived: of_containers.reported,
    happened.ContainerStreamBroken: of_containers.stream_broken,
    happened.PortProbed: of_containers.port_probed,
    happened.TasksFenced: _tasks_fenced,
    happened.FencingFailed: _fencing_failed,
    happened.EffectFailed: _effect_failed,
    happened.EffectDone: _effect_done,
}
