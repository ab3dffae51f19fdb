"""The types that all parts of standfast share: ids, roles, phases and records. Pure.

Ids are structured values; their text forms are for people and logs, and are never parsed.
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
    """The phases of a replica's lifecycle; `standby.replica.lifecycle` has the transitions."""

    OPENING = "opening"
    """Its local store is being opened and checked."""
    RESTORING = "restoring"
    """It is replaying the changelog and is not within the lag policy yet."""
    TAILING = "tailing"
    """It is a standby that follows the changelog's end (in sync)."""
    FENCING = "fencing"
    """Becoming active: the record is read, and the producer's initialisation fences every earlier writer."""
    DRAINING = "draining"
    """Becoming active: the fence is in place, and the rest of the changelog is being replayed."""
    CLAIMING = "claiming"
    """Becoming active: the offsets are being committed again with the new epoch."""
    ACTIVE = "active"
    """It has claimed its epoch; the input is open or about to be opened."""
    FENCED = "fenced"
    """A newer owner exists, or it was fenced repeatedly: it stopped by itself."""
    FAILED = "failed"
    """It cannot continue; the detail has the reason. Its store is closed."""
    CLOSING = "closing"
    """It is closing as ordered; its store is still open."""
    CLOSED = "closed"
    """It is closed as ordered; nothing of it is running any more."""


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """A partition number of the inputs of a job's stage, with all its stores."""

    job: str
    stage: str
    partition: int

    def __str__(self) -> str:
        return f"{self.job}/{self.stage}.{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class ReplicaId:
    """A copy of a task. Copy numbers begin at 0 and stay with the replica; roles change."""

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
    """A copy of a processor: the unit that needs a container of its own."""

    processor: ProcessorId
    copy: int

    def __str__(self) -> str:
        return f"{self.processor}#{self.copy}"


#: The averaging period of `ReplicaStatus.input_rate`.
RATE_WINDOW_SECONDS: Final = 60

#: How long `ReplicaStatus.given_up` contains given-up records.
GIVEN_UP_SECONDS: Final = 30

#: A partition of an input topic: the topic and the partition number.
InputPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Offsets:
    """A task's offsets in its input: one for each topic of `task.inputs`, in their order.

    There is no total order: of two values, each may be ahead in a different topic.
    """

    each: tuple[int, ...]

    @classmethod
    def of(cls, *each: int) -> Offsets:
        """Return the offsets ``each``."""
        return cls(each)

    @property
    def total(self) -> int:
        """The sum, which is the task's *position*: it increases with every commit, so it identifies the offsets."""
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
    """Number of failures of a task's user code at one committed input position, on any replica."""

    offset: int
    """The committed input position (`Offsets.total`; of one topic, its offset): the failing record is the next one
    or a later one of the same batch."""
    count: int
    reason: str = ""
    topic: str = ""
    """Which of several inputs was run alone from there, after ends of processes; empty: all, or there is only one."""
    is_apart: bool = False
    """Whether the task is run alone from there on: a process ended that may have been running it, which by itself is
    not a failure."""
    container: str = ""
    """The container whose end was taken into account last: each leader may hear of the same end until the copy is
    elsewhere. Empty: none, or the task has failed since."""

    @property
    def is_any(self) -> bool:
        """Whether there is anything that a replica needs to know."""
        return self.count > 0 or self.is_apart


class Fault(str, enum.Enum):
    """Why a replica FAILED, as far as it matters for the leader's decisions."""

    OTHER = "other"
    """It may succeed in another container."""
    POISON = "poison"
    """A record on which every other replica would fail, too."""
    POISON_LIMIT = "poison-limit"
    """More records would have to be skipped than the job allows, on any replica."""
    CHANGED_TOPIC = "changed-topic"
    """A topic was deleted and created again: every other replica would fail, too."""
    REFUSED = "refused"
    """The job's code or configuration cannot be used: other replicas probably fail, too."""

    @property
    def is_poison(self) -> bool:
        """Whether its input is the cause."""
        return self in (Fault.POISON, Fault.POISON_LIMIT)


