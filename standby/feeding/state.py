"""The state of feeding a processor's active tasks: one frozen value. Pure.

Times are seconds on the monotonic clock, unless their name says otherwise.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from standby.replica.failing import CodeError, ErrorPolicy, Suspect, failures_at
from standby.replica.route import Route
from standby.shared.model import GivenUp, InputFailures, Offsets, TaskId

#: Kafka expires offsets that have not been committed for days; an idle active commits them again.
RECLAIM_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class FeedingPolicy:
    """Settings from the job's configuration."""

    errors: ErrorPolicy
    may_skip_lost: bool = False
    """Whether input that was deleted before it was processed is skipped (`task.input.lost`)."""
    reclaim_ms: int = RECLAIM_MS
    """How long after its last commit an idle active commits its offsets again."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The job's input topics."""
        return self.errors.topics


@dataclass(frozen=True, slots=True)
class FeedMember:
    """An active task that is fed, or is to be fed."""

    task: TaskId
    number: int
    """Distinguishes the task's actives over time: an active that rejoins gets another number."""
    epoch: int
    committed: Offsets
    last_commit_ms: int
    failures: InputFailures | None = None
    """The failures reported for it."""
    is_reported: bool = False
    """Whether a report with its present failures has left the process."""

    @property
    def position(self) -> int:
        """The sum of its committed offsets."""
        return self.committed.total

    @property
    def present_failures(self) -> InputFailures | None:
        """The failures at its committed offsets."""
        return failures_at(self.failures, self.position)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Expected events, as announced by the container's conductor."""

    expected: frozenset[TaskId] = frozenset()
    """All tasks that have joined or are becoming active."""
    quiet_until: float = 0.0
    """No warm-up before this time: by then, a task that began to become active has usually finished."""


class Letter(enum.Enum):
    """How much of a record is written to `task.dead.letter`."""

    WHOLE = "written to {}"
    SHORT = "written to {}, cut short"
    NONE = "left out; {} refuses even its place"


LETTERS: Final = (Letter.WHOLE, Letter.SHORT, Letter.NONE)


@dataclass(frozen=True, slots=True)
class SuspectTask:
    """What is known about a task that must be run alone."""

    suspect: Suspect
    due_at: float
    """When its next move is due."""
    route: Route | None = None
    """The order of its inputs; None: not determined yet, because their ends have not been requested."""
    is_waiting_for_report: bool = False
    """Its offset must be reported to the leader first: the next input may end the process (rule `fair-blame`)."""
    letters: tuple[Letter, ...] = LETTERS
    """The forms of the dead letter still to be tried, without those that Kafka has refused for their size."""
    unreadable: tuple[str, int] | None = None
    """An input, and the offset up to which its records are unreadable: they are given up without being run."""


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """The standstill of a task that has pending input."""

    position: int
    since: float
    patience_seconds: float


@dataclass(frozen=True, slots=True)
class Apart:
    """A suspect that is run alone, and the range of its input."""

    task: TaskId
    start: Offsets
    until: Offsets


@dataclass(frozen=True, slots=True)
class RunningFeed:
    """The feed as it was started, and its tasks."""

    members: Mapping[TaskId, int]
    """The number of each member."""
    commits: int
    """Number of task batches committed at its start, to detect progress."""
    apart: Apart | None = None


class FeedEndCause(enum.Enum):
    """Why a feed ended, by the required reaction."""

    BY_ITSELF = "by itself"
    """It ended without a failure."""
    AWAY = "away"
    """A part of the input is unavailable."""
    CALLED_OFF = "called off"
    """Its start waited, and was called off so that a task can leave."""
    TRANSIENT = "transient"
    OUTSIDE = "outside"
    """Committed offsets may be outside of the input."""
    CODE = "code"
    """The job's transform failed on some row."""
    REFUSED = "refused"
    """The job's code or configuration cannot be used, for example because Spark refuses a setting."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FeedFailure:
    """Why a feed ended, or was not started."""

    cause: FeedEndCause
    message: str
    """A one-line description."""
    detail: str = "it ended by itself"
    """The detail reported for tasks that end because of it."""
    traceback: str = ""
    story: str = "by itself"
    """The text for the log, with the traceback where it is useful."""
    error: CodeError | None = None
    """The error to report, if it is one of the job's code."""
    partitions: frozenset[int] = frozenset()
    """The unavailable partitions."""

    @property
    def may_pass(self) -> bool:
        """Whether a retry may succeed, however often it has failed."""
        return self.cause in (FeedEndCause.AWAY, FeedEndCause.TRANSIENT)


