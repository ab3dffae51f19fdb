"""How the leader's counters and histograms follow from entries of the event log. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from appmaster.eventlog import entries
from appmaster.eventlog.entries import DECIDED, EntryKind, LogEntry
from appmaster.planning.state import counters as m
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.counters import OTHER, PHASES, Counter, Histogram
from appmaster.planning.state.reasons import DecisionBasis, Loss, NoStandbyReason, Reason
from appmaster.planning.state.view import RequestKind


@dataclass(frozen=True, slots=True)
class Added:
    """An entry's contribution to a metric."""

    metric: Counter | Histogram
    labels: tuple[str, ...]
    amount: float = 1
    """For a histogram: one duration, seconds."""


@dataclass(frozen=True, slots=True)
class MetricSource:
    """The entries that contribute to a metric."""

    metric: Counter | Histogram
    kinds: tuple[EntryKind, ...]
    added: Callable[[LogEntry], Iterable[Added]]


def counts(entry: LogEntry) -> Iterator[Added]:
    """Yield everything that one entry adds."""
    for source in _BY_KIND[entry.kind]:
        yield from source.added(entry)


def sources(metric: Counter | Histogram) -> tuple[EntryKind, ...]:
    """Return the kinds of entries that contribute to a metric."""
    return tuple(kind for each in _SOURCES if each.metric is metric for kind in each.kinds)


def _one(
    counter: Counter, labels: Callable[[LogEntry], tuple[str, ...] | None], *kinds: EntryKind
) -> MetricSource:
    """Declare that each entry adds 1; an entry without labels adds nothing."""

    def added(entry: LogEntry) -> Iterator[Added]:
        values = labels(entry)
        if values is not None:
            yield Added(counter, values)

    return MetricSource(counter, kinds, added)


def _plain(_: LogEntry) -> tuple[str, ...]:
    return ()


def _job(entry: LogEntry) -> tuple[str, ...]:
    return (entry.job or "",)


def _reason(entry: LogEntry, kinds: type[Loss | NoStandbyReason | DecisionBasis]) -> str:
    """Return the kind of an entry's reason, if it is one of ``kinds``; else ``other``."""
    reason = entry.reason
    known = isinstance(reason, Reason) and isinstance(reason.kind, kinds)
    return str(reason.kind.value) if known and isinstance(reason, Reason) else OTHER


def _lost(entry: LogEntry) -> tuple[str, ...]:
    lost = entry.details
    assert isinstance(lost, entries.LostData)
    return (*_job(entry), lost.role or "none", _reason(entry, Loss))


def _to_in_sync(entry: LogEntry) -> tuple[str, ...] | None:
    started = entry.details
    assert isinstance(started, entries.FailoverStartedData)
    return (*_job(entry), started.policy.value) if started.to_in_sync else None


def _without_standby(entry: LogEntry) -> tuple[str, ...]:
    return (*_job(entry), _reason(entry, NoStandbyReason))


def _kind(entry: LogEntry) -> RequestKind:
    request = entry.details
    assert isinstance(request, entries.RequestData)
    return request.kind


def _requested(entry: LogEntry) -> tuple[str, ...]:
    return (_kind(entry).value,)


def _preferred(entry: LogEntry) -> tuple[str, ...] | None:
    return _job(entry) if _kind(entry) is RequestKind.PREFERRED else None


#: How a request ended, unless its entry has an outcome.
_ENDS: Final[Mapping[EntryKind, str]] = {
    EntryKind.REQUEST_GRANTED: "granted",
    EntryKind.REQUEST_CANCELLED: "cancelled",
    EntryKind.REQUEST_REFUSED: "refused",
    EntryKind.LAUNCH_FAILED: "failed",
}


def _request_ended(entry: LogEntry) -> tuple[str, ...]:
    request = entry.details
    assert isinstance(request, entries.RequestData)
    return (request.kind.value, request.outcome.value if request.outcome is not None else _ENDS[entry.kind])


def _released(entry: LogEntry) -> tuple[str, ...]:
    released = entry.details
    assert isinstance(released, entries.ReleasedData)
    return (released.outcome.value,)


def _taken(entry: LogEntry) -> tuple[str, ...]:
    taken = entry.details
    assert isinstance(taken, entries.SpareTakenData)
    return (*_job(entry), "ready" if taken.is_ready else "starting")


#: The kind of decision of each entry.
_KINDS: Final[Mapping[EntryKind, DecisionKind]] = {entry: kind for kind, entry in DECIDED.items()}


def _decided(entry: LogEntry) -> tuple[str, ...]:
    decision = entry.details
    assert isinstance(decision, entries.DecisionData)
    in_sync = {True: "in-sync", False: "not-in-sync", None: _reason(entry, DecisionBasis)}
    return (_KINDS[entry.kind].value.replace("-", "_"), in_sync[decision.facts.in_sync])


