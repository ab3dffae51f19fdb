"""Looks keys up for somebody outside of the job: in an active, or in a standby that is fresh enough.

Only committed state is ever in a database (rule `commit-first`), so nothing else can be read. Nobody is asked whether a
newer owner exists: the answer names epoch and role, and the caller compares them with the leader's, because a
fenced active does not know it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from standby.errors import StandfastError, Transient
from standby.kernel.replica.runner import ReplicaRunner
from standby.replica.store.keys import prefix
from standby.shared.model import Phase, ReplicaId, Role

#: So often a look-up is begun again when the replica changed its phase meanwhile.
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked up."""

    job: str
    store: str
    key: bytes
    role: Role
    """Whom to ask: the active, or standbys."""
    partition: int | None = None
    """None: every task that is here."""
    max_lag_ms: int | None = None
    """A standby that may be further behind does not answer; None: however far, as long as that is known."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one replica has."""

    replica: ReplicaId
    run: str
    role: Role
    phase: Phase
    epoch: int
    applied: int
    """The value is at least as new as this changelog offset says."""
    lag_ms: int
    """The value is at most so old: whatever was committed longer ago is in it. 0 for the active of its epoch."""
    value: bytes | None
    """None: there is no such key."""


@dataclass(frozen=True, slots=True)
class Declined:
    """Why one replica does not answer."""

    replica: ReplicaId
    why: str


def look_up(
    question: Question, held: Iterable[ReplicaRunner], clock: Callable[[], int]
) -> Iterator[Found | Declined]:
    """Yield what each replica in question says; ``clock`` returns Unix milliseconds."""
    for each in held:
        task = each.replica.id.task
        if task.job == question.job and question.partition in (None, task.partition):
            try:
                yield _ask(question, each, clock)
            except StandfastError as error:
                yield Declined(each.replica.id, str(error))


def _ask(question: Question, held: ReplicaRunner, clock: Callable[[], int]) -> Found | Declined:
    for _ in range(_TRIES):
        before = held.replica
        role = Role.ACTIVE if before.phase is Phase.ACTIVE else Role.STANDBY
        if role is not question.role:
            return Declined(before.id, f"it is {before.phase.value}, no {question.role.value}")
        readable = held.readable()
        if readable is None:
            return Declined(before.id, f"it is {before.phase.value}; how old its state is, is not known")
        store, at_end_ms = readable
        # Taken before the value: the value may be newer than they say, never older.
        applied = store.position.offset
        lag_ms = 0 if at_end_ms is None else max(0, clock() - at_end_ms)
        if question.max_lag_ms is not None and lag_ms > question.max_lag_ms:
            return Declined(before.id, f"it may be {lag_ms} ms behind")
        value = store.look_up((prefix(question.store) + question.key,))[0]
        if held.replica is before:
            run = held.job.definition.run
            return Found(before.id, run, role, before.phase, before.epoch, applied, lag_ms, value)
    raise Transient("it is changing its role; ask again")
