"""What feeding a processor's active tasks knows: one frozen value. Pure.

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

#: A hot query is looked at so often; each look costs the plan of a micro-batch, and every other one a batch.
SLOWEST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What the job's configuration says."""

    errors: ErrorPolicy
    may_skip_lost: bool = False
    """Whether input that was deleted before it was processed is left out (`task.input.lost`)."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The job's input topics."""
        return self.errors.topics


@dataclass(frozen=True, slots=True)
class Member:
    """An active task that is fed, or is to be."""

    task: TaskId
    number: int
    """Which active of the task it is: one that comes back is another one."""
    epoch: int
    committed: Offsets
    last_commit_ms: int
    failures: InputFailures | None = None
    """What is reported of it."""
    is_reported: bool = False
    """Whether its status was asked for since it joined, or since that was last waited for."""

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
    """What is to come, as the container's conductor announces it."""

    expected: frozenset[TaskId] = frozenset()
    """All that have joined or are on their way."""
    quiet_until: float = 0.0
    """Nothing is warmed up before: a task that set out to become active will have arrived by then, as a rule."""
    next: frozenset[TaskId] = frozenset()
    """Standbys that will be made active in a moment, as planned."""
    hot: frozenset[TaskId] = frozenset()
    """Standbys whose query is to run ahead all the time."""
    settled_at: float = 0.0
    """When the hot ones will have stayed the same for a while."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is done ahead for standbys."""

    prepared: frozenset[TaskId] = frozenset()
    """For whom."""
    due_at: float = 0.0
    """When it is looked at next."""
    pace_seconds: float = field(default_factory=lambda: SLOWEST_SECONDS)
    """How often a hot query goes on."""
    begins: int = 0
    """How many hot queries in a row were begun, none of which came to be of use."""
    positions: Mapping[TaskId, Offsets] = field(default_factory=dict)
    """How far it has come."""
    is_known: bool = True
    """Whether there is an active of each task, as far as was looked."""
    moved_at: float = 0.0
    """When the positions last changed."""


class Letter(enum.Enum):
    """What of a record is written to `task.dead.letter`."""

    WHOLE = "written to {}"
    SHORT = "written to {}, cut short"
    NONE = "left out; {} refuses even its place"


LETTERS: Final = (Letter.WHOLE, Letter.SHORT, Letter.NONE)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a task whose input must be run apart from the others'."""

    suspect: Suspect
    due_at: float
    """When its next move is due."""
    route: Route | None = None
    """The order of its inputs; None: not settled yet, because where they end was not asked."""
    is_waiting_for_report: bool = False
    """The leader is to know of its offset first: what comes may end the process (rule `fair-blame`)."""
    letters: tuple[Letter, ...] = LETTERS
    """What is tried in turn as the dead letter of its next record, without what Kafka has refused for its size."""
    unreadable: tuple[str, int] | None = None
    """An input, and the offset up to which none of its records can be read: they are given up without being run."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a task stands whose input goes further."""

    position: int
    since: float
    patience_seconds: float


@dataclass(frozen=True, slots=True)
class Apart:
    """A suspected task that is run alone, and which of its input."""

    task: TaskId
    start: Offsets
    until: Offsets


@dataclass(frozen=True, slots=True)
class Query:
    """A feed that was started, and for whom."""

    members: Mapping[TaskId, int]
    """The number of each member."""
    commits: int
    """How many batches of tasks had been committed by then: whether there is progress."""
    apart: Apart | None = None


class Cause(enum.Enum):
    """What ended a feed, by what is done about it."""

    BY_ITSELF = "by itself"
    """It ended without a failure."""
    AWAY = "away"
    """Nobody answers for some of the input."""
    TRANSIENT = "transient"
    OUTSIDE = "outside"
    """Committed offsets may be outside of the input."""
    CODE = "code"
    """The job's transform failed on some row."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FeedFailure:
    """Why a feed ended, or was not started."""

    cause: Cause
    told: str
    """In one line."""
    detail: str = "it ended by itself"
    """What is told of tasks that end of it."""
    traceback: str = ""
    story: str = "by itself"
    """What goes to the log: with where it was raised, unless that is of no interest."""
    error: CodeError | None = None
    """What is reported of it as an error of the job's code, if it is one."""
    partitions: frozenset[int] = frozenset()
    """Those for which nobody answers."""

    @property
    def may_pass(self) -> bool:
        """Whether it may well go the next time, however often it has failed."""
        return self.cause in (Cause.AWAY, Cause.TRANSIENT)


# ---- what an answer is waited for ----


