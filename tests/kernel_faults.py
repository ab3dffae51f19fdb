"""What may go wrong in a play of the kernel (`tests.kernel_play`), and what holds for the whole of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standby.errors import CorruptState, Fenced, Transient, Unavailable
from standby.kernel.ports import WriterLost
from tests.memory_lab import WAYS, MemoryLab

FAULTS: Final = (
    "hand over",
    "hand over untold",
    "hand over one task",
    "prepare a hand-over",
    "claim again",
    "broker away",
    "records away",
    "restart the standby",
    "restart the active",
    "mend",
)

#: What may lie between faults: without any of it the next one comes before anybody has noticed the one before. Behind
#: some there is no more input.
QUIET: Final = ("get on", "rest")
PAUSES: Final = ("a moment", *QUIET)

#: What may be raised at each point of the kernel's work: every kind that is treated in a way of its own, and a bug.
ERRORS: Final = (WriterLost, Transient, Unavailable, CorruptState, Fenced, RuntimeError)

#: And at each call of a feed.
FEED_POINTS: Final = ("feed: look", "feed: prepare", "feed: start")
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

#: What may have no answer in time: questions, and calls of a producer that take effect.
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

#: What a task may fail with where markers were left out (docs/decisions/0016 and 0036).
ADMITTED: Final = (
    "what was committed to the changelog is lost",
    "outputs that were committed are not to be seen in",
    "so nobody knows whether it was committed",
    "they can only end alike, so state would be lost or doubled",
    "committed its input offsets, and its changelog has commits up to number",
)


@dataclass(frozen=True)
class Mine:
    """Whoever passes there next is hit: in a batch, on the way to active, in a replay, or in a feed."""

    point: str
    error: type[Exception]

    def __repr__(self) -> str:
        return f"Mine({self.point!r}, {self.error.__name__})"


@dataclass(frozen=True)
class Lost:
    """The producer that comes there as the ``number``-th one from now on is lost."""

    write: str
    number: int = 1


@dataclass(frozen=True)
class Unanswered:
    """So many questions of a kind have no answer in time."""

    question: str
    times: int


@dataclass(frozen=True)
class Crash:
    """A container's process ends, and the leader hears of it after the next fault."""

    is_active: bool
    lost: int
    """How many of the last writes to its disk are gone."""


@dataclass(frozen=True)
class Damage:
    """A batch of a task's partition cannot be read until a good replica leads."""

    topic: str
    task: int
    back: int
    """How far before the end it begins."""
    records: int


@dataclass(frozen=True)
class LeftOut:
    """Kafka leaves a task's next marker out in some partitions."""

    task: int
    places: frozenset[str]
    lost: Lost | None = None
    """Where its producer is lost: in that transaction, or in one behind it."""
    is_behind: bool = True


Fault = str | Mine | Lost | Unanswered | Crash | Damage | LeftOut


@dataclass(frozen=True)
class World:
    """What is the same for a whole play."""

    inputs: str = "in"
    query: str = "warm"
    tasks: int = 2
    outputs: int = 0
    """So many partitions has the output, shared by all tasks; 0: each task has its own."""
    on_error: str = "fail"
    may_lose: bool = False
    """Whether markers may be left out: something may be lost by that, and then the task has to fail and say so."""

    def lab(self, directory: Path) -> MemoryLab:
        config = {
            "task.inputs": self.inputs,
            "job.hotstandby.query": self.query,
            "task.on.error": self.on_error,
        }
        if self.may_lose:
            # Some minutes may pass for who waits for what hangs.
            config["task.progress.timeout.ms"] = "3600000"
        lab = MemoryLab(directory, self.tasks, **config)
        if self.may_lose:
            lab.clock.hurry(*WAYS)
        lab.kafka.output_partitions = self.outputs
        # So slow that a replica always lags behind: only the drain makes it whole.
        lab.kafka.read_limit = 5
        return lab
