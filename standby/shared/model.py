"""The words that every part of standfast shares: ids, roles, phases and records. Pure.

Ids are structured values; their text forms are for people and logs and are never parsed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


class Role(str, enum.Enum):
    """What a replica does with its task: process its input, or replay its changelog."""

    ACTIVE = "active"
    STANDBY = "standby"


class Phase(str, enum.Enum):
    """Where a replica stands in its life; `standby.replica.lifecycle` has the legal moves."""

    OPENING = "opening"
    """Its local store is being opened and checked."""
    RESTORING = "restoring"
    """It replays the changelog and is not yet within the lag policy."""
    TAILING = "tailing"
    """It is a standby in step with the changelog's end (in-sync)."""
    FENCING = "fencing"
    """On its way to active: record read, producer's initialisation fences every earlier writer."""
    DRAINING = "draining"
    """On its way to active: the fence holds, the rest of the changelog is being replayed."""
    CLAIMING = "claiming"
    """On its way to active: the offsets are being committed again with the new epoch."""
    ACTIVE = "active"
    """It claimed its epoch; input is open or about to be."""
    FENCED = "fenced"
    """A newer owner exists, or it was fenced again and again: it stopped by itself."""
    FAILED = "failed"
    """It cannot go on; the detail says why. Its store is closed."""
    CLOSING = "closing"
    """Told to close and doing so; its store is still open."""
    CLOSED = "closed"
    """Given up as ordered; store closed, nothing of it runs any more."""


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """One input partition number of one stage of one job, with all its stores."""

    job: str
    stage: str
    partition: int

    def __str__(self) -> str:
        return f"{self.job}/{self.stage}.{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class ReplicaId:
    """One copy of a task. Copy numbers run from 0 and stay with the replica; roles move."""

    task: TaskId
    copy: int

    def __str__(self) -> str:
        return f"{self.task}#{self.copy}"


@dataclass(frozen=True, slots=True, order=True)
class ProcessorId:
    """A set of tasks that the job model places together (Samza's container model)."""

    job: str
    stage: str
    number: int

    def __str__(self) -> str:
        return f"{self.job}/{self.stage}:{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class SlotId:
    """One copy of a processor: the unit that needs a container of its own."""

    processor: ProcessorId
    copy: int

    def __str__(self) -> str:
        return f"{self.processor}#{self.copy}"


#: What `ReplicaStatus.input_rate` is a mean over.
RATE_WINDOW_SECONDS: Final = 60

#: For so long `ReplicaStatus.given_up` has what was given up.
GIVEN_UP_SECONDS: Final = 30

#: A partition of an input topic: the topic, and the partition's number.
InputPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where a task stands in its input: one offset for each topic of `task.inputs`, in their order.

    There is no "less than": of two, each may be ahead in another topic.
    """

    each: tuple[int, ...]

    @classmethod
    def of(cls, *each: int) -> Offsets:
        """Return the offsets ``each``."""
        return cls(each)

    @property
    def total(self) -> int:
        """The sum, which is the task's *position*: it rises with every commit, so it names the offsets of one task."""
        return sum(self.each)

    def reaches(self, other: Offsets) -> bool:
        """Return whether no offset is below the one in ``other``."""
        return all(mine >= its for mine, its in zip(self.each, other.each, strict=True))

    def at_most(self, other: Offsets) -> Offsets:
        """Return the lower one of both offsets of each topic."""
        return Offsets(tuple(map(min, self.each, other.each)))

    def at_least(self, other: Offsets) -> Offsets:
        """Return the higher one of both offsets of each topic."""
        return Offsets(tuple(map(max, self.each, other.each)))

    def __str__(self) -> str:
        return str(self.each[0]) if len(self.each) == 1 else str(self.each)


@dataclass(frozen=True, slots=True)
class InputFailures:
    """How often a task's user code failed at one committed input position, whichever replica it was."""

    offset: int
    """The committed input position (`Offsets.total`; of one topic, its offset): the failing record is the next one
    or a later one of the same batch."""
    count: int
    reason: str = ""
    topic: str = ""
    """Which of several inputs was run alone from there, after ends of processes; empty: all, or there is but one."""
    is_apart: bool = False
    """Whether the task is run alone from there on: a process ended that may have run it, which alone is no failure."""

    @property
    def is_any(self) -> bool:
        """Whether there is something that a replica needs to know."""
        return self.count > 0 or self.is_apart


