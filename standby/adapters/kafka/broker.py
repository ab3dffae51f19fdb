"""The kernel's access to Kafka for one job, through confluent-kafka (librdkafka)."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from standby.adapters.kafka import clients, transaction_log
from standby.adapters.kafka.changelog import KafkaChangelog
from standby.adapters.kafka.clients import ClientKind
from standby.adapters.kafka.codes import DAMAGED, MISSING, REFUSED, translate
from standby.adapters.kafka.input import InputReader, headers_of
from standby.adapters.kafka.limits import RecordSizes, WriteRights
from standby.adapters.kafka.offsets import EARLIEST, LATEST, OffsetClient
from standby.adapters.kafka.refusals import Refusals
from standby.adapters.kafka.renewable_client import CLOSED, lasting
from standby.adapters.kafka.writer import KafkaWriter, WriteErrorContext
from standby.config import JobConfig, kafka_settings
from standby.errors import Transient
from standby.kernel.ports import ANSWER_SECONDS, OffsetsUnstable, Place, TransactionOutcome
from standby.ports import UnreadableRecord
from standby.replica.claim import Committed
from standby.replica.failing import InputRecord
from standby.replica.store.keys import COMMIT
from standby.shared.model import InputPartition, TaskId
from standby.shared.naming import transactional_id
from standby.shared.wire import JobDefinition

_log: Final = logging.getLogger(__name__)

#: How long requests for stable offsets must fail until the offsets count as unstable.
_UNSTABLE_SECONDS: Final = 1.0


class KafkaBroker:
    """The Kafka cluster of one job; its clients and their connections live as long as this object."""

    def __init__(self, cluster: str, config: JobConfig, definition: JobDefinition) -> None:
        self._cluster = cluster
        self._config = config
        self._definition = definition
        self._inputs = config.inputs
        self._settings = kafka_settings(config)
        self._admin = lasting(clients.QUESTIONS, self._settings)
        self._offsets = OffsetClient(self._settings, definition.group)
        self._sizes = RecordSizes(config, self._admin)
        self._rights = WriteRights(self._admin)
        self._refusals = Refusals()
        self._member = lasting(clients.MEMBER, self._settings, {"group.id": definition.group}, self._refusals)
        self._group = self._member.present().consumer_group_metadata()

    def _of_group(self, kind: ClientKind[Consumer]) -> Consumer:
        """Return a client of the job's group."""
        return kind.make(self._settings, {"group.id": self._definition.group})

    def ask_topic_ids(
        self, topics: Collection[str], timeout_seconds: float = ANSWER_SECONDS
    ) -> Callable[[], Mapping[str, str]]:
        """Request the topic ids; calling the result waits for the answer."""
        admin = self._admin.present()
        asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_seconds)
        # Whoever keeps the question must not keep the client.
        asking = weakref.ref(admin)

        def answer() -> Mapping[str, str]:
            admin = asking()
            if admin is None:
                raise Transient(CLOSED)
            try:
                with self._admin.use(admin):
                    found = {
                        topic: _described(admin, each, topic, is_needed=False)
                        for topic, each in asked.items()
                    }
            except Transient as error:
                if _is_timeout(error):
                    # Who does not answer may be a host that is gone, to which this client stays connected.
                    self._admin.replace(admin)
                raise
            return {topic: str(each.topic_id) for topic, each in found.items() if each is not None}

        return answer

    def connect(self) -> None:
        """Connect the client for last stable offsets; see `standby.kernel.ports.Broker.connect`."""
        self._offsets.connect(self._definition.changelog, IsolationLevel.READ_COMMITTED)

    def changelog_bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end (read uncommitted) of a changelog partition."""
        (bounds,) = self._bounds([(self._definition.changelog, partition)], IsolationLevel.READ_UNCOMMITTED)
        return bounds

    def changelog_ends(
        self, partitions: Collection[int], *, is_stable: bool = False, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        """Return the ends of changelog partitions: of all records, or the last stable offset."""
        # Of the requests of a standby only this one is made all the time.
        self._member.idle()
        self._admin.idle()
        level = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
        places = [(self._definition.changelog, each) for each in partitions]
        found, _ = self._offsets.ask(places, level, (LATEST,), timeout_seconds)
        return {partition: offset for (_, partition), (offset,) in found.items()}

    def input_bounds(self, partition: int) -> Sequence[tuple[int, int]]:
        """Return the first offset and the end of a partition of each input."""
        return self._bounds([(topic, partition) for topic in self._inputs], IsolationLevel.READ_COMMITTED)

    def input_ends(
        self, partitions: Collection[int], *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        """Return the end of each partition for a reader of committed records, summed over the inputs."""
        places = [(topic, each) for each in partitions for topic in self._inputs]
        ends, _ = self._offsets.ask(places, IsolationLevel.READ_COMMITTED, (LATEST,), timeout_seconds)
        answered = [each for each in partitions if all((topic, each) in ends for topic in self._inputs)]
        if partitions and not answered:
            raise Transient(
                f"reading the ends of {', '.join(self._inputs)}: no partition answers in all of them"
            )
        return {each: sum(ends[topic, each][0] for topic in self._inputs) for each in answered}

    def commit_records(
        self, partition: int, start: int, end: int, *, is_stable: bool = False
    ) -> Sequence[bytes]:
        """Return the values of the changelog's commit records in [start, end), in order, aborted ones included."""
        place = TopicPartition(self._definition.changelog, partition, start)
        reader = self._of_group(clients.STABLE_RECORDS if is_stable else clients.RECORDS)
        # librdkafka skips what it cannot read. Other errors are retried until the time-out.
        final = DAMAGED | REFUSED
        with _read_by(reader, f"reading {place.topic}-{partition} from {start} to {end}"):
            records = transaction_log.records_until(reader, place, end, final.__contains__)
            return [value for each in records if each.key() == COMMIT and (value := each.value())]

    def ended(self, partition: int, count: int) -> Sequence[TransactionOutcome]:
        """Return how the last transactions of a task ended, newest first; none if reading is not permitted."""
        name = self._transactional_id(partition)
        what = f"reading the coordinator's log of {name}"
        try:
            return transaction_log.ended(self._of_group(clients.RECORDS), name, count)
        except KafkaException as error:
            failure = translate(error.args[0], what)
            if isinstance(failure, Transient) and error.args[0].code() not in MISSING:
                raise failure from error
            _log.warning("%s", failure)
            return ()
        except TimeoutError as error:
            raise Transient(f"{what}: no answer") from error

    def output_ends(self) -> Mapping[Place, int]:
        """Return the end of each partition of each output, open transactions included."""
        topics = list(self._config.written_topics)
        if not topics:
            return {}
        with self._admin.use() as admin:
            asked = admin.describe_topics(TopicCollection(topics), request_timeout=ANSWER_SECONDS)
            described = {topic: _described(admin, asked[topic], topic) for topic in topics}
        places = [(topic, each.id) for topic, found in described.items() for each in found.partitions]
        found, failure = self._offsets.ask(places, IsolationLevel.READ_UNCOMMITTED, (LATEST,), needs_all=True)
        if failure is not None:
            raise failure
        return {place: offset for place, (offset,) in found.items()}

    def stable_ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the last stable offset of each place."""
        found, _ = self._offsets.ask(places, IsolationLevel.READ_COMMITTED, (LATEST,))
        return {place: offset for place, (offset,) in found.items()}

    def is_visible(self, place: Place, offset: int) -> bool | None:
        """Return whether a committed record is at this offset; see `standby.kernel.ports.Broker.is_visible`."""
        ((first, end),) = self._bounds([place], IsolationLevel.READ_COMMITTED)
        if not first <= offset < end:
            return offset < first
        if self._is_read(clients.INPUT, place, offset):
            return True
        return False if self._is_read(clients.RECORDS, place, offset) else None

    def _is_read(self, kind: ClientKind[Consumer], place: Place, offset: int) -> bool:
        """Return whether such a reader finds a record at this offset."""
        # Rare: a reader of its own is simpler than one that is kept.
        reader = self._of_group(kind)
        at = TopicPartition(*place, offset)
        what = f"reading {at.topic}-{at.partition} at {offset}, to check whether the committed record there is visible"
        with _read_by(reader, what):
            return any(True for _ in transaction_log.records_until(reader, at, offset + 1))

    def committed(self, partitions: Collection[int]) -> Mapping[int, Sequence[Committed | None]]:
        """Return the stable committed offset of each partition of each input; None where there is none."""
        numbers = ", ".join(map(str, sorted(partitions)))
        what = f"reading the committed offsets of {', '.join(self._inputs)}-{numbers}"
        asked = [TopicPartition(topic, each) for each in partitions for topic in self._inputs]
        try:
            # The AdminClient's list_consumer_group_offsets is not used: librdkafka 2.16 can crash in it with a
            # segmentation fault. A consumer that reads committed requests stable offsets, and retries by itself
            # while a commit is still being written to the offsets topic.
            with self._member.use() as member:
                offsets = clients.committed_offsets(member, asked, ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT and self._is_unstable(asked):  # noqa: SLF001
                raise OffsetsUnstable(f"{what}: a transaction is open among them") from error
            raise translate(error.args[0], what) from error
        found = {(each.topic, each.partition): each for each in offsets}
        return {
            partition: tuple(_committed(found[topic, partition]) for topic in self._inputs)
            for partition in partitions
        }

    def _is_unstable(self, asked: list[TopicPartition]) -> bool:
        """Return whether an open transaction hides the offsets, after a request that timed out.

        librdkafka does not report Kafka's answer, UNSTABLE_OFFSET_COMMIT, but retries until the time-out. So the
        coordinator is also asked for the offsets regardless of transactions: if this succeeds before and after
        another failing request for stable offsets, the coordinator is available and has loaded the group.
        """
        hasty = self._of_group(clients.HASTY_MEMBER)
        try:
            clients.committed_offsets(hasty, asked, ANSWER_SECONDS)
            try:
                with self._member.use() as member:
                    clients.committed_offsets(member, asked, _UNSTABLE_SECONDS)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001
                    return False
            else:
                return False
            clients.committed_offsets(hasty, asked, _UNSTABLE_SECONDS)
        except KafkaException:
            return False
        finally:
            clients.close_consumer(hasty)
        return True

    def read_input(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Return the record of an input at an offset; None when there is no committed record.

        For a record that cannot be decoded, only the offset is returned, and the end of its batch if the whole batch
        is unreadable.
        """
        ((first, end),) = self._bounds([(topic, partition)], IsolationLevel.READ_COMMITTED)
        if not first <= offset < end:
            return None
        try:
            message = self._read_from((topic, partition), offset)
        except UnreadableRecord as error:
            until = None
            if error.batch is not None:
                until = self._end_of_unreadable((topic, partition), error.batch, offset, end)
            return InputRecord(offset, None, None, unreadable_until=until)
        # Otherwise it was a transaction marker or an aborted record.
        return _record(message) if message is not None and message.offset() == offset else None

    def _read_from(self, place: InputPartition, offset: int) -> Message | None:
        """Return the first committed record at or after an offset; None if only markers were found."""
        # Rare: a reader of its own is simpler than one that is kept.
        reader = InputReader(kafka_settings(self._config), place[:1], self._definition.group)
        try:
            reader.assign({place: offset})
            deadline = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < deadline:
                for message in reader.read(1, 0.1):
                    return message
                if reader.positions()[place] > offset:
                    return None
        finally:
            reader.close()
        raise Transient(f"reading {place[0]}-{place[1]} at {offset}: no answer")

    def _end_of_unreadable(self, place: InputPartition, batch: int, offset: int, end: int) -> int:
        """Return the first offset above ``offset``, at most ``end``, that is not in the unreadable batch ``batch``.

        A reader that starts within a batch gets the batch's first offset. The client does not expose the batch's
        end, so it is determined by binary search.
        """

        def is_of_it(offset: int) -> bool:
            try:
                self._read_from(place, offset)
            except UnreadableRecord as error:
                return error.batch == batch
            return False

        last, step = offset, 1
        while last + step < end and is_of_it(last + step):
            last, step = last + step, 2 * step
        behind = min(last + step, end)
        while behind - last > 1:
            middle = (last + behind) // 2
            if is_of_it(middle):
                last = middle
            else:
                behind = middle
        return behind

    def open_changelog(self) -> KafkaChangelog:
        """Return a new reader of the changelog."""
        return KafkaChangelog(self._config, self._definition)

    def open_writer(self, partition: int) -> KafkaWriter:
        """Return a new producer for a task; it fences no other producer before it is initialised."""
        return KafkaWriter(
            self._config,
            TopicPartition(self._definition.changelog, partition),
            self._transactional_id(partition),
            self._group,
            WriteErrorContext(self._sizes, self._rights, self._explain),
        )

    def _explain(self, error: BaseException) -> None:
        self._refusals.explain(error, self._member.present())

    def _transactional_id(self, partition: int) -> str:
        return transactional_id(self._cluster, TaskId(self._definition.name, self._config.stage, partition))

    def close(self) -> None:
        """Release the clients that the broker's own requests use.

        Objects of the job refer to each other, so they stay until the next full garbage collection, which may be hours
        away. Their clients, with threads and connections, must not.
        """
        for each in (self._member, self._admin, self._offsets):
            each.close()

    def _bounds(
        self, places: Collection[InputPartition], level: IsolationLevel
    ) -> tuple[tuple[int, int], ...]:
        """Return the first offset and the end of each place, all of them in one round trip."""
        found, failure = self._offsets.ask(places, level, (EARLIEST, LATEST), needs_all=True)
        if failure is not None:
            raise failure
        return tuple((first, end) for first, end in (found[each] for each in places))


