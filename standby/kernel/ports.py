"""Ports of the kernel: what it needs from a Kafka cluster and a local database, and the job's function.

The real adapters are in `standby.adapters`; the fakes in `tests/fakes` fulfil the same contracts
(`tests/contracts`).
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from standby.config import JobConfig
from standby.errors import BadConfiguration, Transient
from standby.replica.claim import Committed
from standby.replica.failing import InputRecord
from standby.replica.outbox import Outputs
from standby.replica.store.overlay import Changes
from standby.replica.store.scan import ScanPage
from standby.shared.model import Offsets, TaskId
from standby.shared.peers import PeerAddress
from standby.shared.wire import JobDefinition

#: The job's function: (rows, state, out) → None.
StepFunction = Callable[[Any, Any, Any], Any]

#: A changelog record: full key and value; None as value is a tombstone.
ChangelogRecord = tuple[bytes, "bytes | None"]


#: Time-out of a request to Kafka.
ANSWER_SECONDS: Final = 5.0


class WriterLost(Transient):
    """A task's producer is no longer usable: fenced, broken, or timed out.

    The outcome of a commit that raised it is unknown; only the takeover determines it (rule `fence-no-proof`).
    """

    def __init__(self, message: str, *, fenced: bool = False, is_late: bool = False) -> None:
        super().__init__(message)
        self.fenced = fenced
        """Whether Kafka reports that a later producer uses this transactional id."""
        self.is_late = is_late
        """Whether a transaction had exceeded `job.transaction.timeout.ms`.

        Kafka then aborts it and fences its producer, with the same error as for any other fence."""


class RecordRefused(BadConfiguration):
    """Kafka refuses this record, but accepts others. Its transaction must be aborted."""


class RecordTooLarge(RecordRefused):
    """Kafka or its client refuses a record for its size; names the topic, the size, and the limiting setting."""


class OffsetsUnstable(Transient):
    """Kafka reports that a transaction is open among the committed offsets; not raised for a time-out."""


class InUse(Transient):
    """Another process holds a database."""

    def __init__(self, path: Path, reason: str = "") -> None:
        super().__init__(f"{path} is in use by another process{': ' * bool(reason)}{reason}")
        self.path = path


#: A partition: its topic and its number.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """How a transaction of a task ended, as decided by its coordinator."""

    is_committed: bool
    places: frozenset[Place]
    """The partitions that it had added before it ended: outputs, changelog, and Kafka's offsets topic."""
    writer: int | None = None
    """Distinguishes its producer from others of the same task; None: not known."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics of its places."""
        return frozenset(topic for topic, _ in self.places)


