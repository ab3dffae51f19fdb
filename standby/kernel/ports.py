"""The seams of the kernel: what it asks of a Kafka cluster and of a local database, and the job's own function.

The real adapters are in `standby.adapters`; the fakes in `tests/fakes` keep the same contracts
(`tests/contracts`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from standby.config import JobConfig
from standby.errors import BadConfiguration, Transient
from standby.replica.claim import Committed
from standby.replica.failing import InputRecord
from standby.replica.store.overlay import Changes, Emitted
from standby.replica.store.scan import Page
from standby.shared.model import Offsets, TaskId
from standby.shared.peers import PeerAddress
from standby.shared.wire import JobDefinition

#: The job's own function: (rows, state, out) → None.
Step = Callable[[Any, Any, Any], Any]

#: A changelog record: full key and value; None as value is a tombstone.
Change = tuple[bytes, "bytes | None"]


#: How long a question to Kafka may take.
ANSWER_SECONDS: Final = 5.0


class WriterLost(Transient):
    """A task's producer is of no use any more: fenced, broken, or out of time.

    The outcome of a commit that raised it is unknown; only the way to active finds out (rule `fence-no-proof`).
    """

    def __init__(self, message: str, *, fenced: bool = False, is_late: bool = False) -> None:
        super().__init__(message)
        self.fenced = fenced
        """Whether Kafka says that another producer with this transactional id came after it."""
        self.is_late = is_late
        """Whether a transaction had taken longer than `job.transaction.timeout.ms` by then: Kafka aborts it and fences
        its producer, in the words of any other fence."""


class RecordRefused(BadConfiguration):
    """Kafka refuses a record for what it is, and takes others. The transaction that it was in is to be aborted."""


class RecordTooLarge(RecordRefused):
    """Kafka, or its client, refuses a record for its size: names the topic, size, and the setting that bounds it."""


class OffsetsUnstable(Transient):
    """A transaction is open among the committed offsets, by what Kafka answers: a mere time-out is not this."""


class InUse(Transient):
    """Another process holds a database."""

    def __init__(self, path: Path, reason: str = "") -> None:
        super().__init__(f"{path} is in use by another process{': ' * bool(reason)}{reason}")
        self.path = path


#: A partition: its topic and its number.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a transaction of a task ended, by what its coordinator has decided."""

    is_committed: bool
    places: frozenset[Place]
    """Where it was to write to, as far as it came: outputs, changelog, and Kafka's own topic of the offsets."""
    writer: int | None = None
    """Tells its producer from others of the same task; None: it is not known."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics of its places."""
        return frozenset(topic for topic, _ in self.places)


