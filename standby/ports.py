"""The seams inside a container: what its control loop, kernel and feeds ask of each other.

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
    """First input offsets it covers: the task's committed ones."""
    end: Offsets
    """The input offsets after the last ones it covers: none lower than in `start`, and one at least higher."""
    rows: pa.Table
    """What the job's transform made of the records in [start, end), by rising ``_offset``; may be empty.

    With several inputs each topic's rows are in this order, and merged by ``timestamp``: `standby.feed.batches`."""


#: Called on the feed's own thread with all tasks of a micro-batch that have new input. It returns
#: only when each of them has committed exactly [start, end); any exception ends the feed (rule `whole-batch`).
Deliver = Callable[[tuple[TaskBatch, ...]], None]


class InputAway(Transient):
    """Nobody answers for some of the partitions that a feed is to read, as for those without a leader."""

    def __init__(self, message: str, partitions: Collection[int]) -> None:
        """``partitions`` are their numbers, and so those of the tasks that cannot be fed now."""
        super().__init__(message)
        self.partitions = frozenset(partitions)


class UnreadableRecord(Exception):
    """A record of the input cannot be read or decoded, whatever is done with it then; the message says which one.

    It is no `StandfastError`: `task.on.error` decides, as where the job's own code fails on a record.
    """

    def __init__(self, message: str, batch: int | None = None) -> None:
        """``batch`` is the first offset of the log's batch that cannot be read; None: the record alone cannot."""
        super().__init__(message)
        self.batch = batch


class Feed(Protocol):
    """Reads the input of the active tasks of one processor in micro-batches.

    A feed is started with committed offsets and keeps none itself: after any failure it is started
    again from what is committed. All methods are called from one thread, never from ``deliver``.
    """

    def warm(self) -> None:
        """Do once, or again, what makes the next `start` quick. Blocks; `cancel_warm` cuts it short."""
        ...

    def cancel_warm(self) -> None:
        """Make a running `warm` return soon; may be called from any thread."""
        ...

    @property
    def is_warm(self) -> bool:
        """Whether a `start` now would not wait for class loading or compilation."""
        ...

    def prepare(self, positions: Mapping[TaskId, Offsets], *, is_near: bool = True) -> bool:
        """Do ahead what a `start` of these tasks, at these positions or somewhat later ones, will have to do.

        Delivers nothing; `is_prepared` tells when that is done, the next `start` or `stop` ends it. To be
        repeated with newer positions: what was prepared follows them as long as it is still of use. Returns
        whether it had to be begun: what was prepared before, if anything was, had ended or was of no use.
        A start that is not ``is_near`` may be hours ahead, or never come: then little is spent on being ready.
        Raises as `start`.
        """
        ...

    @property
    def is_prepared(self) -> bool:
        """Whether everything that `prepare` began is done; from any thread."""
        ...

    @property
    def start_seconds(self) -> float | None:
        """What a `start` now would take until its first batch, as measured last; None: not known. From any thread."""
        ...

    def start(
        self,
        positions: Mapping[TaskId, Offsets],
        deliver: Deliver,
        until: Mapping[TaskId, Offsets] | None = None,
    ) -> None:
        """Begin to read each task's partition of every input at its position; returns once the query runs.

        With ``until``, which names the same tasks, nothing at or behind those offsets is read or given to the
        job's transform, and the feed ends by itself, without a failure, once everything before them is
        delivered. They must not be past the end of the input.

        Raises `Transient` when the input cannot be read now, `InputAway` when that is so for some of the
        partitions only, and `CorruptState` when a position is outside the partition (the policy for that is the
        caller's).
        """
        ...

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the feed has ended, at most so long; return whether it has."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended the feed: what ``deliver`` raised, or the feed's own; None while it runs.

        `InputAway` when nobody answers any more for some of the partitions only.
        """
        ...

    def shrink(self) -> None:
        """Have the batches of the next `start` be much smaller than they were: what came of one was too much.

        They grow again while they go well.
        """
        ...

    @property
    def may_go_deaf(self) -> bool:
        """Whether it may bring nothing of a partition for ever although there is input, and say nothing of it.

        Where that lasts it is stopped and started again.
        """
        ...

    def stop(self) -> None:
        """End the feed; a batch in ``deliver`` is waited for. Harmless when it is not running."""
        ...

    def close(self) -> None:
        """Stop for good and free what the feed holds."""
        ...

    @property
    def child_pids(self) -> tuple[int, ...]:
        """Processes (the JVM) whose death is the container's death."""
        ...


class RecordReader(Protocol):
    """Reads task records for the way to active (rule `one-way`)."""

    def read(self, task: TaskId) -> TaskRecord | None:
        """Return the task's record as the ZooKeeper ensemble has it now (synced); None when there is none.

        Raises `Transient` when it cannot be read now.
        """
        ...


class PeerDirectory(Protocol):
    """Knows where containers answer their peers."""

    def find(self, container: str) -> PeerAddress | None:
        """Return where a registered container answers; None when none of that id is registered.

        Raises `Transient` when that cannot be read now.
        """
        ...


class Replicas(Protocol):
    """The kernel as the container's control loop sees it: nothing here blocks (rule `never-block`).

    Work happens on the kernel's own threads; what comes of it shows in `statuses`, and `on_change`
    (given at construction) is called, from any thread, whenever a phase changed.
    """

    def obey(self, assignment: tuple[Wanted, ...], jobs: Mapping[str, JobDefinition]) -> None:
        """Make ``assignment`` all that is held: open, promote, demote and close replicas as needed.

        Idempotent; epochs below a replica's own are ignored. Replicas not named are closed. Definitions of the
        same run and revision are the same; one of another revision than the one loaded is ignored.
        """
        ...

    def statuses(self) -> Mapping[ReplicaId, ReplicaStatus]:
        """Return the present status of every replica held, closed ones until the next `obey`."""
        ...

    @property
    def is_warm(self) -> bool:
        """Whether a promotion now would find its pipeline warm."""
        ...

    @property
    def revisions(self) -> Mapping[str, int]:
        """Job → revision of it that this process has loaded, and so the only one that it can run."""
        ...

    @property
    def broken(self) -> str | None:
        """Why the whole container must end (a dead JVM, a hanging revoke); None while all is well."""
        ...

    def close(self, deadline_seconds: float) -> bool:
        """Close everything within the deadline; return whether that succeeded."""
        ...


#: Builds the feed of one processor: called on the pipeline's thread when the first replica arrives.
MakeFeed = Callable[["JobConfig", JobDefinition], Feed]
