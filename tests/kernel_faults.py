"""The faults of a play of the kernel (`tests.kernel_play`), and the settings of a whole play."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standby.errors import CorruptState, Fenced, Transient, Unavailable
from standby.kernel.ports import WriterLost
from tests.memory_lab import WAYS, MemoryLab

FAULTS: Final = (
    "hand over",
    "hand over unannounced",
    "hand over one task",
    "prepare a hand-over",
    "claim again",
    "broker away",
    "records away",
    "restart the standby",
    "restart the active",
    "mend",
)

#: What may happen between two faults: without it, the next fault comes before the previous one was detected.
#: After some of them there is no more input.
QUIET: Final = ("get on", "rest")
PAUSES: Final = ("a moment", *QUIET)

#: What may be raised at each point of the kernel's work: every kind with its own treatment, and a bug.
ERRORS: Final = (WriterLost, Transient, Unavailable, CorruptState, Fenced, RuntimeError)

#: Points inside of a producer's commit: before it takes effect, and after it, when the outcome is not answered.
COMMITS: Final = ("before_commit", "after_commit")

#: What comes of errors.
Outcomes = Mapping[type[Exception], str]

#: What comes of an error: the way to active once more, or a query; an empty state; an end that is reported.
AGAIN: Final = "again"
ANEW: Final = "anew"
ENDS: Final = "ends"

#: The errors of which something else comes than an end, on the way to active, in a commit, in the replay, and in a
#: batch before and after its commits.
ON_THE_WAY: Final[Outcomes] = {WriterLost: AGAIN, Transient: AGAIN, CorruptState: ANEW}
IN_A_COMMIT: Final[Outcomes] = {WriterLost: AGAIN}
IN_THE_REPLAY: Final[Outcomes] = {CorruptState: ANEW}
IN_A_BATCH: Final[Outcomes] = dict.fromkeys(ERRORS, AGAIN)

#: The same at each call of a feed.
FEED_POINTS: Final = ("feed: look", "feed: start", "feed: warm")
FEED_ERRORS: Final = (Transient, CorruptState)

#: Where a producer may be lost, by the hook of the fake.
WRITES: Final = (
    "before_begin",
    "before_record",
    "after_begin",
    "before_offsets",
    "before_commit",
    "after_commit",
    "before_sweep",
)

#: What may time out: requests, and calls of a producer that take effect.
QUESTIONS: Final = (
    "committed",
    "ended",
    "stable_ends",
    "output_ends",
    "changelog_ends",
    "changelog_bounds",
    "commit_records",
    "is_visible",
    "input_bounds",
    "read_input",
    "ask_topic_ids",
    "initialise",
    "sweep",
)

#: The failures that a task may report if markers were omitted (docs/decisions/0016 and 0036).
ADMITTED: Final = (
    "what was committed to the changelog is lost",
    "outputs that were committed are not visible in",
    "so it is unknown whether it was committed",
    "they can only end alike, so state would be lost or doubled",
    "committed its input offsets, but its changelog has commits up to number",
)


@dataclass(frozen=True)
class Mine:
    """The next thread that passes this point is hit: in a batch, on the way to active, in a replay, or in a feed."""

    point: str
    error: type[Exception]
    thread: str = ""
    """Only threads whose names begin so are hit."""

    @property
    def told(self) -> str:
        """The error's text."""
        return f"a mine: {self.point}"

    def __repr__(self) -> str:
        return f"Mine({self.point!r}, {self.error.__name__})"


@dataclass(frozen=True)
class Lost:
    """The ``number``-th producer that reaches this point from now on is lost."""

    write: str
    number: int = 1


@dataclass(frozen=True)
class Unanswered:
    """The given number of requests of a kind time out."""

    question: str
    times: int


@dataclass(frozen=True)
class Crash:
    """A container's process ends, and the leader learns of it after the next fault."""

    is_active: bool
    lost: int
    """How many of the last writes to its disk are lost."""


@dataclass(frozen=True)
class Damage:
    """A batch of a task's partition cannot be read until a good replica leads."""

    topic: str
    task: int
    back: int
    """Its distance from the end."""
    records: int


@dataclass(frozen=True)
class LeftOut:
    """Kafka omits a task's next marker in some partitions."""

    task: int
    places: frozenset[str]
    lost: Lost | None = None
    """Where its producer is lost: in that transaction, or in a later one."""
    is_behind: bool = True


Fault = str | Mine | Lost | Unanswered | Crash | Damage | LeftOut


@dataclass(frozen=True)
class World:
    """The settings of a whole play."""

    inputs: str = "in"
    tasks: int = 2
    outputs: int = 0
    """The number of output partitions, shared by all tasks; 0: each task has its own."""
    on_error: str = "fail"
    may_lose: bool = False
    """Whether markers may be omitted: if records are lost by this, the task has to fail and say so."""

    def lab(self, directory: Path) -> MemoryLab:
        config = {
            "task.inputs": self.inputs,
            "task.on.error": self.on_error,
        }
        if self.may_lose:
            # Some minutes may pass for threads that wait for hanging transactions.
            config["task.progress.timeout.ms"] = "3600000"
        lab = MemoryLab(directory, self.tasks, **config)
        if self.may_lose:
            lab.clock.hurry(*WAYS)
        lab.kafka.output_partitions = self.outputs
        # So slow that a replica always lags: only the drain completes it.
        lab.kafka.read_limit = 5
        return lab
