"""Ports inside a container, between its control loop, kernel and feeds.

Each port has a real adapter and a fake or plain one, and one contract suite that both pass
(`tests/contracts`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from standby.errors import Transient
from standby.shared.model import Offsets, ReplicaId, ReplicaStatus, TaskId, TaskRecord, Wanted
from standby.shared.peers import PeerAddress
from standby.shared.wire import JobDefinition

if TYPE_CHECKING:
    import pyarrow as pa

    from standby.config import JobConfig


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """The part of a micro-batch that belongs to one task."""

    task: TaskId
    start: Offsets
    """The first input offsets: the task's committed ones."""
    end: Offsets
    """The input offsets after the last ones: none lower than in `start`, and at least one higher."""
    rows: pa.Table
    """The transformed records in [start, end), sorted by ``_offset``; may be empty.

    With several inputs, each topic's rows are in this order, and merged by ``timestamp`` (`standby.feed.batches`)."""


#: Called on the feed's own thread with all tasks of a micro-batch that have new input. It returns
#: only when each of them has committed exactly [start, end); any exception ends the feed (rule `whole-batch`).
Deliver = Callable[[tuple[TaskBatch, ...]], None]


class InputAway(Transient):
    """Some of the partitions of a feed are unavailable, for example without a leader."""

    def __init__(self, message: str, partitions: Collection[int]) -> None:
        """``partitions`` are their numbers, and therefore those of the tasks that cannot be fed now."""
        super().__init__(message)
        self.partitions = frozenset(partitions)


class StartCalledOff(Transient):
    """A start of a feed that waited was called off, so that something else can be done first."""


class UnreadableRecord(Exception):
    """A record of the input cannot be read or decoded; the message identifies it.

    Not a `StandfastError`: `task.on.error` decides, as when the job's code fails on a record.
    """

    def __init__(self, message: str, batch: int | None = None) -> None:
        """``batch`` is the first offset of the unreadable batch of the log; None: only the record is unreadable."""
        super().__init__(message)
        self.batch = batch


class Feed(Protocol):
    """Reads the input of the active tasks of one processor in micro-batches.

    A feed is started with committed offsets and stores none itself: after any failure it is restarted from the
    committed offsets. All methods are called from one thread, never from ``deliver``.
    """

    def warm(self) -> None:
        """Warm up, so that the next `start` is fast. Blocks; `cancel_warm` interrupts it."""
        ...

    def cancel_warm(self) -> None:
        """Make a running `warm` return soon. Thread-safe."""
        ...

    @property
    def is_warm(self) -> bool:
        """Whether a `start` now would not wait for class loading or compilation."""
        ...

    def expect(self, tasks: Collection[TaskId]) -> None:
        """Begin with what takes time before a `start` with these tasks, which are becoming active.

        Does not wait. A `start` may come without it, or not come. Thread-safe.
        """
        ...

    @property
    def start_seconds(self) -> float | None:
        """Time from a `start` to its first batch, as last measured; None: not known. Thread-safe."""
        ...

    def start(
        self,
        positions: Mapping[TaskId, Offsets],
        deliver: Deliver,
        until: Mapping[TaskId, Offsets] | None = None,
    ) -> None:
        """Start reading each task's partition of every input at its position; return once the feed is running.

        With ``until``, for the same tasks, nothing at or after those offsets is read or passed to the job's
        transform, and the feed ends by itself, without a failure, once everything before them is delivered. They
        must not be after the end of the input.

        Raises `Transient` when the input cannot be read now, `InputAway` when this is the case for some of the
        partitions only, and `CorruptState` when a position is outside of the partition (the caller decides what to
        do then). Raises `StartCalledOff` after `cancel_start`.
        """
        ...

    def cancel_start(self) -> None:
        """Make a `start` that waits, for example for a JVM, raise `StartCalledOff` soon: this one or the next.

        What it waits for continues. Thread-safe.
        """
        ...

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the feed has ended, at most for the time-out; return whether it has."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended the feed: raised by ``deliver``, or the feed's own; None while it is running.

        `InputAway` when only some of the partitions have become unavailable.
        """
        ...

    def shrink(self) -> None:
        """Make the batches of the next `start` much smaller, because the results of one were too large.

        They grow again while they succeed.
        """
        ...

    def stop(self) -> None:
        """Stop the feed after a batch in ``deliver`` has ended. No effect when it is not running."""
        ...

    def close(self) -> None:
        """Stop permanently, and free the feed's resources."""
        ...

    @property
    def child_pids(self) -> tuple[int, ...]:
        """Child processes (the JVM); the container must end when one of them dies."""
        ...

    @property
    def has_run_in_child(self) -> bool:
        """Whether a child process has run the job's code on input of the feed since its start. Thread-safe."""
        ...

    @property
    def is_lending(self) -> bool:
        """Whether `lend` would be quick now. It does not matter whether the feed is running. Thread-safe."""
        ...

    def lend(self, rows: bytes) -> bytes:
        """Run the job's transform over rows of another container, and return the result. Thread-safe.

        Both are Arrow IPC streams. Raises `NotLent` when the rows cannot be taken now; any other error may be due to
        them, whether it is `Transient` or one of the job's code.
        """
        ...


