"""The events of feeding active tasks: past tense, frozen. Pure.

Only `Observed` carries the time. The pipeline's thread sends one before every other event, so each decision is based
on the current situation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standby.feeding.state import FeedFailure, FeedMember, Outlook
from standby.replica.failing import CodeError, InputRecord
from standby.replica.lifecycle import Signal
from standby.shared.model import Fault, Offsets, TaskId


@dataclass(frozen=True, slots=True)
class SeenMember:
    """The part of a member that changes by itself."""

    committed: Offsets
    last_commit_ms: int
    is_reported: bool
    """`FeedMember.is_reported`."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The current situation; the fields are those of `standby.feeding.state.FeedingState`."""

    now: float
    now_ms: int
    members: Mapping[TaskId, SeenMember]
    commits: int
    is_delivering: bool
    is_awaited: bool
    input_ends: Mapping[int, int | None]
    outlook: Outlook


@dataclass(frozen=True, slots=True)
class Joined:
    """A task was claimed, and is to be fed from its committed offsets on."""

    member: FeedMember


@dataclass(frozen=True, slots=True)
class Left:
    """A task is no longer to be fed."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing is to be fed any more."""


@dataclass(frozen=True, slots=True)
class CodeRefused:
    """No feed can be made from the job's code."""

    detail: str
    traceback: str
    fault: Fault = Fault.REFUSED


@dataclass(frozen=True, slots=True)
class FailedInput:
    """The input that caused the failure of a task's part of a batch."""

    end: Offsets
    """It begins at the committed offsets."""
    error: CodeError
    is_code: bool
    """Whether the job's code failed on it; otherwise the transaction failed due to its content."""
    may_pass: bool = False
    """Whether the same transaction may succeed next time, because it was small."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One task's part of a batch failed; the others' parts may be committed."""

    task: TaskId
    signal: Signal
    detail: str
    traceback: str = ""
    """Where the job's code raised the error; empty: the job's code is not the cause."""
    fault: Fault = Fault.OTHER
    of: FailedInput | None = None
    """None: the input is not the cause."""


@dataclass(frozen=True, slots=True)
class FeedEnded:
    """The feed ended by itself, and is stopped."""

    failure: FeedFailure
    failed: tuple[TaskFailure, ...]
    """Of its batches."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A running feed may silently stop delivering; time to check that it delivers."""


@dataclass(frozen=True, slots=True)
class Turned:
    """All pending events have been handled: time to proceed."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """Everything due is done: time for work that can wait."""


# ---- answers ----


@dataclass(frozen=True, slots=True)
class FeedStopped:
    """`standby.feeding.actions.StopFeed` is done."""

    failed: tuple[TaskFailure, ...]
    """Of its batches."""


@dataclass(frozen=True, slots=True)
class FeedStarted:
    """The feed is running."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The feed could not be started."""

    failure: FeedFailure


@dataclass(frozen=True, slots=True)
class BoundsFound:
    """The bounds of a task's partition of each input."""

    bounds: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class InputChanged:
    """A topic is not the topic of the run any more."""

    detail: str


@dataclass(frozen=True, slots=True)
class RecordRead:
    """A record of the input was read."""

    record: InputRecord | None
    """None: there is no record at this offset."""


@dataclass(frozen=True, slots=True)
class PastCommitted:
    """Skipped input was committed."""


@dataclass(frozen=True, slots=True)
class PastFailed:
    """The commit failed, or its outcome is unknown."""

    failure: TaskFailure


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request has no answer at present, or could not be executed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Warmed:
    """The feed is warmed up for now."""


FeedingAnswer = (
    FeedStopped | BoundsFound | InputChanged | RecordRead | PastCommitted | PastFailed | Unanswered
)

FeedingEvent = (
    Observed
    | Joined
    | Left
    | Closed
    | CodeRefused
    | FeedEnded
    | Watched
    | Turned
    | TurnEnded
    | FeedStarted
    | StartFailed
    | Warmed
    | FeedingAnswer
)
