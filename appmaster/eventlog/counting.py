"""Which entry of the event log adds what to the leader's metrics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from appmaster.eventlog import entries
from appmaster.eventlog.entries import DECIDED, EntryKind, LogEntry
from appmaster.metrics import counters as m
from appmaster.metrics.counters import OTHER, PHASES, Counter, Histogram
from appmaster.planning.state.actions import Kind
from appmaster.planning.state.reasons import Basis, Loss, Reason, Without
from appmaster.planning.state.view import RequestKind


@dataclass(frozen=True, slots=True)
class Count:
    """Adds to a counter."""

    counter: Counter
    labels: tuple[str, ...]
    amount: float = 1


@dataclass(frozen=True, slots=True)
class Observed:
    """A duration for a histogram, seconds."""

    histogram: Histogram
    labels: tuple[str, ...]
    seconds: float


#: What one rule yields.
Added = Iterator[Count | Observed]

#: The decision that an entry is about.
_KINDS: Final[Mapping[EntryKind, Kind]] = {entry: kind for kind, entry in DECIDED.items()}


def counts(entry: LogEntry) -> Added:
    """Yield all that one entry adds."""
    rule = _RULES.get(entry.kind)
    if rule is not None:
        yield from rule(entry)


def _label(entry: LogEntry, kinds: type[Loss | Without | Basis]) -> str:
    """Return the kind of an entry's reason, of ``kinds``; ``other`` when it is none of them."""
    reason = entry.reason
    known = isinstance(reason, Reason) and isinstance(reason.kind, kinds)
    return str(reason.kind.value) if known and isinstance(reason, Reason) else OTHER


def _job(entry: LogEntry) -> str:
    return entry.job or ""


def _lost(entry: LogEntry) -> Added:
    lost = entry.details
    assert isinstance(lost, entries.Lost)
    yield Count(m.CONTAINER_FAILURES, (_job(entry), lost.role or "none", _label(entry, Loss)))
    if lost.silent_ms is not None and lost.actives:
        # From its last sign of life to the verdict; the other phases begin there.
        yield Observed(m.FAILOVER_SECONDS, ("detected",), lost.silent_ms / 1000)


def _failover_started(entry: LogEntry) -> Added:
    started = entry.details
    assert isinstance(started, entries.FailoverStarted)
    if started.to_in_sync:
        yield Count(m.FAILOVERS, (_job(entry), started.policy.value))


def _without_standby(entry: LogEntry) -> Added:
    yield Count(m.WITHOUT_STANDBY, (_job(entry), _label(entry, Without)))


def _finished(entry: LogEntry, histogram: Histogram) -> Added:
    finished = entry.details
    assert isinstance(finished, entries.Finished)
    for times in finished.tasks.values():
        yield from _phases(histogram, times)


def _failover_finished(entry: LogEntry) -> Added:
    yield from _finished(entry, m.FAILOVER_SECONDS)


def _phases(histogram: Histogram, times: Mapping[str, int | None]) -> Iterator[Observed]:
    """Yield how long each phase of one task took; one that has no time counts with the next.

    Two clocks are compared, the leader's and the container's: a phase is never shorter than nothing.
    """
    begun = times.get("detected_ms")
    if not begun:
        return
    before = begun
    for phase in PHASES:
        at = times.get(f"{phase}_ms")
        if at:
            yield Observed(histogram, (phase,), max(0, at - before) / 1000)
            before = max(at, before)
    yield Observed(histogram, ("total",), (before - begun) / 1000)


def _handover_finished(entry: LogEntry) -> Added:
    yield Count(m.HANDOVERS, (_job(entry),))
    yield from _finished(entry, m.HANDOVER_SECONDS)


def _requested(entry: LogEntry) -> Added:
    request = entry.details
    assert isinstance(request, entries.Request)
    yield Count(m.REQUESTS_MADE, (request.kind.value,))
    if request.kind is RequestKind.PREFERRED:
        yield Count(m.PREFERRED, (_job(entry),))


