"""Kafka in memory, as far as the kernel sees it: logs with transactions, fencing, offsets, and faults on demand.

It keeps the contract of `standby.kernel.ports.Broker` (`tests/contracts/test_broker.py` runs against it and
against a real broker).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from standby.config import JobConfig
from standby.errors import BadConfiguration, Transient
from standby.kernel.ports import ANSWER_SECONDS, Change, Chunk, WriterLost
from standby.model import Offsets, TaskId
from standby.naming import transactional_id
from standby.replica.claim import Committed
from standby.replica.failing import Headers, InputRecord
from standby.replica.overlay import Changes, Emitted
from standby.wire import JobDefinition

Partition = tuple[str, int]


@dataclass(eq=False)
class Transaction:
    """What one producer wrote between begin and end."""

    outcome: bool | None = None
    """None while it is open."""
    touched: set[Partition] = field(default_factory=set)
    offsets: dict[tuple[str, str, int], Committed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A record, or a transaction's marker."""

    key: bytes | None
    value: bytes | None
    transaction: Transaction | None = None
    is_marker: bool = False
    headers: Headers = ()


class MemoryKafka:
    """A cluster. All access goes through its lock."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.logs: dict[Partition, list[Entry]] = defaultdict(list)
        self.starts: dict[Partition, int] = defaultdict(int)
        self.offsets: dict[tuple[str, str, int], Committed] = {}
        self.epochs: dict[str, int] = defaultdict(int)
        self.open: dict[str, Transaction] = {}
        self.topic_ids: dict[str, str] = {}
        self.is_away = False
        #: Nobody says where these end.
        self.leaderless: set[Partition] = set()
        #: The partitions of each question for committed offsets.
        self.committed_asked: list[tuple[int, ...]] = []
        #: Every reader of a changelog that was opened.
        self.readers: list[MemoryChangelog] = []
        #: So many more cannot be opened.
        self.refused_readers = 0
        #: Most log entries that one read of a changelog brings: a slow reader shows what relies on a quick one.
        self.read_limit = 1_000_000
        #: Transactional ids that a transaction hangs of whose marker was lost: only another one that aborts ends it.
        self.hanging: set[str] = set()
        #: Partitions that the next end of a transaction writes no marker to; and what is left open of it there.
        self.skipped: set[Partition] = set()
        self.left_open: dict[tuple[str, Partition], list[Transaction]] = defaultdict(list)
        #: Records with larger values are refused.
        self.largest = 1 << 30
        #: Called before a transaction begins, before its commit takes effect, and after that; may wait, or raise
        #: `WriterLost`.
        self.before_begin: Callable[[], None] = lambda: None
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None

    def connect(self, cluster: str, config: JobConfig, definition: JobDefinition) -> MemoryBroker:
        """Return the cluster as a job's kernel sees it; a `standby.kernel.ports.Connect`."""
        return MemoryBroker(self, cluster, config, definition)

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        """Write a record outside of any transaction; return its offset."""
        with self.lock:
            self.logs[topic, partition].append(Entry(key, value, headers=headers))
            self.lock.notify_all()
            return len(self.logs[topic, partition]) - 1

    def stable_end(self, where: Partition) -> int:
        """Return the last stable offset."""
        for offset, each in enumerate(self.logs[where]):
            if each.transaction is not None and each.transaction.outcome is None:
                return offset
        return len(self.logs[where])

    def committed_records(self, topic: str, partition: int) -> list[Change]:
        """Return what a reader of committed records sees from the start to the last stable offset."""
        with self.lock:
            where = (topic, partition)
            log = self.logs[where][self.starts[where] : self.stable_end(where)]
            return [(each.key or b"", each.value) for each in log if _is_visible(each)]

    def end(self, name: str, *, outcome: bool) -> None:
        """End the open transaction of a transactional id, if there is one."""
        transaction = self.open.pop(name, None)
        if transaction is None:
            return
        transaction.outcome = outcome
        if not outcome:
            self.hanging.discard(name)
        for where in sorted(transaction.touched):
            if where in self.skipped:
                self.skipped.discard(where)
                self._leave_open(name, where, transaction)
                continue
            # A producer's marker ends whatever it has open in a partition.
            for each in self.left_open.pop((name, where), ()):
                each.outcome = outcome
            self.logs[where].append(Entry(None, None, transaction, is_marker=True))
        if outcome:
            self.offsets.update(transaction.offsets)
        self.lock.notify_all()

    def _leave_open(self, name: str, where: Partition, transaction: Transaction) -> None:
        """Have the records of a partition open still, of a transaction that ends everywhere else."""
        left = Transaction()
        self.left_open[name, where].append(left)
        self.logs[where] = [
            replace(each, transaction=left) if each.transaction is transaction else each
            for each in self.logs[where]
        ]


