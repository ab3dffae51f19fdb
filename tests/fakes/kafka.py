"""Kafka in memory, as the kernel sees it: logs with transactions, fencing, offsets, and faults on demand.

It fulfils the contract of `standby.kernel.ports.Broker` (`tests/contracts/test_broker.py` runs against it and
against a real broker).
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from standby.config import JobConfig
from standby.errors import Transient, Unavailable
from standby.kernel.ports import (
    ANSWER_SECONDS,
    ChangelogRecord,
    Chunk,
    OffsetsUnstable,
    RecordTooLarge,
    TransactionOutcome,
    WriterLost,
)
from standby.replica.claim import Committed
from standby.replica.failing import InputRecord
from standby.replica.outbox import Headers, Outputs
from standby.replica.store.keys import COMMIT
from standby.replica.store.overlay import Changes
from standby.shared.model import Offsets, TaskId
from standby.shared.naming import transactional_id
from standby.shared.wire import JobDefinition

Partition = tuple[str, int]

#: Stands for the name of a header that is not UTF-8.
UNREADABLE = "\ufffd"


@dataclass(eq=False)
class Transaction:
    """What one producer wrote between begin and end."""

    outcome: bool | None = None
    """None while it is open."""
    writer: int | None = None
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
        #: Of topics that were made again; empty of one that is missing.
        self.topic_ids: dict[str, str] = {}
        self.is_away = False
        #: So many partitions has each output, and the key says which; 0: as many as there are tasks, each its own.
        self.output_partitions = 0
        #: The ends of these are unknown.
        self.leaderless: set[Partition] = set()
        #: The partitions of each question for committed offsets.
        self.committed_asked: list[tuple[int, ...]] = []
        #: Records that cannot be read: partition and offset. Those beside each other are of one batch.
        self.damaged: set[tuple[Partition, int]] = set()
        #: Where somebody has met such a one.
        self.damage_met: set[Partition] = set()
        #: A changelog's reader names a damaged record once, and then has nothing at that position, as librdkafka may.
        self.names_damage_once = False
        #: Every reader of a changelog that was opened.
        self.readers: list[MemoryChangelog] = []
        #: So many more cannot be opened.
        self.refused_readers = 0
        #: What each of them raises when it is read.
        self.reader_failure: Exception | None = None
        #: What each reader raises when it is to stop reading a partition.
        self.removal_failure: Exception | None = None
        #: Every producer that was opened.
        self.writers: list[MemoryWriter] = []
        #: Most log entries that one read of a changelog brings: a slow reader shows what relies on a quick one.
        self.read_limit = 1_000_000
        #: What hangs among the offsets of transactional ids, as its marker was left out there.
        self.hanging: dict[str, dict[tuple[str, str, int], Committed]] = {}
        #: How the transactions of each transactional id ended, in order; and whether that may not be read.
        self.ended: dict[str, list[TransactionOutcome]] = defaultdict(list)
        self.is_log_closed = False
        #: Partitions that the next end of a transaction writes no marker to (the offsets are `offsets_of`), or the next
        #: one of a transactional id, which comes before them; and what is left open of it there.
        self.skipped: set[Partition | tuple[str, Partition]] = set()
        self.left_open: dict[tuple[str, Partition], list[Transaction]] = defaultdict(list)
        #: Where the records of a sweep do not arrive; and how many sweeps there were.
        self.undelivered: set[Partition] = set()
        self.sweeps = 0
        #: How often a producer was refused as fenced.
        self.fenced = 0
        #: So many more questions of a kind, or calls of a producer (a method's name), have no answer in time.
        self.unanswered: Counter[str] = Counter()
        #: And so many had none.
        self.timed_out: Counter[str] = Counter()
        #: Topic → records with larger values are refused: when they are handed over, or else when they are sent.
        self.largest: dict[str, int] = {}
        self.is_refused_when_sent = False
        #: A transaction with more records than so many runs out of time: Kafka aborts it, and fences its producer.
        self.most_in_time = 1 << 30
        #: Called before a transaction begins, when it has and its commit record did not arrive yet, when that has,
        #: when its outputs and changes have, before its commit takes effect, and after that; may wait, or raise
        #: `WriterLost`.
        self.before_begin: Callable[[], None] = lambda: None
        self.before_record: Callable[[], None] = lambda: None
        self.after_begin: Callable[[], None] = lambda: None
        self.before_offsets: Callable[[], None] = lambda: None
        #: Called before a sweep.
        self.before_sweep: Callable[[], None] = lambda: None
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None

    def connect(self, cluster: str, config: JobConfig, definition: JobDefinition) -> MemoryBroker:
        """Return the cluster as a job's kernel sees it; a `standby.kernel.ports.ConnectBroker`."""
        return Link(self).connect(cluster, config, definition)

    def damage_in(self, where: Partition, start: int, end: int) -> range | None:
        """Return the first batch in [start, end) that cannot be read, from ``start`` on."""
        first = next((each for each in range(start, end) if (where, each) in self.damaged), None)
        if first is None:
            return None
        self.damage_met.add(where)
        behind = first
        while (where, behind) in self.damaged:
            behind += 1
        return range(first, behind)

    def is_unanswered(self, question: str) -> bool:
        """Return whether this one has no answer in time."""
        if not self.unanswered[question]:
            return False
        self.unanswered[question] -= 1
        self.timed_out[question] += 1
        return True

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        """Write a record outside of any transaction; return its offset."""
        with self.lock:
            self.logs[topic, partition].append(Entry(key, value, headers=headers))
            self.lock.notify_all()
            return len(self.logs[topic, partition]) - 1

    def make_again(self, topic: str, topic_id: str = "made again") -> dict[Partition, list[Entry]]:
        """Delete a topic, and with it the offsets that groups have committed in it; create it again.

        Returns what it had.
        """
        with self.lock:
            self.topic_ids[topic] = topic_id
            former = {where: log for where, log in self.logs.items() if where[0] == topic}
            for where in former:
                self.logs[where] = []
                self.starts[where] = 0
            self.offsets = {key: each for key, each in self.offsets.items() if key[1] != topic}
            self.lock.notify_all()
            return former

    def stable_end(self, where: Partition) -> int:
        for offset, each in enumerate(self.logs[where]):
            if each.transaction is not None and each.transaction.outcome is None:
                return offset
        return len(self.logs[where])

    def committed_records(self, topic: str, partition: int, end: int | None = None) -> list[ChangelogRecord]:
        """Return what a reader of committed records sees from the start to ``end`` or the last stable offset."""
        with self.lock:
            where = (topic, partition)
            stable = self.stable_end(where)
            log = self.logs[where][self.starts[where] : stable if end is None else min(end, stable)]
            return [(each.key or b"", each.value) for each in log if _is_visible(each)]

    def end(self, name: str, *, outcome: bool) -> None:
        """End the open transaction of a transactional id, if there is one."""
        transaction = self.open.pop(name, None)
        if transaction is None:
            return
        transaction.outcome = outcome
        places = frozenset(
            ("offsets", 0) if each == offsets_of(name) else each for each in transaction.touched
        )
        self.ended[name].append(TransactionOutcome(outcome, places, transaction.writer))
        self._end_offsets(name, transaction, outcome=outcome)
        for where in sorted(transaction.touched - {offsets_of(name)}):
            if self._skips(name, where):
                self._leave_open(name, where, transaction)
                continue
            # A producer's marker ends whatever it has open in a partition.
            for each in self.left_open.pop((name, where), ()):
                each.outcome = outcome
            self.logs[where].append(Entry(None, None, transaction, is_marker=True))
        self.lock.notify_all()

    def _end_offsets(self, name: str, transaction: Transaction, *, outcome: bool) -> None:
        where = offsets_of(name)
        if where not in transaction.touched:
            return
        if self._skips(name, where):
            self.hanging[name] = {**self.hanging.get(name, {}), **transaction.offsets}
        else:
            hanging = self.hanging.pop(name, {})
            if outcome:
                self.offsets.update({**hanging, **transaction.offsets})

    def _skips(self, name: str, where: Partition) -> bool:
        found = self.skipped & {where, (name, where)}
        self.skipped -= found
        return bool(found)

    def _leave_open(self, name: str, where: Partition, transaction: Transaction) -> None:
        """Have the records of a partition open still, of a transaction that ends everywhere else."""
        left = Transaction()
        self.left_open[name, where].append(left)
        self.logs[where] = [
            replace(each, transaction=left) if each.transaction is transaction else each
            for each in self.logs[where]
        ]