@dataclass(frozen=True, slots=True)
class LentTransform:
    """A job's transform that is run for other containers."""

    run: Callable[[bytes], bytes]
    """`Feed.lend`."""
    is_idle: bool
    """Whether this container has no actives, which need it themselves."""


class TransformLender(Protocol):
    """Another container that runs the job's transform over rows of this one; used from one thread.

    It has the same run and revision of the job, so the same code and settings.
    """

    def run(self, rows: bytes) -> bytes:
        """Return the transformed rows; both are Arrow IPC streams.

        Raises `PeerRefused` for its refusal: soon when it has nothing to do with the rows. When it goes away or does
        not answer in time while it has the rows, raises another `Transient`.
        """
        ...

    def interrupt(self) -> None:
        """Make the current and all later calls fail. Thread-safe; does not wait."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


#: Returns a container that lends the transform now, for a feed of these tasks; None: there is none.
FindLender = Callable[[Collection[TaskId]], TransformLender | None]


def find_nobody(tasks: Collection[TaskId]) -> None:
    """Return None: there is no lender."""
    del tasks


class RecordReader(Protocol):
    """Reads task records for takeovers (rule `one-way`)."""

    def read(self, task: TaskId) -> TaskRecord | None:
        """Return the task's current record in the ZooKeeper ensemble (synced); None when there is none.

        Raises `Transient` when it cannot be read now.
        """
        ...


class NotLent(Transient):
    """A transform is not lent now, for a reason that has nothing to do with the rows."""


class PeerRefused(Transient):
    """A peer refuses a request."""

    def __init__(self, message: str, *, is_soon: bool = False) -> None:
        super().__init__(message)
        self.is_soon = is_soon
        """Whether the peer may accept it soon: it is busy, or almost ready."""


class PeerDirectory(Protocol):
    """Finds the addresses of containers for their peers."""

    def find(self, container: str) -> PeerAddress | None:
        """Return the address of a registered container; None when no container with this id is registered.

        Raises `Transient` when it cannot be read now.
        """
        ...


class Replicas(Protocol):
    """The kernel's interface for the container's control loop: nothing here blocks (rule `never-block`).

    Work is done on the kernel's own threads; `statuses` shows the results, and `on_change` (a constructor argument)
    is called, from any thread, whenever a phase has changed.
    """

    def obey(self, assignment: tuple[Wanted, ...], jobs: Mapping[str, JobDefinition]) -> None:
        """Make ``assignment`` the complete set of replicas: open, promote, demote and close replicas as needed.

        Idempotent; epochs below a replica's own are ignored. Other replicas are closed. Definitions of the same run
        and revision are equivalent; one of another revision than the loaded one is ignored.
        """
        ...

    def statuses(self) -> Mapping[ReplicaId, ReplicaStatus]:
        """Return the current status of every replica held, including closed ones until the next `obey`."""
        ...

    def note_reported(self, statuses: tuple[ReplicaStatus, ...]) -> None:
        """Record that a report with these statuses has left the process: its end does not undo that. Thread-safe."""
        ...

    @property
    def is_warm(self) -> bool:
        """Whether a promotion would find a warm pipeline now."""
        ...

    @property
    def revisions(self) -> Mapping[str, int]:
        """Job → revision that this process has loaded, which is the only one that it can run."""
        ...

    @property
    def broken(self) -> str | None:
        """Why the whole container must end (a dead JVM, a hanging revoke); None while it need not."""
        ...

    def close(self, deadline_seconds: float) -> bool:
        """Close everything within the deadline; return whether that succeeded."""
        ...


#: Builds the feed of one processor: called on the pipeline's thread when the first replica arrives.
MakeFeed = Callable[["JobConfig", JobDefinition], Feed]