class LeftOut(str, enum.Enum):
    """How input was skipped."""

    SKIPPED = "skipped"
    """`task.on.error` is ``skip``."""
    DEAD_LETTER = "dead-letter"
    """It was written to `task.dead.letter`."""
    LOST = "lost"
    """It was deleted before it was processed, and `task.input.lost` is ``skip``."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A skipped record of a task's input partition, or offsets that were lost there."""

    topic: str
    offset: int
    how: LeftOut
    error: str
    """Type of the exception of the job's code; ``ProcessEnded`` when a process ended; empty when input was lost."""
    message: str = ""
    """The exception's message, in one line."""
    offsets: int = 1
    """Number of offsets from `offset` on; more than one only when input was lost."""
    at_ms: int = 0
    """Unix milliseconds, by the container's clock."""

    @property
    def reason(self) -> str:
        """The reason, in one line."""
        return f"{self.error}: {self.message}" if self.message else self.error


@dataclass(frozen=True, slots=True)
class Held:
    """A host that held a task's state: an entry of the task's locality history."""

    host: str
    until_ms: int
    """Unix milliseconds at which the task was last known to be there."""
    position: int | None = None
    """Changelog position of its state there, as last reported; None: never reported."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The authoritative record of a task: its active copy, its epoch, and the copies in sync.

    Stored in ZooKeeper under ``/jobs/<job>/tasks/<stage>.<n>``, and changed only by the leader, by a version-checked
    write in a transaction that also checks the controller epoch.
    """

    task: TaskId
    active: int | None
    """Copy number of the active replica; None before the first one is chosen."""
    epoch: int
    """Incremented at each change of active; 0 before the first one."""
    placed: Mapping[int, str] = field(default_factory=dict)
    """Copy number → YARN container id, for every copy that is bound to a container."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Copy number → the host where that copy is, or was last (task locality)."""
    in_sync: tuple[int, ...] = ()
    """Copies within the lag policy, always including the active, in ascending order."""
    claimed: bool = False
    """Whether any epoch was ever claimed: from then on, committed offsets must exist."""
    decision: str = ""
    """Id of the decision that wrote this version, to verify a write with unknown outcome."""
    moving: Mapping[int, str] = field(default_factory=dict)
    """Copy number → YARN container that will replace the copy's container; the old one serves until the new one is
    in sync (like Kafka's reassignment)."""
    displaced: int | None = None
    """Policy ``restart``: the copy whose standby is displaced; the active starts on its host (SEP-23, steps 2 to 6)."""
    history: tuple[Held, ...] = ()
    """Hosts that held the task before, latest first; limited in number and age."""
    failures: InputFailures | None = None
    """Failures of user code at the current committed offset; None once it has advanced past them."""
    revision: int = 0
    """Highest revision of the job that an active of the task was given, so it may have committed (0: none)."""
    is_chosen: bool = False
    """Whether an operator made the active it (`standfast handover`); such an active is not moved to spread actives."""


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The identity of one of a run's topics, as recorded by the run."""

    id: str = ""
    """Kafka's topic id: a topic that was deleted and created again has another one. Empty: not recorded yet."""
    generation: int = 0
    """Counts the recreated topics that were accepted in the run; 0: the original topic. Commits contain the highest
    generation known to their writer: a commit with a lower one says nothing about this topic."""
    start: str = ""
    """For an accepted input: where to start reading it, ``earliest`` or ``latest``."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The desired state of a replica in a container, as decided by the leader."""

    replica: ReplicaId
    role: Role
    epoch: int
    """The task's epoch under which this was decided; an older one is refused."""
    is_next: bool = False
    """Standby only: its planned promotion is imminent, so everything that can be prepared should be."""
    is_paused: bool = False
    """Standby only: while it is not in sync, it replays nothing (`job.restore.paused`)."""