class Link:
    """The way of one process to the cluster, which its end cuts: nothing that it does arrives any more."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self.kafka = kafka
        self.is_cut = False

    @property
    def is_away(self) -> bool:
        return self.is_cut or self.kafka.is_away

    def cut(self) -> None:
        """Leave whatever is open to the next owner's fence."""
        with self.kafka.lock:
            self.is_cut = True

    def connect(self, cluster: str, config: JobConfig, definition: JobDefinition) -> MemoryBroker:
        """Return the cluster as the process sees it; a `standby.kernel.ports.ConnectBroker`."""
        return MemoryBroker(self, cluster, config, definition)


def offsets_of(name: str) -> Partition:
    """Return what stands for the partition of the offsets that a transactional id commits."""
    return f"offsets of {name}", 0


def _is_visible(entry: Entry) -> bool:
    transaction = entry.transaction
    return not entry.is_marker and (transaction is None or transaction.outcome is True)


class MemoryBroker:
    """A `standby.kernel.ports.Broker`."""

    def __init__(self, link: Link, cluster: str, config: JobConfig, definition: JobDefinition) -> None:
        self._link, self._kafka = link, link.kafka
        self._cluster, self._config, self._definition = cluster, config, definition
        self._inputs = config.inputs
        self.connects = 0

    def connect(self) -> None:
        self.connects += 1

    def ask_topic_ids(
        self, topics: Collection[str], timeout_seconds: float = ANSWER_SECONDS
    ) -> Callable[[], Mapping[str, str]]:
        def answer() -> Mapping[str, str]:
            with self._present("describing topics"):
                self._answer("ask_topic_ids")
                config = self._config
                there = {self._definition.changelog, *config.inputs, *config.outputs, config.dead_letter}
                found = {
                    each: self._kafka.topic_ids.get(each, f"id of {each}") for each in there & set(topics)
                }
                return {topic: topic_id for topic, topic_id in found.items() if topic_id}

        return answer

    def changelog_bounds(self, partition: int) -> tuple[int, int]:
        with self._present("reading the changelog's bounds"):
            self._answer("changelog_bounds")
            return self._bounds((self._definition.changelog, partition))

    def changelog_ends(
        self, partitions: Collection[int], *, is_stable: bool = False, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        with self._present("reading the changelog's ends"):
            if len(partitions) == 1:
                self._answer("changelog_ends")
            topic = self._definition.changelog
            told = self._answering((topic,), partitions)
            if is_stable:
                return {each: self._kafka.stable_end((topic, each)) for each in told}
            return {each: len(self._kafka.logs[topic, each]) for each in told}

    def input_bounds(self, partition: int) -> Sequence[tuple[int, int]]:
        with self._present("reading the input's bounds"):
            self._answer("input_bounds")
            return tuple(self._bounds((topic, partition)) for topic in self._inputs)

    def input_ends(
        self, partitions: Collection[int], *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        with self._present("reading the input's ends"):
            ends = self._kafka.stable_end
            told = self._answering(self._inputs, partitions)
            return {each: sum(ends((topic, each)) for topic in self._inputs) for each in told}

    def commit_records(
        self, partition: int, start: int, end: int, *, is_stable: bool = False
    ) -> Sequence[bytes]:
        with self._present("reading commit records"):
            self._answer("commit_records")
            self._check_readable((self._definition.changelog, partition), start, end)
            log = self._kafka.logs[self._definition.changelog, partition][start:end]
            return [
                each.value
                for each in log
                if each.key == COMMIT and each.value and (_is_visible(each) or not is_stable)
            ]

    def ended(self, partition: int, count: int) -> Sequence[TransactionOutcome]:
        with self._present("reading the coordinator's log"):
            self._answer("ended")
            task = TaskId(self._definition.name, self._config.stage, partition)
            found = self._kafka.ended[transactional_id(self._cluster, task)]
            return () if self._kafka.is_log_closed else found[::-1][:count]

    def output_ends(self) -> Mapping[Partition, int]:
        with self._present("reading the outputs' ends"):
            self._answer("output_ends")
            count = self._kafka.output_partitions or self._definition.tasks
            places = [(topic, each) for topic in self._config.outputs for each in range(count)]
            return {each: len(self._kafka.logs[each]) for each in places}

    def stable_ends(self, places: Collection[Partition]) -> Mapping[Partition, int]:
        with self._present("reading stable ends"):
            self._answer("stable_ends")
            told = [each for each in places if each not in self._kafka.leaderless]
            if places and not told:
                raise Transient("reading stable ends: no leader")
            return {each: self._kafka.stable_end(each) for each in told}

    def is_visible(self, place: Partition, offset: int) -> bool | None:
        with self._present("reading a record"):
            self._answer("is_visible")
            self._check_readable(place, offset, offset + 1)
            start, end = self._kafka.starts[place], self._kafka.stable_end(place)
            if offset < start or offset >= end:
                return offset < start
            entry = self._kafka.logs[place][offset]
            return None if entry.is_marker else _is_visible(entry)

    def committed(self, partitions: Collection[int]) -> Mapping[int, Sequence[Committed | None]]:
        self._kafka.committed_asked.append(tuple(partitions))
        with self._present("reading the committed offsets"):
            self._answer("committed")
            tasks = (TaskId(self._definition.name, self._config.stage, each) for each in partitions)
            names = {transactional_id(self._cluster, each) for each in tasks}
            is_open = any(self._kafka.open[each].offsets for each in names & self._kafka.open.keys())
            if is_open or names & self._kafka.hanging.keys():
                raise OffsetsUnstable("reading the committed offsets: a transaction is open")
            group, offsets = self._definition.group, self._kafka.offsets
            return {
                each: tuple(offsets.get((group, topic, each)) for topic in self._inputs)
                for each in partitions
            }

    def read_input(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        with self._present("reading a record"):
            self._answer("read_input")
            log = self._kafka.logs[topic, partition]
            if not self._kafka.starts[topic, partition] <= offset < len(log):
                return None
            damage = self._kafka.damage_in((topic, partition), offset, offset + 1)
            if damage is not None:
                return InputRecord(offset, None, None, unreadable_until=min(damage.stop, len(log)))
            entry = log[offset]
            if not _is_visible(entry):
                return None
            if any(name == UNREADABLE for name, _ in entry.headers):
                return InputRecord(offset, entry.key, entry.value, has_unreadable_headers=True)
            return InputRecord(offset, entry.key, entry.value, entry.headers)

    def open_changelog(self) -> MemoryChangelog:
        if self._kafka.refused_readers:
            self._kafka.refused_readers -= 1
            raise Transient("no reader")
        reader = MemoryChangelog(self._link, self._definition.changelog)
        self._kafka.readers.append(reader)
        return reader

    def open_writer(self, partition: int) -> MemoryWriter:
        task = TaskId(self._definition.name, self._config.stage, partition)
        name = transactional_id(self._cluster, task)
        offsets = [(self._definition.group, topic, partition) for topic in self._inputs]
        shared = range(self._kafka.output_partitions) or (partition,)
        outputs = [(topic, each) for topic in self._config.outputs for each in shared]
        writer = MemoryWriter(self._link, name, (self._definition.changelog, partition), outputs, offsets)
        self._kafka.writers.append(writer)
        return writer

    def close(self) -> None:
        pass

    def _answer(self, question: str) -> None:
        if self._kafka.is_unanswered(question):
            raise Transient(f"{question}: no answer in time")

    def _present(self, what: str) -> threading.Condition:
        if self._link.is_away:
            raise Transient(f"{what}: the broker is away")
        return self._kafka.lock

    def _check_readable(self, where: Partition, start: int, end: int) -> None:
        """Raise `Unavailable` where a batch in [start, end) cannot be read, as `standby.adapters.kafka` does."""
        damage = self._kafka.damage_in(where, start, end)
        if damage is not None:
            raise Unavailable(f"reading {where[0]}-{where[1]}: at offset {damage.start}: it is damaged")

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
        return self._kafka.starts[where], len(self._kafka.logs[where])


class MemoryChangelog:
    """A `standby.kernel.ports.Changelog`."""

    def __init__(self, link: Link, topic: str) -> None:
        self._link, self._kafka, self._topic = link, link.kafka, topic
        #: Partition and offset of everything that was added.
        self.added: list[tuple[int, int]] = []
        #: Whether it brings nothing any more, whatever there is.
        self.is_deaf = False
        self.is_closed = False
        #: Partitions of which it brings nothing any more until they are added anew.
        self.deaf: set[int] = set()
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._named: set[int] = set()

    def add(self, partition: int, offset: int) -> None:
        self._positions[partition] = offset
        self.deaf.discard(partition)
        self.added.append((partition, offset))

    def remove(self, partition: int) -> None:
        self._positions.pop(partition, None)
        if self._kafka.removal_failure is not None:
            raise self._kafka.removal_failure
        self._paused.discard(partition)

    def pause(self, partition: int) -> None:
        self._paused.add(partition)

    def resume(self, partition: int) -> None:
        self._paused.discard(partition)

    def read(self, limit: int, timeout_seconds: float) -> Mapping[int, Chunk]:
        if self._kafka.reader_failure is not None:
            raise self._kafka.reader_failure
        with self._kafka.lock:
            chunks = self._take(limit)
            if not chunks and timeout_seconds:
                self._kafka.lock.wait(timeout_seconds)
                chunks = self._take(limit)
            return chunks

    def close(self) -> None:
        self._positions.clear()
        self.is_closed = True

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self._positions)

    def _take(self, limit: int) -> dict[int, Chunk]:
        chunks: dict[int, Chunk] = {}
        if self._link.is_away or self.is_deaf:
            return chunks
        for partition, position in self._positions.items():
            if partition in self._paused or partition in self.deaf:
                continue
            where = (self._topic, partition)
            log = self._kafka.logs[where]
            if not self._kafka.starts[where] <= position <= len(log):
                chunks[partition] = Chunk((), position, is_out_of_range=True)
                continue
            end = min(self._kafka.stable_end(where), position + min(limit, self._kafka.read_limit))
            damage = self._kafka.damage_in(where, position, end)
            if damage is not None:
                is_named = not (self._kafka.names_damage_once and partition in self._named)
                self._named.add(partition)
                told = f"at offset {damage.start}: it is damaged" if is_named else ""
                chunks[partition] = Chunk((), position, is_out_of_range=not is_named, damage=told)
            elif end > position:
                entries = [each for each in log[position:end] if _is_visible(each)]
                changes = [(each.key, each.value) for each in entries if each.key is not None]
                chunks[partition] = Chunk(changes, end)
                self._positions[partition] = end
        return chunks


class MemoryWriter:
    """A `standby.kernel.ports.Writer`."""

    def __init__(
        self,
        link: Link,
        name: str,
        changelog: Partition,
        outputs: Sequence[Partition],
        offsets: Sequence[tuple[str, str, int]],
    ) -> None:
        """``outputs`` are all partitions that it may write to."""
        self._link, self._kafka = link, link.kafka
        self._name, self._changelog, self._offsets = name, changelog, offsets
        self._outputs = outputs
        self._epoch: int | None = None
        self.is_closed = False
        self._end = 0
        self._written = 0
        self._refused: list[RecordTooLarge] = []
        self._places: dict[Partition, int] = {}

    def initialise(self, is_cancelled: Callable[[], bool], timeout_seconds: float) -> None:
        with self._kafka.lock:
            if self._link.is_away or is_cancelled():
                raise WriterLost("initialising the producer: not possible now")
            self._kafka.end(self._name, outcome=False)
            self._kafka.epochs[self._name] += 1
            self._answer("initialise")
            self._epoch = self._kafka.epochs[self._name]

    def begin(self, record: bytes) -> int:
        self._kafka.before_begin()
        with self._kafka.lock:
            self._check()
            transaction = self._kafka.open[self._name] = Transaction(writer=self._epoch)
            self._written, self._refused, self._places = 0, [], {}
            transaction.touched.add(self._changelog)
        self._kafka.before_record()
        with self._kafka.lock:
            self._check()
            self._write(self._changelog, COMMIT, record, transaction)
            offset = len(self._kafka.logs[self._changelog]) - 1
            self._end = offset + 1
        self._kafka.after_begin()
        return offset

    def prepare(self, outputs: Outputs, changes: Changes, offsets: Offsets, metadata: str) -> None:
        with self._kafka.lock:
            self._check()
            transaction = self._kafka.open[self._name]
            for each in outputs:
                where = (each.topic, self._partition_of(each.key))
                self._write(where, each.key, each.value, transaction, each.headers)
            for key, value in changes.items():
                self._write(self._changelog, key, value, transaction)
                self._end = len(self._kafka.logs[self._changelog])
        self._kafka.before_offsets()
        with self._kafka.lock:
            self._check()
            transaction.touched.add(offsets_of(self._name))
            for where_to, offset in zip(self._offsets, offsets.each, strict=True):
                transaction.offsets[where_to] = Committed(offset, metadata)

    def commit(self) -> int:
        self._kafka.before_commit()
        with self._kafka.lock:
            self._check()
            if self._refused:
                raise self._refused.pop()
            if self._written > self._kafka.most_in_time:
                self._kafka.end(self._name, outcome=False)
                self._kafka.epochs[self._name] += 1
                raise WriterLost("committing a transaction: fenced", fenced=True, is_late=True)
            self._kafka.end(self._name, outcome=True)
        self._kafka.after_commit()
        return self._end

    def abort(self) -> None:
        with self._kafka.lock:
            is_own = not self.is_closed and self._epoch == self._kafka.epochs[self._name]
            if is_own and not self._link.is_away:
                self._kafka.end(self._name, outcome=False)

    def places(self) -> Mapping[Partition, int]:
        return dict(self._places)

    def sweep(self, spared: Collection[Partition] = ()) -> Mapping[Partition, int]:
        with self._kafka.lock:
            self._check()
            self._kafka.sweeps += 1
            self._kafka.before_sweep()
            transaction = self._kafka.open[self._name] = Transaction(writer=self._epoch)
            swept: dict[Partition, int] = {}
            transaction.touched.add(offsets_of(self._name))
            for where in sorted({*self._outputs, self._changelog} - self._kafka.undelivered - {*spared}):
                swept[where] = len(self._kafka.logs[where])
                self._write(where, b"\x00", b"", transaction)
            if self._kafka.undelivered:
                missing = ", ".join(sorted(topic for topic, _ in self._kafka.undelivered))
                self._kafka.undelivered = set()
                raise WriterLost(f"ending what hangs: no answer from {missing}")
            self._kafka.end(self._name, outcome=False)
            self._answer("sweep")
            return swept

    def close(self) -> None:
        self.is_closed = True

    def _check(self) -> None:
        if self.is_closed or self._epoch is None:
            raise WriterLost("the producer is closed, or was never initialised")
        if self._link.is_away:
            raise WriterLost("the broker is away")
        if self._epoch != self._kafka.epochs[self._name]:
            self._kafka.fenced += 1
            raise WriterLost("fenced", fenced=True)

    def _answer(self, call: str) -> None:
        """Raise `WriterLost` when the answer to a call, which has taken effect, does not come in time."""
        if self._kafka.is_unanswered(call):
            raise WriterLost(f"{call}: no answer in time")

    def _partition_of(self, key: bytes | None) -> int:
        count = self._kafka.output_partitions
        return zlib.crc32(key or b"") % count if count else self._changelog[1]

    def _write(
        self,
        where: Partition,
        key: bytes | None,
        value: bytes | None,
        transaction: Transaction,
        headers: Headers = (),
    ) -> None:
        size = len(value or b"") + sum(len(each or b"") for _, each in headers)
        most = self._kafka.largest.get(where[0], size)
        if size > most:
            refused = RecordTooLarge(f"a record of {size} bytes for {where[0]}: max.message.bytes is {most}")
            if not self._kafka.is_refused_when_sent:
                raise refused
            self._refused.append(refused)
            return
        self._written += 1
        transaction.touched.add(where)
        self._places[where] = len(self._kafka.logs[where])
        self._kafka.logs[where].append(Entry(key, value, transaction, headers=headers))