class Fault(str, enum.Enum):
    """What a replica FAILED of, as far as the leader decides by it."""

    OTHER = "other"
    """Another container may do better."""
    POISON = "poison"
    """A record on which every other replica would fail as well."""
    POISON_LIMIT = "poison-limit"
    """More records would have to be left out than the job allows, wherever it ran."""
    CHANGED_TOPIC = "changed-topic"
    """A topic that was deleted and created again: every other replica would find the same."""

    @property
    def is_poison(self) -> bool:
        """Whether it failed of its input."""
        return self in (Fault.POISON, Fault.POISON_LIMIT)


class LeftOut(str, enum.Enum):
    """How input was left out."""

    SKIPPED = "skipped"
    """`task.on.error` is ``skip``."""
    DEAD_LETTER = "dead-letter"
    """It was written to `task.dead.letter`."""
    LOST = "lost"
    """It was deleted before it was processed, and `task.input.lost` is ``skip``."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A record of a task's input partition that was left out, or the offsets that were lost there."""

    topic: str
    offset: int
    how: LeftOut
    error: str
    """Type of the exception of the job's code; ``ProcessEnded`` when a process ended; empty when input was lost."""
    message: str = ""
    """What the exception said, in one line."""
    offsets: int = 1
    """How many offsets from `offset` on; more than one only when input was lost."""
    at_ms: int = 0
    """Unix milliseconds, by the container's clock."""

    @property
    def reason(self) -> str:
        """Why, in one line."""
        return f"{self.error}: {self.message}" if self.message else self.error