# ---- pending actions ----


@dataclass(frozen=True, slots=True)
class StoppingFeed:
    """The feed is being stopped; nothing follows."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The feed is being stopped, so that it can start again with other tasks."""

    apart: Apart | None = None
    """The single task that it starts with; None: all tasks that are fed together."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The end of a suspect's input is being requested."""

    task: TaskId
    until: int | None
    """The position up to which it is to be run; None: its next record is to be given up."""


@dataclass(frozen=True, slots=True)
class ReadingRecord:
    """A record that is given up is being read."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class GivingUp:
    """The offset after a given-up record is being committed."""

    task: TaskId
    is_there: bool
    """Whether there is a record; otherwise it was compacted away, or is a transaction's marker."""
    topic: str
    offset: int
    form: Letter
    has_letter: bool
    message: str
    """Where the code failed, and the error."""
    recent: tuple[int, ...]
    """Unix milliseconds of the records given up within the last hour."""
    now_ms: int


@dataclass(frozen=True, slots=True)
class CheckingOffsets:
    """Committed offsets are being compared with the bounds of the input."""

    todo: tuple[TaskId, ...]
    """The first one's bounds are being requested."""
    members: Mapping[TaskId, int]
    failure: FeedFailure
    found: bool = False
    """Whether any offsets were outside."""


@dataclass(frozen=True, slots=True)
class Skipping:
    """The offset after deleted input is being committed."""

    settling: CheckingOffsets
    inside: Offsets
    lost: tuple[GivenUp, ...]
    message: str


Doing = StoppingFeed | Beginning | Routing | ReadingRecord | GivingUp | CheckingOffsets | Skipping


@dataclass(frozen=True, slots=True)
class FeedingState:
    """Everything that the next decision depends on."""

    policy: FeedingPolicy
    now: float = 0.0
    now_ms: int = 0
    """Unix milliseconds."""
    commits: int = 0
    """Number of task batches committed so far."""
    is_delivering: bool = False
    """Whether a batch of the feed is being processed."""
    is_awaited: bool = False
    """Whether a command is waiting for the pipeline."""
    input_ends: Mapping[int, int | None] = field(default_factory=dict)
    """The ends of the members' input partitions; None, or missing: not known."""
    outlook: Outlook = field(default_factory=Outlook)

    members: Mapping[TaskId, FeedMember] = field(default_factory=dict)
    feed: RunningFeed | None = None
    doing: Doing | None = None
    """The action whose answer is pending; None: none."""

    gather_until: float = 0.0
    """Until when tasks that have joined wait for those that are becoming active."""
    retry_at: float = 0.0
    """The feed is not restarted before this time."""
    failures: int = 0
    """Failures of the feed in a row, with no commit in between."""
    is_too_long: bool = False
    """Whether a transaction timed out, and the feed's batches have not been reduced yet."""
    late_at: Mapping[TaskId, int] = field(default_factory=dict)
    """The positions at which transactions last timed out."""
    held_up: Mapping[TaskId, float] = field(default_factory=dict)
    """Tasks with which a feed could not be started → the time before which this is not retried."""
    standing: Mapping[TaskId, WaitingTask] = field(default_factory=dict)

    suspects: Mapping[TaskId, SuspectTask] = field(default_factory=dict)
    """Members that are run alone."""
    kept: Mapping[TaskId, SuspectTask] = field(default_factory=dict)
    """What is known about tasks whose transaction failed due to its content, until they rejoin."""
    given_up_ms: Mapping[TaskId, tuple[int, ...]] = field(default_factory=dict)
    """Unix milliseconds of each record given up within the last hour; outlives the claims of a task."""
    apart_since: float | None = None
    """Since when suspects have been running while others wait."""
    rest_until: float = 0.0
    """Until when the others are run instead."""

    warm_at: float = 0.0
    """When the feed may warm up again."""
    is_idle: bool = False
    """Whether there was nothing to feed in the last turn."""

    @property
    def is_apart(self) -> bool:
        """Whether a suspect is being run."""
        return self.feed is not None and self.feed.apart is not None