@contextmanager
def _read_by(reader: Consumer, what: str) -> Iterator[None]:
    """Translate Kafka's errors while ``what`` is done, then close the reader."""
    try:
        yield
    except KafkaException as error:
        raise translate(error.args[0], what) from error
    except TimeoutError as error:
        raise Transient(f"{what}: no answer") from error
    finally:
        clients.close_consumer(reader)


def _is_timeout(error: Transient) -> bool:
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError._TIMED_OUT  # noqa: SLF001


def _described(admin: AdminClient, future: Future[Any], topic: str, *, is_needed: bool = True) -> Any:
    """Return a topic's description; None for a missing one, unless it ``is_needed``."""
    try:
        # The time-out only covers an answer that never arrives.
        return clients.answer_of(admin, future, ANSWER_SECONDS + 1, topic)
    except KafkaException as error:
        if not is_needed and error.args[0].code() in MISSING:
            return None
        raise translate(error.args[0], f"describing {topic}") from error


def _committed(found: TopicPartition) -> Committed | None:
    return None if found.offset < 0 else Committed(found.offset, found.metadata or "")


def _record(message: Message) -> InputRecord:
    found = InputRecord(message.offset() or 0, _bytes(message.key()), _bytes(message.value()))
    try:
        return replace(found, headers=headers_of(message))
    except UnreadableRecord:
        return replace(found, has_unreadable_headers=True)


def _bytes(value: Any) -> bytes | None:
    """Return bytes; the client's type hints allow other types, which only a deserializer would return."""
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def connect(cluster: str, config: JobConfig, definition: JobDefinition) -> KafkaBroker:
    """Return the kernel's access to Kafka for a job; sends no request yet."""
    return KafkaBroker(cluster, config, definition)