def _request_ended(outcome: str) -> Callable[[LogEntry], Added]:
    def rule(entry: LogEntry) -> Added:
        request = entry.details
        assert isinstance(request, entries.Request)
        ended = request.outcome.value if request.outcome is not None else outcome
        yield Count(m.REQUESTS, (request.kind.value, ended))
        if entry.kind is EntryKind.REQUEST_GRANTED and request.kind is RequestKind.PREFERRED:
            yield Count(m.PREFERRED_MATCHED, (_job(entry),))

    return rule


def _released(entry: LogEntry) -> Added:
    released = entry.details
    assert isinstance(released, entries.Released)
    yield Count(m.RELEASED, (released.outcome.value,))


def _decided(entry: LogEntry) -> Added:
    decision = entry.details
    assert isinstance(decision, entries.Decision)
    kind, facts = _KINDS[entry.kind], decision.facts
    in_sync = {True: "in-sync", False: "not-in-sync", None: _label(entry, Basis)}
    yield Count(m.DECIDED, (kind.value.replace("-", "_"), in_sync[facts.in_sync]))
    # Failures without a count are forgotten: the task got past that record.
    if kind is Kind.FAILURES and facts.count:
        yield Count(m.TASK_FAILURES, (_job(entry),))
    if kind in _MOVES:
        yield Count(_MOVES[kind], (_job(entry),))


def _of_job(counter: Counter) -> Callable[[LogEntry], Added]:
    def rule(entry: LogEntry) -> Added:
        yield Count(counter, (_job(entry),))

    return rule


def _plain(counter: Counter) -> Callable[[LogEntry], Added]:
    def rule(_: LogEntry) -> Added:
        yield Count(counter, ())

    return rule


def _effect_failed(entry: LogEntry) -> Added:
    details = entry.details
    effect = details.effect.value if isinstance(details, entries.OfEffect) else OTHER
    yield Count(m.EFFECTS_FAILED, (_job(entry), effect))


#: Decisions that begin and end a move.
_MOVES: Final = {
    Kind.MOVE: m.MOVES_STARTED,
    Kind.MOVED: m.MOVES,
    Kind.STAY: m.MOVES_GIVEN_UP,
}

#: Every kind of entry that counts for something.
_RULES: Final[Mapping[EntryKind, Callable[[LogEntry], Added]]] = {
    **dict.fromkeys(_KINDS, _decided),
    EntryKind.CONTAINER_LOST: _lost,
    EntryKind.FAILOVER_STARTED: _failover_started,
    EntryKind.FAILOVER_WITHOUT_STANDBY: _without_standby,
    EntryKind.FAILOVER_FINISHED: _failover_finished,
    EntryKind.HANDOVER_STARTED: _of_job(m.HANDOVERS_STARTED),
    EntryKind.HANDOVER_FINISHED: _handover_finished,
    EntryKind.HANDOVER_GIVEN_UP: _of_job(m.HANDOVERS_GIVEN_UP),
    EntryKind.CONTAINER_REQUESTED: _requested,
    EntryKind.REQUEST_GRANTED: _request_ended("granted"),
    EntryKind.REQUEST_CANCELLED: _request_ended("cancelled"),
    EntryKind.REQUEST_REFUSED: _request_ended("refused"),
    EntryKind.LAUNCH_FAILED: _request_ended("failed"),
    EntryKind.CONTAINER_RELEASED: _released,
    EntryKind.SAME_HOST_REFUSED: _plain(m.SAME_HOST),
    EntryKind.DECISION_REFUSED: _plain(m.DECISIONS_REFUSED),
    EntryKind.PROCESSOR_PARKED: _of_job(m.PARKED),
    EntryKind.PROCESSOR_UNPARKED: _of_job(m.UNPARKED),
    EntryKind.HOST_DRAINED: _plain(m.DRAINED),
    EntryKind.HOST_ADMITTED: _plain(m.ADMITTED),
    EntryKind.MODEL_CHANGED: _of_job(m.MODEL_CHANGES),
    EntryKind.FENCING_FAILED: _of_job(m.FENCING_FAILED),
    EntryKind.EFFECT_FAILED: _effect_failed,
    EntryKind.LEADER_DOUBTS_ITSELF: _plain(m.DOUBTS),
}
