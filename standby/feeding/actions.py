"""What feeding owes the world: imperative, frozen. Pure.

One that is answered is the last of its step: what follows it is decided when the answer is known.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standby.replica.failing import CodeError
from standby.replica.lifecycle import Signal
from standby.replica.store.overlay import Emitted
from standby.shared.model import Fault, GivenUp, InputFailures, Offsets, TaskId


class Level(enum.Enum):
    """How loudly something is said."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Note:
    """Say something in the log."""

    text: str
    level: Level = Level.WARNING


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Have the next turn come at once: there may be more to do."""


@dataclass(frozen=True, slots=True)
class EndTask:
    """Give a task up that is no member any more, and tell why: it goes on from there as its life's table says."""

    task: TaskId
    signal: Signal
    detail: str
    traceback: str = ""
    fault: Fault = Fault.OTHER


@dataclass(frozen=True, slots=True)
class Report:
    """Keep what a task's status is to say of its input from now on."""

    task: TaskId
    failures: InputFailures | None
    error: CodeError | None = None
    """The job's code, or a transaction, has failed once more; None: it has not."""
    is_awaited: bool = False
    """The status must be asked for before the task goes on."""
    is_told: bool = True
    """Whether it is told now; otherwise whenever somebody asks."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """Take note that less of the task's input is tried the next time: it gets on although its producer is lost."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class TellGivenUp:
    """Tell of input that was left out."""

    task: TaskId
    given_up: GivenUp


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Commit a task's offsets again, without waiting; what comes of it is seen at its next batch."""

    task: TaskId
    now_ms: int


@dataclass(frozen=True, slots=True)
class StopPrepared:
    """End what was prepared."""


@dataclass(frozen=True, slots=True)
class StopFeed:
    """End the query; a batch that is under way is waited for. Answered by `FeedStopped`."""


@dataclass(frozen=True, slots=True)
class StartFeed:
    """Begin a query; answered by `FeedStarted` or `StartFailed`."""

    positions: Mapping[TaskId, Offsets]
    until: Mapping[TaskId, Offsets] | None = None
    """Where it ends; None: it goes on."""
    is_smaller: bool = False
    """Whether its batches are to be much smaller than they were."""


@dataclass(frozen=True, slots=True)
class AskInput:
    """Ask where a task's input begins and ends; answered by `InputTold`, `InputChanged` or `Unanswered`."""

    task: TaskId
    checks_topics: bool = False
    """Whether it is asked before if the topics are still those of the run."""


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read one record of a task's input; answered by `RecordRead` or `Unanswered`."""

    task: TaskId
    topic: str
    offset: int


@dataclass(frozen=True, slots=True)
class CommitPast:
    """Commit that a task's input up to ``end`` is left out; answered by `PastCommitted` or `PastFailed`.

    `Unanswered` when it was not even begun.
    """

    task: TaskId
    start: Offsets
    end: Offsets
    letters: Sequence[Emitted] = ()


@dataclass(frozen=True, slots=True)
class AskPositions:
    """Ask how far the present actives of tasks have come; answered by `PositionsTold` or `Unanswered`."""

    tasks: frozenset[TaskId]
    is_exact: bool = False
    """Whether Kafka is asked; otherwise the standbys tell what they have replayed."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have the feed do ahead what a start at these positions will have to do.

    Answered by `FeedPrepared` or `Unanswered`.
    """

    positions: Mapping[TaskId, Offsets]
    is_near: bool
    is_anew: bool = False
    """Whether what was prepared is ended before."""


@dataclass(frozen=True, slots=True)
class Warm:
    """Do something for the feed's warmth; answered by `Warmed`."""


#: Those that are answered.
Question = StopFeed | StartFeed | AskInput | ReadRecord | CommitPast | AskPositions | Prepare | Warm

Action = Note | LookAgain | EndTask | Report | Narrow | TellGivenUp | Reclaim | StopPrepared | Question