def _is_visible(entry: Entry) -> bool:
    transaction = entry.transaction
    return not entry.is_marker and (transaction is None or transaction.outcome is True)


class MemoryBroker:
    """A `standby.kernel.ports.Broker`."""

    def __init__(
        self, kafka: MemoryKafka, cluster: str, config: JobConfig, definition: JobDefinition
    ) -> None:
        self._kafka, self._cluster, self._config, self._definition = kafka, cluster, config, definition
        self._inputs = config.inputs

    def changelog_id(self) -> str:
        topic = self._definition.changelog
        self._present("describing the changelog")
        return self._kafka.topic_ids.get(topic, f"id of {topic}")

    def changelog_bounds(self, partition: int) -> tuple[int, int]:
        return self._bounds((self._definition.changelog, partition))

    def changelog_ends(
        self, partitions: Collection[int], *, is_stable: bool = False, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        with self._present("reading the changelog's ends"):
            topic = self._definition.changelog
            told = self._answering((topic,), partitions)
            if is_stable:
                return {each: self._kafka.stable_end((topic, each)) for each in told}
            return {each: len(self._kafka.logs[topic, each]) for each in told}

    def input_bounds(self, partition: int) -> Sequence[tuple[int, int]]:
        return tuple(self._bounds((topic, partition)) for topic in self._inputs)

    def input_ends(
        self, partitions: Collection[int], *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        with self._present("reading the input's ends"):
            ends = self._kafka.stable_end
            told = self._answering(self._inputs, partitions)
            return {each: sum(ends((topic, each)) for topic in self._inputs) for each in told}

    def committed(self, partitions: Collection[int]) -> Mapping[int, Sequence[Committed | None]]:
        self._kafka.committed_asked.append(tuple(partitions))
        with self._present("reading the committed offsets"):
            tasks = (TaskId(self._definition.name, self._config.stage, each) for each in partitions)
            if any(transactional_id(self._cluster, each) in self._kafka.hanging for each in tasks):
                raise Transient("reading the committed offsets: a transaction is open")
            group, offsets = self._definition.group, self._kafka.offsets
            return {
                each: tuple(offsets.get((group, topic, each)) for topic in self._inputs)
                for each in partitions
            }

    def read_input(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        with self._present("reading a record"):
            log = self._kafka.logs[topic, partition]
            if not self._kafka.starts[topic, partition] <= offset < len(log):
                return None
            entry = log[offset]
            if not _is_visible(entry):
                return None
            return InputRecord(offset, entry.key, entry.value, entry.headers)

    def open_changelog(self) -> MemoryChangelog:
        if self._kafka.refused_readers:
            self._kafka.refused_readers -= 1
            raise Transient("no reader")
        reader = MemoryChangelog(self._kafka, self._definition.changelog)
        self._kafka.readers.append(reader)
        return reader

    def open_writer(self, partition: int) -> MemoryWriter:
        task = TaskId(self._definition.name, self._config.stage, partition)
        name = transactional_id(self._cluster, task)
        offsets = [(self._definition.group, topic, partition) for topic in self._inputs]
        outputs = [(topic, partition) for topic in self._config.outputs]
        return MemoryWriter(self._kafka, name, (self._definition.changelog, partition), outputs, offsets)

    def close(self) -> None:
        pass

    def _present(self, what: str) -> threading.Condition:
        if self._kafka.is_away:
            raise Transient(f"{what}: the broker is away")
        return self._kafka.lock

    def _answering(self, topics: Sequence[str], partitions: Collection[int]) -> list[int]:
        """Return the partitions that have a leader in each of ``topics``; raises `Transient` when none has."""
        told = [
            each
            for each in partitions
            if each < self._definition.tasks
            and not any((topic, each) in self._kafka.leaderless for topic in topics)
        ]
        if partitions and not told:
            raise Transient("reading ends: no leader")
        return told

    def _bounds(self, where: Partition) -> tuple[int, int]:
        with self._present("reading bounds"):
            return self._kafka.starts[where], len(self._kafka.logs[where])


class MemoryChangelog:
    """A `standby.kernel.ports.Changelog`."""

    def __init__(self, kafka: MemoryKafka, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        #: Partition and offset of everything that was added.
        self.added: list[tuple[int, int]] = []
        #: Whether it brings nothing any more, whatever there is.
        self.is_deaf = False
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()

    def add(self, partition: int, offset: int) -> None:
        self._positions[partition] = offset
        self.added.append((partition, offset))

    def remove(self, partition: int) -> None:
        self._positions.pop(partition, None)
        self._paused.discard(partition)

    def pause(self, partition: int) -> None:
        self._paused.add(partition)

    def resume(self, partition: int) -> None:
        self._paused.discard(partition)

    def read(self, limit: int, timeout_seconds: float) -> Mapping[int, Chunk]:
        with self._kafka.lock:
            chunks = self._take(limit)
            if not chunks and timeout_seconds:
                self._kafka.lock.wait(timeout_seconds)
                chunks = self._take(limit)
            return chunks

    def close(self) -> None:
        self._positions.clear()

    @property
    def partitions(self) -> frozenset[int]:
        """Return what it reads now."""
        return frozenset(self._positions)

    def _take(self, limit: int) -> dict[int, Chunk]:
        chunks: dict[int, Chunk] = {}
        if self._kafka.is_away or self.is_deaf:
            return chunks
        for partition, position in self._positions.items():
            if partition in self._paused:
                continue
            where = (self._topic, partition)
            log = self._kafka.logs[where]
            if not self._kafka.starts[where] <= position <= len(log):
                chunks[partition] = Chunk((), position, is_out_of_range=True)
                continue
            end = min(self._kafka.stable_end(where), position + min(limit, self._kafka.read_limit))
            if end > position:
                entries = [each for each in log[position:end] if _is_visible(each)]
                changes = [(each.key, each.value) for each in entries if each.key is not None]
                chunks[partition] = Chunk(changes, end)
                self._positions[partition] = end
        return chunks


class MemoryWriter:
    """A `standby.kernel.ports.Writer`."""

    def __init__(
        self,
        kafka: MemoryKafka,
        name: str,
        changelog: Partition,
        outputs: Sequence[Partition],
        offsets: Sequence[tuple[str, str, int]],
    ) -> None:
        self._kafka, self._name, self._changelog, self._offsets = kafka, name, changelog, offsets
        self._outputs = outputs
        self._epoch: int | None = None
        self._is_closed = False
        self._end: int | None = None

    def initialise(self, is_cancelled: Callable[[], bool], timeout_seconds: float) -> None:
        with self._kafka.lock:
            if self._kafka.is_away or is_cancelled():
                raise WriterLost("initialising the producer: not possible now")
            self._kafka.end(self._name, outcome=False)
            self._kafka.epochs[self._name] += 1
            self._epoch = self._kafka.epochs[self._name]

    def prepare(self, outputs: Sequence[Emitted], changes: Changes, offsets: Offsets, metadata: str) -> None:
        self._kafka.before_begin()
        with self._kafka.lock:
            self._check()
            transaction = self._kafka.open[self._name] = Transaction()
            for each in outputs:
                headers = each.headers.items() if isinstance(each.headers, Mapping) else each.headers or ()
                where = (each.topic, self._changelog[1])
                self._write(where, each.key, each.value, transaction, tuple(headers))
            self._end = None
            for key, value in changes.items():
                self._write(self._changelog, key, value, transaction)
                self._end = len(self._kafka.logs[self._changelog])
            for where_to, offset in zip(self._offsets, offsets.each, strict=True):
                transaction.offsets[where_to] = Committed(offset, metadata)

    def commit(self) -> int | None:
        self._kafka.before_commit()
        with self._kafka.lock:
            self._check()
            self._kafka.end(self._name, outcome=True)
        self._kafka.after_commit()
        return self._end

    def abort(self) -> None:
        with self._kafka.lock:
            if not self._is_closed and self._epoch == self._kafka.epochs[self._name]:
                self._kafka.end(self._name, outcome=False)

    def sweep(self) -> None:
        with self._kafka.lock:
            self._check()
            transaction = self._kafka.open[self._name] = Transaction()
            for where in (*self._outputs, self._changelog):
                self._write(where, b"\x00", b"", transaction)
            self._kafka.end(self._name, outcome=False)

    def close(self) -> None:
        self._is_closed = True

    def _check(self) -> None:
        if self._is_closed or self._epoch is None:
            raise WriterLost("the producer is closed, or was never initialised")
        if self._kafka.is_away:
            raise WriterLost("the broker is away")
        if self._epoch != self._kafka.epochs[self._name]:
            raise WriterLost("fenced", fenced=True)

    def _write(
        self,
        where: Partition,
        key: bytes | None,
        value: bytes | None,
        transaction: Transaction,
        headers: Headers = (),
    ) -> None:
        if len(value or b"") > self._kafka.largest:
            raise BadConfiguration(f"writing to {where[0]}: a record of {len(value or b'')} bytes is refused")
        transaction.touched.add(where)
        self._kafka.logs[where].append(Entry(key, value, transaction, headers=headers))