#: What to do about a batch of records that cannot be read.
ON_DAMAGE: Final = (
    "nothing is passed over: look with kafka-dump-log.sh, and have a broker with a good replica of the partition lead "
    "(docs/troubles.md)"
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a read brought for one changelog partition."""

    changes: Sequence[Change]
    position: int
    """The offset after everything passed so far, records and transaction markers alike."""
    is_out_of_range: bool = False
    """The partition has nothing (any more) at the position that was asked for."""
    damage: str = ""
    """Why what lies at the position or behind it cannot be read, with its offset; nothing was passed then."""


class Changelog(Protocol):
    """Reads committed changelog records of any number of partitions; used from one thread."""

    def add(self, partition: int, offset: int) -> None:
        """Begin to read a partition at ``offset``."""
        ...

    def remove(self, partition: int) -> None:
        """Read a partition no longer."""
        ...

    def pause(self, partition: int) -> None:
        """Bring nothing of a partition for now; harmless when it is paused, or not read at all."""
        ...

    def resume(self, partition: int) -> None:
        """Go on with a paused partition where it was; harmless when it is not paused, or not read at all."""
        ...

    def read(self, limit: int, timeout_seconds: float) -> Mapping[int, Chunk]:
        """Return what there is, at most ``limit`` records, after at most the timeout.

        Every partition whose position has moved is in the result, and each that cannot be read: its position stays,
        and whoever wants to read on there has to `add` it anew. A broker that is away is not an error: there is
        nothing to read until it is back. Raises `Unavailable` where it may not be read.
        """
        ...

    def close(self) -> None:
        """End it."""
        ...


class Writer(Protocol):
    """The transactional producer of one task. `initialise` first; after `WriterLost` only `close`.

    Used from one thread at a time.
    """

    def initialise(self, is_cancelled: Callable[[], bool], timeout_seconds: float) -> None:
        """Fence every earlier writer of the task and end what it left open; to be repeated on each way to active.

        Raises `WriterLost` when that does not succeed in time, or when cancelled.
        """
        ...

    def begin(self, record: bytes) -> int:
        """Begin a transaction with its commit record in the changelog; return its offset once it has arrived.

        So whatever the transaction may leave open elsewhere is known by it. Raises `WriterLost`.
        """
        ...

    def prepare(self, outputs: Sequence[Emitted], changes: Changes, offsets: Offsets, metadata: str) -> None:
        """Write these outputs, changelog records and input offsets, all with ``metadata``, to what has begun.

        Raises `WriterLost`, and `BadConfiguration` for a record that Kafka will never take, `RecordRefused` where it
        takes others.
        """
        ...

    def commit(self) -> int:
        """Commit what was prepared; return the changelog offset after its last record.

        Raises `WriterLost`; the outcome is unknown then. `BadConfiguration` as `prepare`: nothing is committed then.
        """
        ...

    def abort(self) -> None:
        """Abort what was prepared, if that is possible; never raises."""
        ...

    def places(self) -> Mapping[Place, int]:
        """Return the offset of a last record in each partition of outputs and changelog that the last commit wrote to.

        Its marker is there once `Broker.stable_ends` is beyond it.
        """
        ...

    def sweep(self, spared: Collection[Place] = ()) -> Mapping[Place, int]:
        """Abort a transaction in every partition that one of the task's may have touched: outputs, changelog, offsets.

        For what an earlier one has left hanging there; not in the outputs that are ``spared``. Returns the offset of
        the record that it wrote to each partition of outputs and changelog: once `Broker.stable_ends` is beyond it, the
        marker is there. Raises `WriterLost`, also when one of the records did not arrive, or the abort had no answer.
        """
        ...

    def close(self) -> None:
        """Drop the producer; an open transaction is left to the next owner's fence.

        From any thread, and without waiting for a call that is under way: that one ends with `WriterLost`.
        """
        ...


class Broker(Protocol):
    """Kafka as the kernel of one job sees it; safe to use from several threads.

    Every method that asks the cluster raises `Transient` when it gets no answer in time.
    """

    def ask_topic_ids(self, topics: Collection[str]) -> Callable[[], Mapping[str, str]]:
        """Ask for Kafka's id of each topic; what is returned at once waits for the answer, and raises.

        A topic that does not exist is left out.
        """
        ...

    def changelog_bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end (read uncommitted) of a changelog partition."""
        ...

    def changelog_ends(
        self, partitions: Collection[int], *, is_stable: bool = False, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        """Return the ends of changelog partitions: of all records, or the last stable offset.

        A partition that nobody answers for in time, as one without a leader, is left out; raises `Transient` when
        that would leave none. So whoever asks for one has an answer.
        """
        ...

    def input_bounds(self, partition: int) -> Sequence[tuple[int, int]]:
        """Return the first offset and the end of a partition of each input, in the order of `task.inputs`."""
        ...

    def input_ends(
        self, partitions: Collection[int], *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        """Return where each partition ends, as a reader of committed records sees it: the sum over the inputs.

        One that nobody answers for is left out as in `changelog_ends`, also when that is so in one of the inputs.
        """
        ...

    def commit_records(
        self, partition: int, start: int, end: int, *, is_stable: bool = False
    ) -> Sequence[bytes]:
        """Return the values of the commit records in [start, end) of the changelog, in order: aborted ones, too.

        With ``is_stable`` only committed ones; nothing may be open below ``end`` then.
        """
        ...

    def ended(self, partition: int, count: int) -> Sequence[Ended]:
        """Return how the last transactions of a task ended, the newest first, ``count`` at most.

        It is what the coordinator has decided, whatever markers are there. Fewer where that is forgotten; none when it
        may not be read.
        """
        ...

    def output_ends(self) -> Mapping[Place, int]:
        """Return where each partition of each output ends, open transactions included; raises `Transient`."""
        ...

    def stable_ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the last stable offset of each place; left out where nobody answers, as in `changelog_ends`."""
        ...

    def is_visible(self, place: Place, offset: int) -> bool:
        """Return whether a committed record lies there, or what lay there is older than all that is kept.

        Raises `Transient`, and `Unavailable` when it may not be read.
        """
        ...

    def committed(self, partitions: Collection[int]) -> Mapping[int, Sequence[Committed | None]]:
        """Return the stable committed offset of each partition of each input, in order; None where there is none.

        Raises `OffsetsUnstable` when a transaction is open among them and does not end.
        """
        ...

    def read_input(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Return the record of an input at an offset; None when no committed record lies there."""
        ...

    def open_changelog(self) -> Changelog:
        """Return a new reader of the changelog."""
        ...

    def open_writer(self, partition: int) -> Writer:
        """Return a new producer for a task; it connects, but fences nobody before it is initialised."""
        ...

    def close(self) -> None:
        """End the clients that the broker's own questions use."""
        ...


#: Connects to Kafka for a job, as the named cluster.
Connect = Callable[[str, JobConfig, JobDefinition], Broker]


class Profile(str, enum.Enum):
    """How a database is tuned."""

    SERVING = "serving"
    """For point reads and steady writes."""
    LOADING = "loading"
    """For writing much and reading nothing: a restore from far behind."""


class Database(Protocol):
    """One ordered store of bytes on a local disk.

    Raises `InUse` for a lock held elsewhere, `CorruptState` for broken files, `Unavailable` for a disk
    that is full or cannot be written.
    """

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, in order."""
        ...

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> Page:
        """Return the first, or with ``reverse`` the last, at most ``limit`` keys of [start, stop), and their values.

        About a megabyte at most, but one record at least if there is any. Nothing stays open after it.
        """
        ...

    def write(self, changes: Iterable[Change]) -> None:
        """Apply the changes, in order, as one: after a crash all of them are there, or none.

        They need not survive a crash before the next `flush`, but never less than an earlier write.
        """
        ...

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key that begins with ``prefix``, and its value, in key order."""
        ...

    def flush(self) -> None:
        """Bring everything written so far to the disk."""
        ...

    def checkpoint(self, directory: Path) -> None:
        """Make a copy, with at least all that was written before, in a new directory on the same file system.

        Cheap: files are shared by hard links. The copy opens as any other database. Writes may go on in
        another thread; closing may not.
        """
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class Refused(Transient):
    """A peer does not give what it was asked for."""

    def __init__(self, message: str, *, is_soon: bool = False) -> None:
        super().__init__(message)
        self.is_soon = is_soon
        """Whether it may well give it in a moment: it is busy, or about to be ready."""


class SnapshotSource(Protocol):
    """Another container that may give a copy of a task's state; used from one thread.

    Everything but `release` raises `Refused`, and `Transient` when the peer cannot be reached or goes away.
    """

    def take(self, task: TaskId, run: str, patience_seconds: float = 0.0) -> bytes:
        """Return the manifest (`standby.replica.store.snapshot`) of a copy made now.

        A peer that gives as many copies as it may already is waited for, at most so long: keep that below the
        silence after which it is given up.
        """
        ...

    def read(self, lease: str, file: str, start: int) -> Iterator[bytes]:
        """Yield a file of the copy from byte ``start`` on, in pieces; it may end early."""
        ...

    def release(self, lease: str) -> None:
        """Give the copy back; never raises."""
        ...

    def interrupt(self) -> None:
        """Have what is under way fail at once, and everything after it; from any thread, without waiting."""
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...


#: Opens a source; the seconds are how long a silent one is waited for. Connects when it is first used.
OpenSource = Callable[[PeerAddress, float], SnapshotSource]


#: Opens, or makes, the database in a directory.
OpenDatabase = Callable[[Path, Profile], Database]
