"""Serves key look-ups from outside of the job: from an active, or from a standby that is fresh enough.

A database contains only committed state (rule `commit-first`), so nothing else can be read. There is no check for a
newer owner: the answer contains epoch and role, and the caller compares them with the leader's, because an active
may not know yet that it is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from standby.errors import StandfastError, Transient
from standby.kernel.replica.runner import ReplicaRunner
from standby.replica.store.keys import prefix
from standby.shared.model import Phase, ReplicaId, Role

#: How often a look-up is retried when the replica has changed its phase meanwhile.
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A look-up request."""

    job: str
    store: str
    key: bytes
    role: Role
    """Where to look: in the active, or in standbys."""
    partition: int | None = None
    """None: every task in this container."""
    max_lag_ms: int | None = None
    """Maximum lag of a standby; None: any, provided that its lag is known."""


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The answer of one replica."""

    replica: ReplicaId
    run: str
    role: Role
    phase: Phase
    epoch: int
    applied: int
    """The value is at least as new as this changelog offset."""
    lag_ms: int
    """Maximum age of the value: everything committed earlier than that is included. 0 for the active of its epoch."""
    value: bytes | None
    """None: the key does not exist."""


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a replica does not answer."""

    replica: ReplicaId
    why: str


def look_up(
    question: LookupRequest, held: Iterable[ReplicaRunner], clock: Callable[[], int]
) -> Iterator[LookupResult | Declined]:
    """Yield the answer of each replica in question; ``clock`` returns Unix milliseconds."""
    for each in held:
        task = each.replica.id.task
        if task.job == question.job and question.partition in (None, task.partition):
            try:
                yield _ask(question, each, clock)
            except StandfastError as error:
                yield Declined(each.replica.id, str(error))


def _ask(question: LookupRequest, held: ReplicaRunner, clock: Callable[[], int]) -> LookupResult | Declined:
    for _ in range(_TRIES):
        before = held.replica
        role = Role.ACTIVE if before.phase is Phase.ACTIVE else Role.STANDBY
        if role is not question.role:
            return Declined(before.id, f"it is {before.phase.value}, not {question.role.value}")
        readable = held.readable()
        if readable is None:
            return Declined(before.id, f"it is {before.phase.value}; the age of its state is not known")
        store, at_end_ms = readable
        # Read before the value: the value may be newer than this, never older.
        applied = store.position.offset
        lag_ms = 0 if at_end_ms is None else max(0, clock() - at_end_ms)
        if question.max_lag_ms is not None and lag_ms > question.max_lag_ms:
            return Declined(before.id, f"it may be {lag_ms} ms behind")
        value = store.look_up((prefix(question.store) + question.key,))[0]
        if held.replica is before:
            run = held.job.definition.run
            return LookupResult(before.id, run, role, before.phase, before.epoch, applied, lag_ms, value)
    raise Transient("it is changing its role; ask again")
