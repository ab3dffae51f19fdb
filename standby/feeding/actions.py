"""The actions of feeding: imperative, frozen. Pure.

An action with an answer is the last one of its step: what follows is decided when the answer is known.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standby.replica.failing import CodeError
from standby.replica.lifecycle import Signal
from standby.replica.outbox import Emitted
from standby.shared.model import Fault, GivenUp, InputFailures, Offsets, TaskId


class Level(enum.Enum):
    """The level of a log line."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class WriteLog:
    """Write a log line."""

    text: str
    level: Level = Level.WARNING


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Run the next turn at once: there may be more to do."""


@dataclass(frozen=True, slots=True)
class EndTask:
    """Abandon a task that is no longer a member, and signal the reason to its lifecycle."""

    task: TaskId
    signal: Signal
    detail: str
    traceback: str = ""
    fault: Fault = Fault.OTHER


@dataclass(frozen=True, slots=True)
class SetInputStatus:
    """Set what a task's status reports about its input from now on."""

    task: TaskId
    failures: InputFailures | None
    error: CodeError | None = None
    """Another failure of the job's code, or of a transaction; None: there was none."""
    is_at_once: bool = True
    """Whether to report it now; otherwise with the next regular report."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """Record that the next attempt uses less of the task's input: losing its producer counts as progress then."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class TellGivenUp:
    """Report input that was given up."""

    task: TaskId
    given_up: GivenUp


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Commit a task's offsets again, without waiting; the outcome shows at its next batch."""

    task: TaskId
    now_ms: int


@dataclass(frozen=True, slots=True)
class StopFeed:
    """End the feed after a running batch. Answered by `FeedStopped`."""


@dataclass(frozen=True, slots=True)
class StartFeed:
    """Start the feed; answered by `FeedStarted` or `StartFailed`."""

    positions: Mapping[TaskId, Offsets]
    until: Mapping[TaskId, Offsets] | None = None
    """Where the feed ends; None: it does not end."""
    is_smaller: bool = False
    """Whether its batches must be much smaller than before."""


@dataclass(frozen=True, slots=True)
class AskInput:
    """Request the bounds of a task's input; answered by `BoundsFound`, `InputChanged` or `Unanswered`."""

    task: TaskId
    checks_topics: bool = False
    """Whether to check first that the topics are still those of the run."""


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read one record of a task's input; answered by `RecordRead` or `Unanswered`."""

    task: TaskId
    topic: str
    offset: int


@dataclass(frozen=True, slots=True)
class CommitPast:
    """Commit that a task's input up to ``end`` is skipped; answered by `PastCommitted` or `PastFailed`.

    Answered by `Unanswered` when the commit was not even started.
    """

    task: TaskId
    start: Offsets
    end: Offsets
    letters: Sequence[Emitted] = ()


@dataclass(frozen=True, slots=True)
class Warm:
    """Warm up the feed; answered by `Warmed`."""


#: Actions with an answer.
FeedingQuestion = StopFeed | StartFeed | AskInput | ReadRecord | CommitPast | Warm

FeedingAction = (
    WriteLog | LookAgain | EndTask | SetInputStatus | Narrow | TellGivenUp | Reclaim | FeedingQuestion
)