@dataclass(frozen=True, slots=True)
class Held:
    """A host that held a task's state: one entry of the task's locality history."""

    host: str
    until_ms: int
    """Unix milliseconds when the task was last known there."""
    position: int | None = None
    """Changelog offset that its state there was applied up to, as last reported; None: never reported."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The durable truth about a task: who is active, since which epoch, who is in sync.

    Kept in ZooKeeper under ``/jobs/<job>/tasks/<stage>.<n>``, changed only by the leader, by a
    version-checked write in a transaction that also checks the controller epoch.
    """

    task: TaskId
    active: int | None
    """Copy number of the active replica; None before the first one is chosen."""
    epoch: int
    """Raised at each change of active; 0 before the first one."""
    placed: Mapping[int, str] = field(default_factory=dict)
    """Copy number → YARN container id, for every copy that is bound to a container."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Copy number → the host where that copy is, or was last (task locality)."""
    in_sync: tuple[int, ...] = ()
    """Copies within the lag policy, the active always among them, in ascending order."""
    claimed: bool = False
    """Whether some epoch was ever claimed: from then on committed offsets must exist."""
    decision: str = ""
    """Id of the decision that wrote this version, by which an unknown outcome is read back."""
    moving: Mapping[int, str] = field(default_factory=dict)
    """Copy number → YARN container that is being filled to take the copy's place; the old one serves until
    the new one is in sync (Kafka's reassignment)."""
    displaced: int | None = None
    """Policy ``restart``: the copy whose standby is displaced; the active starts on its host (SEP-23, steps 2 to 6)."""
    history: tuple[Held, ...] = ()
    """Hosts that held the task before, latest first; bounded, and forgotten after a while."""
    failures: InputFailures | None = None
    """Failures of user code at the present committed offset; None when it got past the last ones."""
    revision: int = 0
    """Highest revision of the job that an active of the task was given: it may have committed (0: none was)."""


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """What a run has recorded of one of its topics."""

    id: str = ""
    """Kafka's id of it: a topic that was deleted and created again has another one. Empty: not recorded yet."""
    generation: int = 0
    """Counts the topics of the run that were accepted although they are others; 0: it is the one of the beginning.

    Commits say the highest generation that they knew: one with a lower one says nothing of this topic."""
    start: str = ""
    """Of an input that was accepted: where it is read from, ``earliest`` or ``latest``."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the leader wants of one replica in one container."""

    replica: ReplicaId
    role: Role
    epoch: int
    """The task's epoch under which this was decided; an older one is refused."""
    is_next: bool = False
    """Standby only: it is about to be made active as planned, so whatever can be prepared should be."""
    is_paused: bool = False
    """Standby only: while it is not in sync, it replays nothing (`job.restore.paused`)."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """What a container says about one replica it holds."""

    replica: ReplicaId
    role: Role
    phase: Phase
    epoch: int
    applied: int | None = None
    """Changelog position: the offset after the last record in the local store; None: not known yet."""
    end: int | None = None
    """The changelog's end as the replica knows it; None while the broker cannot be asked."""
    lag_ms: int | None = None
    """For how long the replica has been behind the changelog's end, milliseconds; None: unknown."""
    input_committed: int | None = None
    """Active only: the committed input offset (the next record to process); of several inputs, their sum."""
    input_end: int | None = None
    """Active only: end of the input partition, as last seen; of several inputs, their sum."""
    input_offsets: Mapping[str, int] = field(default_factory=dict)
    """Active only, and only with several inputs: topic → committed offset."""
    first_commit_ms: int | None = None
    """Active only: Unix milliseconds of the first commit with input in this epoch."""
    since_ms: int = 0
    """Unix milliseconds at which the replica entered its phase, by the container's clock."""
    detail: str = ""
    """Why it FAILED or was FENCED: an error's first line."""
    entered: Mapping[Phase, int] = field(default_factory=dict)
    """Phases since it was last ordered to become active → Unix milliseconds of its entry.

    A phase may be shorter than the time between two reports; here it is still told.
    """
    is_prepared: bool = False
    """Standby only: everything that `Wanted.is_next` asks for is done."""
    start_ms: int | None = None
    """Standby only: what a promotion would wait for its first batch after the claim, milliseconds, as measured last;
    None: not known, its pipeline is cold."""
    is_cut_off: bool = False
    """Active only: nobody answers where its changelog ends."""
    failures: InputFailures | None = None
    """Active only: failures of user code at the present committed offset, those before this replica included;
    None when there are none."""
    traceback: str = ""
    """Active and FAILED only: where the job's code raised what `failures` or `detail` are about, as
    `standby.shared.errortext.traceback_of` has it; empty when it has not, or the report had enough of
    them."""
    skipped: int = 0
    """Active only: input records given up by `task.on.error`, and input offsets by `task.input.lost`, since this
    replica became active."""
    dead_lettered: int = 0
    """Active only: those of `skipped` that were written to `task.dead.letter`."""
    given_up: tuple[GivenUp, ...] = ()
    """Active and FAILED only: the last few of `skipped`, given up within the last `GIVEN_UP_SECONDS`."""
    input_lag_ms: int | None = None
    """Active, and while it claims its task anew: for how long it has been behind the end of its input, milliseconds;
    None while that is not known."""
    input_rate: float | None = None
    """Active only: input offsets a second that it has processed, the mean over the last `RATE_WINDOW_SECONDS`, or since
    it became active."""

    record_bytes: float | None = None
    """Size of the changelog's records that were applied last, mean of key and value; None: none were."""

    drained_from: int | None = None
    """Active only: changelog position of its state when its fence held."""
    drained_to: int | None = None
    """Active only: the changelog's end after its fence, up to which it replayed before it claimed the task."""
    fault: Fault = Fault.OTHER
    """FAILED only: what `detail` is about."""

    @property
    def restored_records(self) -> int | None:
        """Return how many changelog offsets its promotion had to replay; None when it is no active."""
        if self.drained_from is None or self.drained_to is None:
            return None
        return max(0, self.drained_to - self.drained_from)

    @property
    def input_lag(self) -> int | None:
        """Return how many input offsets are not committed yet; None while unknown."""
        if self.input_end is None or self.input_committed is None:
            return None
        return max(0, self.input_end - self.input_committed)

    @property
    def lag_records(self) -> int | None:
        """Return how many changelog offsets are not applied yet; None while unknown."""
        if self.applied is None or self.end is None:
            return None
        return max(0, self.end - self.applied)

    @property
    def lag_bytes(self) -> float | None:
        """Return about how many bytes of keys and values are not applied yet; None while unknown.

        An estimate: what is not read yet is taken to be like what was read last.
        """
        records = self.lag_records
        if not records:
            return records
        return None if self.record_bytes is None else records * self.record_bytes


@dataclass(frozen=True, slots=True)
class Leftover:
    """State of a task found on a host's disk, of this or an earlier container."""

    task: TaskId
    run: str
    position: int
    """Changelog offset it was applied up to."""
    found_ms: int = 0
    """When it was seen on the disk; Unix ms by the host's clock. 0: a container of an older version did not say."""
