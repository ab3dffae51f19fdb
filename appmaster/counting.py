"""Which piece of news adds what to the leader's metrics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from appmaster import metrics as m
from appmaster.metrics import OTHER, PHASES, Counter, Histogram

#: One entry of the event log, as `appmaster.telling.entry` makes it.
Entry = Mapping[str, Any]


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


def word(text: object, known: Iterable[str]) -> str:
    """Return the first word of a reason (before its first colon) if it is in the closed set, else ``other``."""
    first = str(text or "").split(":", 1)[0].strip().replace("'", "").replace(" ", "-")
    return first if first in known else OTHER


def counts(entry: Entry) -> Added:
    """Yield all that one entry of the event log adds."""
    kind: str = entry["kind"]
    if kind.startswith("decided_"):
        yield _decided(entry)
        yield from _decided_too(entry)
    rule = _RULES.get(kind)
    if rule is not None:
        yield from rule(entry)


def _job(entry: Entry) -> str:
    return str(entry["job"] or "")


def _lost(entry: Entry) -> Added:
    data = entry["data"]
    if data.get("planned"):
        return
    role = str(data.get("role") or "none")
    reason = word(entry["reason"], m.LOSS_REASONS)
    yield Count(m.CONTAINER_FAILURES, (_job(entry), role if role in m.ROLES else "none", reason))
    silent_ms = data.get("silent_ms")
    if silent_ms is not None and role in ("active", "mixed"):
        # From its last sign of life to the verdict; the other phases begin there.
        yield Observed(m.FAILOVER_SECONDS, ("detected",), max(0, silent_ms) / 1000)


def _failover_started(entry: Entry) -> Added:
    data = entry["data"]
    if data.get("to_in_sync", True):
        policy = "restart" if data.get("policy") == "restart" else "promote"
        yield Count(m.FAILOVERS, (_job(entry), policy))


def _finished(histogram: Histogram) -> Callable[[Entry], Added]:
    def rule(entry: Entry) -> Added:
        for times in (entry["data"].get("tasks") or {}).values():
            yield from _phases(histogram, times)

    return rule


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


def _handover_finished(entry: Entry) -> Added:
    yield Count(m.HANDOVERS, (_job(entry),))
    yield from _finished(m.HANDOVER_SECONDS)(entry)


def _request_kind(entry: Entry) -> str:
    kind = entry["data"].get("kind")
    if kind in m.REQUEST_KINDS:
        return str(kind)
    return "named" if entry["host"] else "any"


def _requested(entry: Entry) -> Added:
    kind = _request_kind(entry)
    yield Count(m.REQUESTS_MADE, (kind,))
    if kind == "preferred":
        yield Count(m.PREFERRED, (_job(entry),))


def _request_ended(outcome: str) -> Callable[[Entry], Added]:
    def rule(entry: Entry) -> Added:
        kind = _request_kind(entry)
        yield Count(m.REQUESTS, (kind, word(entry["data"].get("outcome", outcome), m.REQUEST_OUTCOMES)))
        if outcome == "granted" and kind == "preferred":
            yield Count(m.PREFERRED_MATCHED, (_job(entry),))

    return rule


def _released(entry: Entry) -> Added:
    why = entry["data"].get("outcome", entry["reason"])
    yield Count(m.RELEASED, (word(why, m.RELEASE_REASONS),))


def _decided(entry: Entry) -> Count:
    kind = entry["kind"].removeprefix("decided_")
    in_sync = entry["data"].get("in_sync")
    if isinstance(in_sync, bool):
        reason = "in-sync" if in_sync else "not-in-sync"
    else:
        reason = word(entry["reason"], m.DECISION_REASONS)
    return Count(m.DECIDED, (word(kind, m.DECISIONS), reason))


def _decided_too(entry: Entry) -> Added:
    """Yield what some decisions count for besides themselves."""
    if entry["kind"] == "decided_failures":
        # Without a count they are forgotten: the task got past that record.
        if entry["data"].get("count"):
            yield Count(m.TASK_FAILURES, (_job(entry),))
        return
    counter = _MOVES.get(entry["kind"])
    if counter is not None:
        yield Count(counter, (_job(entry),))


def _without_standby(entry: Entry) -> Added:
    yield Count(m.WITHOUT_STANDBY, (_job(entry), word(entry["reason"], m.WITHOUT_REASONS)))


def _of_job(counter: Counter) -> Callable[[Entry], Added]:
    def rule(entry: Entry) -> Added:
        yield Count(counter, (_job(entry),))

    return rule


def _plain(counter: Counter) -> Callable[[Entry], Added]:
    def rule(_: Entry) -> Added:
        yield Count(counter, ())

    return rule


#: Decisions that begin and end a move.
_MOVES: Final = {
    "decided_move": m.MOVES_STARTED,
    "decided_moved": m.MOVES,
    "decided_stay": m.MOVES_GIVEN_UP,
}

#: Every kind of news that counts for something; ``decided_…`` comes on top.
_RULES: Final[Mapping[str, Callable[[Entry], Added]]] = {
    "container_lost": _lost,
    "failover_started": _failover_started,
    "failover_without_standby": _without_standby,
    "failover_finished": _finished(m.FAILOVER_SECONDS),
    "handover_started": _of_job(m.HANDOVERS_STARTED),
    "handover_finished": _handover_finished,
    "handover_given_up": _of_job(m.HANDOVERS_GIVEN_UP),
    "container_requested": _requested,
    "request_granted": _request_ended("granted"),
    "request_cancelled": _request_ended("cancelled"),
    "request_refused": _request_ended("refused"),
    "launch_failed": _request_ended("failed"),
    "container_released": _released,
    "same_host_refused": _plain(m.SAME_HOST),
    "decision_refused": _plain(m.DECISIONS_REFUSED),
    "processor_parked": _of_job(m.PARKED),
    "processor_unparked": _of_job(m.UNPARKED),
    "host_excluded": _plain(m.EXCLUDED),
    "host_admitted": _plain(m.ADMITTED),
    "model_changed": _of_job(m.MODEL_CHANGES),
    "fencing_failed": _of_job(m.FENCING_FAILED),
    "leader_doubts_itself": _plain(m.DOUBTS),
}