@dataclass(frozen=True, slots=True)
class Ending:
    """The feed is being stopped, and nothing follows."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The feed is being stopped, so that another query can begin."""

    apart: Apart | None = None
    """The task that it is for alone; None: all that are fed together."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Where a suspect's input ends is being asked."""

    task: TaskId
    until: int | None
    """The position up to which it is to be run; None: its next record is given up."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A record that is given up is being read."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class GivingUp:
    """What lies beyond a record is being committed."""

    task: TaskId
    is_there: bool
    """Whether there is a record at all; otherwise it was compacted away, or is a transaction's marker."""
    topic: str
    offset: int
    form: Letter
    has_letter: bool
    told: str
    """Where the code failed, and with what."""
    recent: tuple[int, ...]
    """Unix milliseconds of those given up within the last hour."""
    now_ms: int


@dataclass(frozen=True, slots=True)
class Settling:
    """Committed offsets are being held against what the input still has."""

    todo: tuple[TaskId, ...]
    """The first one is being asked for."""
    members: Mapping[TaskId, int]
    failure: FeedFailure
    found: bool = False
    """Whether any were outside."""


@dataclass(frozen=True, slots=True)
class Skipping:
    """What lies beyond input that was deleted is being committed."""

    settling: Settling
    inside: Offsets
    lost: tuple[GivenUp, ...]
    told: str


@dataclass(frozen=True, slots=True)
class Finding:
    """How far the present actives have come is being asked."""

    tasks: frozenset[TaskId]
    is_planned: bool


@dataclass(frozen=True, slots=True)
class Following:
    """A prepared query is being begun, or let go on."""

    is_planned: bool
    is_new: bool
    moved: int
    """By how many offsets."""


@dataclass(frozen=True, slots=True)
class Nearing:
    """How far the present actives have come is being asked, for tasks that are on their way to active."""


@dataclass(frozen=True, slots=True)
class Hurrying:
    """What was prepared for tasks that are on their way to active is being let go on."""


Doing = (
    Ending
    | Beginning
    | Routing
    | Reading
    | GivingUp
    | Settling
    | Skipping
    | Finding
    | Following
    | Nearing
    | Hurrying
)


@dataclass(frozen=True, slots=True)
class FeedingState:
    """All that the next decision depends on."""

    policy: Policy
    now: float = 0.0
    now_ms: int = 0
    """Unix milliseconds."""
    commits: int = 0
    """How many batches of tasks were committed until now."""
    is_delivering: bool = False
    """Whether a batch of the query is being processed."""
    is_awaited: bool = False
    """Whether somebody waits for the pipeline."""
    is_warm: bool = False
    """Whether a start of the feed would be quick."""
    is_prepared: bool = False
    """Whether everything is done that the feed was told to do ahead."""
    input_ends: Mapping[int, int | None] = field(default_factory=dict)
    """Where the members' partitions of the input end; None, or missing: not known."""
    outlook: Outlook = field(default_factory=Outlook)

    members: Mapping[TaskId, Member] = field(default_factory=dict)
    query: Query | None = None
    doing: Doing | None = None
    """What is being done, of which an answer is to come; None: nothing."""

    gather_until: float = 0.0
    """Those that have joined wait so long for those on their way."""
    retry_at: float = 0.0
    """Before this time the feed is not started again."""
    failures: int = 0
    """Failures of the feed in a row, with no commit in between."""
    is_too_long: bool = False
    """Whether a transaction ran out of time, and the feed was not told yet to bring less."""
    late_at: Mapping[TaskId, int] = field(default_factory=dict)
    """The positions at which transactions ran out of time last."""
    held_up: Mapping[TaskId, float] = field(default_factory=dict)
    """Tasks that a feed could not be started with → the time before which it is not tried again."""
    standing: Mapping[TaskId, Standing] = field(default_factory=dict)

    suspects: Mapping[TaskId, Known] = field(default_factory=dict)
    """Members whose input is run apart."""
    kept: Mapping[TaskId, Known] = field(default_factory=dict)
    """What is known of tasks whose transaction failed of what was in it, until they join again."""
    given_up_ms: Mapping[TaskId, tuple[int, ...]] = field(default_factory=dict)
    """Unix milliseconds of each record given up within the last hour; outlives the claims of a task."""
    apart_since: float | None = None
    """Since when suspects are run while others wait."""
    rest_until: float = 0.0
    """Until when the others are run instead."""

    preparation: Preparation = field(default_factory=Preparation)
    warm_at: float = 0.0
    """When the feed may do something for its warmth again."""
    is_idle: bool = False
    """Whether the last turn found nobody to feed."""

    @property
    def is_apart(self) -> bool:
        """Whether a suspect is being run."""
        return self.query is not None and self.query.apart is not None