#: Advice for a batch of records that cannot be read.
ON_DAMAGE: Final = (
    "nothing is skipped: inspect it with kafka-dump-log.sh, and make a broker with a good replica the leader of "
    "the partition (docs/troubles.md)"
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The result of a read for one changelog partition."""

    changes: Sequence[ChangelogRecord]
    position: int
    """The offset after everything read so far, including transaction markers."""
    is_out_of_range: bool = False
    """The partition has nothing, or no longer, at the requested position."""
    damage: str = ""
    """Why data at or after the position cannot be read, with its offset; in that case nothing was skipped."""


class Changelog(Protocol):
    """Reads committed changelog records of any number of partitions; used from one thread."""

    def add(self, partition: int, offset: int) -> None:
        """Start reading a partition at ``offset``."""
        ...

    def remove(self, partition: int) -> None:
        """Stop reading a partition."""
        ...

    def pause(self, partition: int) -> None:
        """Pause a partition; no effect if it is paused, or not being read."""
        ...

    def resume(self, partition: int) -> None:
        """Resume a paused partition where it was; no effect if it is not paused, or not being read."""
        ...

    def read(self, limit: int, timeout_seconds: float) -> Mapping[int, Chunk]:
        """Return available records, at most ``limit``, after at most the timeout.

        The result contains every partition whose position has advanced, and every partition that cannot be read. The
        position of the latter stays, and the caller must `add` the partition again to continue. An unavailable
        broker is not an error: there is nothing to read until it is back. Raises `Unavailable` when reading is not
        permitted.
        """
        ...

    def close(self) -> None:
        """Close the reader."""
        ...


class Writer(Protocol):
    """The transactional producer of one task. `initialise` first; after `WriterLost` only `close`.

    Used from one thread at a time.
    """

    def initialise(self, is_cancelled: Callable[[], bool], timeout_seconds: float) -> None:
        """Fence every earlier writer of the task and end its open transaction; required at each takeover.

        Raises `WriterLost` when this does not succeed in time, or when cancelled.
        """
        ...

    def begin(self, record: bytes) -> int:
        """Begin a transaction with its commit record in the changelog; return the record's offset once acknowledged.

        So the record identifies whatever the transaction may leave open elsewhere. Raises `WriterLost`.
        """
        ...

    def prepare(self, outputs: Outputs, changes: Changes, offsets: Offsets, metadata: str) -> None:
        """Write these outputs, changelog records and input offsets, with ``metadata``, to the open transaction.

        Raises `WriterLost`, and `BadConfiguration` for a record that Kafka will never accept (`RecordRefused` if it
        accepts other records).
        """
        ...

    def commit(self) -> int:
        """Commit the transaction; return the changelog offset after its last record.

        Raises `WriterLost` when the outcome is unknown, and `BadConfiguration` like `prepare` when nothing is
        committed.
        """
        ...

    def abort(self) -> None:
        """Abort the transaction if possible; never raises."""
        ...

    def places(self) -> Mapping[Place, int]:
        """Return the last commit's last record offset in each partition of outputs and changelog.

        The marker is present once `Broker.stable_ends` is beyond that offset.
        """
        ...

    def sweep(self, spared: Collection[Place] = ()) -> Mapping[Place, int]:
        """Abort a transaction in every partition that the task may have written to: outputs, changelog, offsets.

        This ends what earlier transactions left hanging there, except in the ``spared`` outputs. Returns the offset
        of the record written to each partition of outputs and changelog: the marker is present once
        `Broker.stable_ends` is beyond it. Raises `WriterLost`, also when a record was not acknowledged, or the abort
        had no answer.
        """
        ...

    def close(self) -> None:
        """Close the producer; an open transaction is left to the next owner's fence.

        Thread-safe. Does not wait for a running call, which ends with `WriterLost`.
        """
        ...


class Broker(Protocol):
    """Kafka as the kernel of one job sees it; safe to use from several threads.

    Every method that sends a request raises `Transient` when there is no answer in time.
    """

    def ask_topic_ids(
        self, topics: Collection[str], timeout_seconds: float = ANSWER_SECONDS
    ) -> Callable[[], Mapping[str, str]]:
        """Request the topic ids and return at once; calling the result waits for the answer, and raises.

        A topic that does not exist is left out. ``timeout_seconds`` is for the brokers' answer.
        """
        ...

    def connect(self) -> None:
        """Connect what a takeover asks for stable ends; does not wait. Otherwise its first request connects it."""
        ...

    def changelog_bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end (read uncommitted) of a changelog partition."""
        ...

    def changelog_ends(
        self, partitions: Collection[int], *, is_stable: bool = False, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        """Return the end offsets of changelog partitions: of all records, or the last stable offset.

        A partition without a timely answer, such as one without a leader, is left out. Raises `Transient` when no
        partition is left, so a request for a single partition always has an answer.
        """
        ...

    def input_bounds(self, partition: int) -> Sequence[tuple[int, int]]:
        """Return the first offset and the end of a partition of each input, in the order of `task.inputs`."""
        ...

    def input_ends(
        self, partitions: Collection[int], *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        """Return the end of each partition for a reader of committed records, summed over the inputs.

        A partition without an answer in any of the inputs is left out, as in `changelog_ends`.
        """
        ...

    def commit_records(
        self, partition: int, start: int, end: int, *, is_stable: bool = False
    ) -> Sequence[bytes]:
        """Return the values of the commit records in [start, end) of the changelog, in order, aborted ones included.

        With ``is_stable`` only committed ones; in that case nothing may be open below ``end``.
        """
        ...

    def ended(self, partition: int, count: int) -> Sequence[TransactionOutcome]:
        """Return how the last transactions of a task ended, newest first, at most ``count``.

        This is the coordinator's decision, whatever markers are present. Fewer if older decisions were removed; none
        if reading is not permitted.
        """
        ...

    def output_ends(self) -> Mapping[Place, int]:
        """Return the end of each partition of each output, open transactions included. Raises `Transient`."""
        ...

    def stable_ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the last stable offset of each place; left out without an answer, as in `changelog_ends`."""
        ...

    def is_visible(self, place: Place, offset: int) -> bool | None:
        """Return whether a committed record is at this offset, or the offset has been deleted by retention.

        None when no record is there for any reader: compaction has removed it, be it committed or aborted.
        Raises `Transient`, and `Unavailable` when reading is not permitted.
        """
        ...

    def committed(self, partitions: Collection[int]) -> Mapping[int, Sequence[Committed | None]]:
        """Return the stable committed offset of each partition of each input, in order; None where there is none.

        Raises `OffsetsUnstable` when a transaction is open among them and does not end.
        """
        ...

    def read_input(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Return the record of an input at an offset; None when there is no committed record."""
        ...

    def open_changelog(self) -> Changelog:
        """Return a new reader of the changelog."""
        ...

    def open_writer(self, partition: int) -> Writer:
        """Return a new producer for a task; it connects, but fences no other producer before it is initialised."""
        ...

    def close(self) -> None:
        """Close the clients that the broker's own requests use."""
        ...


#: Connects to Kafka for a job of the named cluster.
ConnectBroker = Callable[[str, JobConfig, JobDefinition], Broker]


class Profile(str, enum.Enum):
    """How a database is tuned."""

    SERVING = "serving"
    """For point reads and steady writes."""
    LOADING = "loading"
    """For bulk writes without reads: a restore that is far behind."""


class Database(Protocol):
    """An ordered key-value store of bytes on a local disk.

    Raises `InUse` for a lock held elsewhere, `CorruptState` for broken files, `Unavailable` for a disk
    that is full or cannot be written.
    """

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, in order."""
        ...

    def page(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> ScanPage:
        """Return the first ``limit`` keys of [start, stop) with their values; with ``reverse`` the last ones.

        About a megabyte at most, but at least one record if there is any. Leaves nothing open.
        """
        ...

    def write(self, changes: Iterable[ChangelogRecord], cancelled: threading.Event | None = None) -> None:
        """Apply the changes, in order, atomically with respect to crashes; wait while the disk is too far behind.

        They need not survive a crash before the next `flush`, but if they do, so do all earlier writes. Raises
        `Transient` when it would have to wait although ``cancelled`` is set; nothing is written then.
        """
        ...

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key that begins with ``prefix``, and its value, in key order."""
        ...

    def flush(self) -> None:
        """Flush everything written so far to disk."""
        ...

    def checkpoint(self, directory: Path) -> None:
        """Copy everything written so far to a new directory on the same file system.

        Cheap: files are shared by hard links. The copy opens like any other database. Other threads may write
        meanwhile, but must not close the database.
        """
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class SnapshotSource(Protocol):
    """Another container that may give a copy of a task's state; used from one thread.

    Every method but `release` raises `PeerRefused`, and `Transient` when the peer cannot be reached or goes away.
    """

    def take(self, task: TaskId, run: str, patience_seconds: float = 0.0) -> bytes:
        """Return the manifest (`standby.replica.store.snapshot`) of a copy made now.

        ``patience_seconds``: how long to wait for a peer that has reached its limit of copies. Must be less than the
        silence after which the source is considered lost.
        """
        ...

    def read(self, lease: str, file: str, start: int) -> Iterator[bytes]:
        """Yield a file of the copy from byte ``start`` on, in pieces; it may end early."""
        ...

    def release(self, lease: str) -> None:
        """Return the copy to the provider; never raises."""
        ...

    def interrupt(self) -> None:
        """Make the current call, and all later ones, fail at once. Thread-safe; does not wait."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class OpenSource(Protocol):
    """Opens a source, which connects at its first use."""

    def __call__(
        self, address: PeerAddress, silence_seconds: float, *, is_urgent: bool = False
    ) -> SnapshotSource:
        """Return the source.

        ``silence_seconds``: a peer that sends nothing for this long is considered lost. ``is_urgent``: an active
        waits for the state, so the provider's limits of copies and bandwidth do not apply.
        """
        ...


#: Opens or creates the database in a directory.
OpenDatabase = Callable[[Path, Profile], Database]