class StartStep(enum.Enum):
    """The steps from the claim of a task to its first commit, in order."""

    JOINED = "joined"
    """The pipeline of the job has the task."""
    STARTED = "started"
    """The start of the feed began, once all tasks that become active together were claimed."""
    DELIVERED = "delivered"
    """The feed has delivered its first batch."""
    COMPUTED = "computed"
    """The job's step was called with this batch."""
    BEGUN = "begun"
    """The commit record of its transaction has arrived; first, the markers of the claim have been seen."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A container's report about one replica that it holds."""

    replica: ReplicaId
    role: Role
    phase: Phase
    epoch: int
    applied: int | None = None
    """Changelog position: the offset after the last record in the local store; None: not known yet."""
    end: int | None = None
    """The changelog's end as known to the replica; None while the broker does not answer."""
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
    """Why it is FAILED or FENCED: an error's first line. While it is OPENING: what it does, or waits for."""
    entered: Mapping[Phase, int] = field(default_factory=dict)
    """Phases since it was last ordered to become active → Unix milliseconds of entering them.

    This also covers phases that are shorter than the interval between two reports.
    """
    start_steps: Mapping[str, int] = field(default_factory=dict)
    """Active only: the values of `StartStep` passed since the claim → Unix milliseconds."""
    is_prepared: bool = False
    """Standby only: everything that `Wanted.is_next` requires is done."""
    start_ms: int | None = None
    """Standby only: time from the claim of a promotion to its first batch, in milliseconds, as last measured; None:
    not known, because its pipeline is cold."""
    is_cut_off: bool = False
    """Active only: the end of its changelog is unavailable."""
    failures: InputFailures | None = None
    """Active only: failures of user code at the current committed offset, including those of earlier replicas; None
    when there are none."""
    traceback: str = ""
    """Active and FAILED only: the traceback of the job's error in `failures` or `detail`, as returned by
    `standby.shared.errortext.traceback_of`; empty when there is none, or the report has enough of them."""
    skipped: int = 0
    """Active only: input records given up by `task.on.error`, and input offsets by `task.input.lost`, since this
    replica became active."""
    dead_lettered: int = 0
    """Active only: those of `skipped` that were written to `task.dead.letter`."""
    given_up: tuple[GivenUp, ...] = ()
    """Active and FAILED only: the last few of `skipped`, given up within the last `GIVEN_UP_SECONDS`."""
    input_lag_ms: int | None = None
    """Active, and while it claims its task again: for how long it has been behind the end of its input, in
    milliseconds; None while that is not known."""
    input_rate: float | None = None
    """Active only: processed input offsets per second, averaged over the last `RATE_WINDOW_SECONDS`, or since it
    became active."""

    record_bytes: float | None = None
    """Mean size of recently applied changelog records, key and value; None: none were applied."""

    drained_from: int | None = None
    """Active only: changelog position of its state once its fence was in place."""
    drained_to: int | None = None
    """Active only: the changelog's end after its fence, up to which it replayed before it claimed the task."""
    fault: Fault = Fault.OTHER
    """FAILED only: the class of the failure in `detail`."""
    waits_for: str = ""
    """OPENING only: why nothing that it does itself gets it the state, without figures that change all the time; empty:
    it may get it."""

    @property
    def restored_records(self) -> int | None:
        """Number of changelog offsets that its promotion had to replay; None when it is not active."""
        if self.drained_from is None or self.drained_to is None:
            return None
        return max(0, self.drained_to - self.drained_from)

    @property
    def input_lag(self) -> int | None:
        """Number of input offsets that are not committed yet; None while unknown."""
        if self.input_end is None or self.input_committed is None:
            return None
        return max(0, self.input_end - self.input_committed)

    @property
    def lag_records(self) -> int | None:
        """Number of changelog offsets that are not applied yet; None while unknown."""
        if self.applied is None or self.end is None:
            return None
        return max(0, self.end - self.applied)

    @property
    def lag_bytes(self) -> float | None:
        """Estimated size of keys and values that are not applied yet, in bytes; None while unknown.

        Assumes that unread records have the size of those that were read last.
        """
        records = self.lag_records
        if not records:
            return records
        return None if self.record_bytes is None else records * self.record_bytes


@dataclass(frozen=True, slots=True)
class Leftover:
    """State of a task on a host's disk, from this or an earlier container."""

    task: TaskId
    run: str
    position: int
    """Its changelog position."""
    found_ms: int = 0
    """When it was found on the disk, in Unix ms by the host's clock. 0: not reported, by a container of an older
    version."""


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """What a process of a pool offers, as its node was started with."""

    group: str = ""
    """It is for the jobs only that ask for this group."""
    memory_mb: int = 0
    """0: not limited; so are the others."""
    cores: int = 0
    tasks: int = 0
    """The most copies of tasks that it takes."""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Of its host, for `job.locality.spread`; among them its ``rack``."""
