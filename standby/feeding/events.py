"""What can happen while active tasks are fed, as the core learns of it: past tense, frozen. Pure.

Of these `Observed` alone carries the time. The pipeline's thread lets one precede every other event, so each decision
is made on how things stand at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standby.feeding.state import FeedFailure, Member, Outlook
from standby.replica.failing import CodeError, InputRecord
from standby.replica.lifecycle import Signal
from standby.shared.model import Fault, Offsets, TaskId


@dataclass(frozen=True, slots=True)
class SeenMember:
    """What of a member changes by itself."""

    committed: Offsets
    last_commit_ms: int
    is_reported: bool


@dataclass(frozen=True, slots=True)
class Observed:
    """This is how things stand; the fields are those of `standby.feeding.state.FeedingState`."""

    now: float
    now_ms: int
    members: Mapping[TaskId, SeenMember]
    commits: int
    is_delivering: bool
    is_awaited: bool
    is_warm: bool
    is_prepared: bool
    input_ends: Mapping[int, int | None]
    outlook: Outlook


@dataclass(frozen=True, slots=True)
class Joined:
    """A task was claimed and is to be fed from its committed offsets on."""

    member: Member


@dataclass(frozen=True, slots=True)
class Left:
    """A task is to be fed no longer."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing is to be fed any more."""


@dataclass(frozen=True, slots=True)
class CodeRefused:
    """No feed can be made with the job's code."""

    detail: str
    traceback: str


@dataclass(frozen=True, slots=True)
class FailedInput:
    """The input that a task's part of a batch failed of."""

    end: Offsets
    """It begins at the committed offsets."""
    error: CodeError
    is_code: bool
    """Whether the job's code failed on it; otherwise the transaction did of what was in it."""
    may_pass: bool = False
    """Whether the same transaction may well go the next time: it was not much."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One task's part of a batch failed; the others' parts may be committed."""

    task: TaskId
    signal: Signal
    detail: str
    traceback: str = ""
    """Where the job's code raised what the task failed of; empty: it was not the job's code."""
    fault: Fault = Fault.OTHER
    of: FailedInput | None = None
    """None: it is not put down to its input."""


@dataclass(frozen=True, slots=True)
class FeedEnded:
    """The feed ended by itself, and is stopped."""

    failure: FeedFailure
    failed: tuple[TaskFailure, ...]
    """Of its batches."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A query runs that may go deaf: it is time to see whether it brings something."""


@dataclass(frozen=True, slots=True)
class Turned:
    """Everything that had happened is told: it is time to go on."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """What was due is done: it is time for what may wait."""


# ---- answers ----


@dataclass(frozen=True, slots=True)
class FeedStopped:
    """`standby.feeding.actions.StopFeed` is done."""

    failed: tuple[TaskFailure, ...]
    """Of its batches."""


@dataclass(frozen=True, slots=True)
class FeedStarted:
    """The query runs."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The query does not run."""

    failure: FeedFailure


@dataclass(frozen=True, slots=True)
class InputTold:
    """Where a task's partition begins and ends, of each input."""

    bounds: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class InputChanged:
    """A topic is another one than that of the run."""

    detail: str


@dataclass(frozen=True, slots=True)
class RecordRead:
    """A record of the input was read."""

    record: InputRecord | None
    """None: there is none at this offset."""


@dataclass(frozen=True, slots=True)
class PastCommitted:
    """Input was left out, and that is committed."""


@dataclass(frozen=True, slots=True)
class PastFailed:
    """It is not committed, or it is not known whether it is."""

    failure: TaskFailure


@dataclass(frozen=True, slots=True)
class PositionsTold:
    """So far the present actives have come, as far as they are known."""

    positions: Mapping[TaskId, Offsets]


@dataclass(frozen=True, slots=True)
class FeedPrepared:
    """The feed does ahead what was asked."""

    has_begun: bool
    """Whether it had to be begun; otherwise it went on."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """What was asked for has no answer now, or could not be done."""

    told: str


@dataclass(frozen=True, slots=True)
class Warmed:
    """What can be done for the feed's warmth is done, for now."""


Answer = (
    FeedStopped
    | InputTold
    | InputChanged
    | RecordRead
    | PastCommitted
    | PastFailed
    | PositionsTold
    | FeedPrepared
    | Unanswered
)

Event = (
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
    | Answer
)