def _task_failed(entry: LogEntry) -> tuple[str, ...] | None:
    decision = entry.details
    assert isinstance(decision, entries.DecisionData)
    # Failures without a count are being forgotten: the task has got past that record.
    return _job(entry) if decision.facts.count else None


def _changed_model(entry: LogEntry) -> tuple[str, ...] | None:
    model = entry.details
    assert isinstance(model, entries.ModelChangedData)
    return _job(entry) if model.version > 1 else None


def _effect_failed(entry: LogEntry) -> tuple[str, ...]:
    details = entry.details
    return (*_job(entry), details.effect.value if isinstance(details, entries.EffectData) else OTHER)


def _detected(entry: LogEntry) -> Iterator[Added]:
    lost = entry.details
    assert isinstance(lost, entries.LostData)
    if lost.silent_ms is not None and lost.actives:
        # From its last message to the verdict; the other phases begin there.
        yield Added(m.FAILOVER_SECONDS, ("detected",), lost.silent_ms / 1000)


def _finished(histogram: Histogram, kind: EntryKind) -> MetricSource:
    def added(entry: LogEntry) -> Iterator[Added]:
        finished = entry.details
        assert isinstance(finished, entries.FinishedData)
        for times in finished.tasks.values():
            yield from _phases(histogram, times)

    return MetricSource(histogram, (kind,), added)


def _phases(histogram: Histogram, times: Mapping[str, int | None]) -> Iterator[Added]:
    """Yield the duration of each phase of one task; a phase without a time is included in the next.

    The times come from two clocks, the leader's and the container's, so a negative duration counts as 0.
    """
    begun = times.get("detected_ms")
    if not begun:
        return
    before = begun
    for phase in PHASES:
        at = times.get(f"{phase}_ms")
        if at:
            yield Added(histogram, (phase,), max(0, at - before) / 1000)
            before = max(at, before)
    yield Added(histogram, ("total",), (before - begun) / 1000)


_SOURCES: Final = (
    _one(m.CONTAINER_FAILURES, _lost, EntryKind.CONTAINER_LOST),
    _one(m.FAILOVERS, _to_in_sync, EntryKind.FAILOVER_STARTED),
    _one(m.WITHOUT_STANDBY, _without_standby, EntryKind.FAILOVER_WITHOUT_STANDBY),
    _one(m.HANDOVERS_STARTED, _job, EntryKind.HANDOVER_STARTED),
    _one(m.HANDOVERS, _job, EntryKind.HANDOVER_FINISHED),
    _one(m.HANDOVERS_GIVEN_UP, _job, EntryKind.HANDOVER_GIVEN_UP),
    _one(m.SAME_HOST, _plain, EntryKind.SAME_HOST_REFUSED),
    _one(m.REQUESTS, _request_ended, *_ENDS),
    _one(m.REQUESTS_MADE, _requested, EntryKind.CONTAINER_REQUESTED),
    _one(m.PREFERRED, _preferred, EntryKind.CONTAINER_REQUESTED),
    _one(m.PREFERRED_MATCHED, _preferred, EntryKind.REQUEST_GRANTED),
    _one(m.RELEASED, _released, EntryKind.CONTAINER_RELEASED),
    _one(m.SPARES_TAKEN, _taken, EntryKind.SPARE_TAKEN),
    _one(m.DECIDED, _decided, *_KINDS),
    _one(m.DECISIONS_REFUSED, _plain, EntryKind.DECISION_REFUSED),
    _one(m.MOVES_STARTED, _job, DECIDED[DecisionKind.MOVE]),
    _one(m.MOVES, _job, DECIDED[DecisionKind.MOVED]),
    _one(m.MOVES_GIVEN_UP, _job, DECIDED[DecisionKind.STAY]),
    _one(m.PARKED, _job, EntryKind.PROCESSOR_PARKED),
    _one(m.UNPARKED, _job, EntryKind.PROCESSOR_UNPARKED),
    _one(m.DRAINED, _plain, EntryKind.HOST_DRAINED),
    _one(m.ADMITTED, _plain, EntryKind.HOST_ADMITTED),
    _one(m.MODEL_CHANGES, _changed_model, EntryKind.MODEL_CHANGED),
    _one(m.TASK_FAILURES, _task_failed, DECIDED[DecisionKind.FAILURES]),
    _one(m.FENCING_FAILED, _job, EntryKind.FENCING_FAILED),
    _one(m.EFFECTS_FAILED, _effect_failed, EntryKind.EFFECT_FAILED),
    _one(m.DOUBTS, _plain, EntryKind.LEADER_DOUBTS_ITSELF),
    MetricSource(m.FAILOVER_SECONDS, (EntryKind.CONTAINER_LOST,), _detected),
    _finished(m.FAILOVER_SECONDS, EntryKind.FAILOVER_FINISHED),
    _finished(m.HANDOVER_SECONDS, EntryKind.HANDOVER_FINISHED),
)

_BY_KIND: Final = {kind: [each for each in _SOURCES if kind in each.kinds] for kind in EntryKind}
