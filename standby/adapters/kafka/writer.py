"""The transactional producer of one task (rules `whole-batch`, `commit-first`, `writer-id`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import ClientNames
from standby.adapters.kafka.codes import FENCED, MISSING, REFUSED, TOO_LARGE
from standby.adapters.kafka.limits import RecordSizes, WriteRights
from standby.adapters.kafka.partitions import BY_LIBRARY, DEFAULT, SETTING, OutputPartitions
from standby.config import JobConfig, kafka_settings
from standby.errors import BadConfiguration
from standby.kernel.ports import Place, RecordRefused, RecordTooLarge, WriterLost
from standby.replica.outbox import Headers, Outputs, TopicRecords
from standby.replica.store.keys import COMMIT
from standby.replica.store.overlay import Changes
from standby.shared.model import Offsets

#: Time-outs of the first attempts to initialise. librdkafka retries only 500 ms after the coordinator has answered
#: that it is still aborting the last owner's transaction. This is the normal case when an active dies in a
#: transaction, and takes only some 10 ms. A new producer that is already connected can ask at once. The abandoned
#: one must be gone before it retries, or it would fence its successor.
_FIRST_TRIES: Final = (0.03, 0.03, 0.06, 0.06, 0.12, 0.25)

#: Time-out of later attempts; a coordinator that must create its topic needs a second or two.
_TRY_SECONDS: Final = 3.0

#: Maximum wait for the purge of a producer. It needs no broker, but a thread that looks up a host name is late.
_PURGE_SECONDS: Final = 1.0

#: Maximum wait for the number of partitions of an output, in the middle of a transaction.
_COUNT_SECONDS: Final = 1.0

#: The key with the size of a client's queue, which a record may exceed.
_QUEUE_SIZE: Final = "kafka.queue.buffering.max.kbytes"

#: Key of a record that is written only to get its transaction's marker.
_NO_KEY: Final = b"\x00"

#: A record for `produce_batch`.
_Record = dict[str, Any]

#: Explanations of a refused record, by error code.
_REFUSED_RECORD: Final[Mapping[int, str]] = {
    KafkaError.INVALID_RECORD: "a compacted topic accepts none without a key",
    KafkaError.INVALID_TIMESTAMP: "its time is further from the broker's than the topic's "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow",
}
#: Errors that a retry cannot fix.
_NEVER_TAKEN: Final = REFUSED | MISSING | TOO_LARGE


@dataclass(frozen=True, slots=True)
class WriteErrorContext:
    """Means to find the reason of a refusal beyond the brokers' error."""

    sizes: RecordSizes
    rights: WriteRights
    explain: Callable[[BaseException], None] = lambda _error: None
    """Adds to an error's message why the brokers refuse this job's clients, if they do."""


class KafkaWriter:
    """Owns one librdkafka producer at a time, with the task's transactional id."""

    def __init__(
        self,
        config: JobConfig,
        changelog: TopicPartition,
        transactional_id: str,
        group: Any,
        refusal: WriteErrorContext,
    ) -> None:
        """``changelog`` is the task's changelog partition.

        The producer has no ``error_cb``: with one, confluent-kafka 2.16 loses the error of a fenced producer
        ("returned NULL without setting an exception").
        """
        sizes = refusal.sizes
        self._sizes, self._rights, self._explain = sizes, refusal.rights, refusal.explain
        self._settings = kafka_settings(config)
        self._own = {**clients.WRITER.of_job(config, ClientNames("", transactional_id))}
        # When brokers refuse a record, they refuse its whole batch, and a batch may be refused although each of its
        # records is small enough.
        if sizes.batch_bytes is not None:
            self._own["batch.size"] = sizes.batch_bytes
        self._changelog = changelog.topic
        self._inputs = config.inputs
        self._outputs = config.written_topics
        self._partitions = OutputPartitions(
            str(self._settings.get(SETTING, DEFAULT)), self._count_of, time.monotonic
        )
        self._partition = changelog.partition
        self._group = group
        self._timeout = config.transaction_timeout_ms / 1000
        self._producer: Producer | None = self._made()
        self._is_initialised = False
        self._end: int | None = None
        #: The last acknowledged record in each partition, of the current transaction.
        self._places: dict[Place, int] = {}
        self._began = 0.0
        #: Returns the largest record of the current transaction for each topic; called when one is refused.
        self._largest: Callable[[], Mapping[str, int]] = dict

    # No method keeps the producer in a local variable: an exception keeps its frames alive, and the producer must
    # end when it is released, not when the last exception that it raised is released.

    def _made(self) -> Producer:
        return clients.WRITER.make(self._settings, self._own)

    def initialise(self, is_cancelled: Callable[[], bool], timeout_seconds: float) -> None:
        """Fence every earlier writer of the task and end its open transaction.

        Raises `WriterLost` when this does not succeed in time, or when cancelled.
        """
        deadline = time.monotonic() + timeout_seconds
        self._partitions.forget()
        if self._is_initialised and self._producer is not None:
            # The takeover was interrupted after its fence, and is repeated: librdkafka initialises a producer only
            # once.
            self._producer = self._made()
            self._is_initialised = False
        # These connect while the first one tries to initialise.
        spares = deque(self._made() for _ in range(2))
        try:
            for seconds in _tries():
                try:
                    self._open().init_transactions(min(seconds, timeout_seconds))
                    self._is_initialised = True
                    return
                except KafkaException as error:
                    is_final = not error.args[0].retriable() or time.monotonic() > deadline or is_cancelled()
                    if is_final:
                        self._explain(error)
                    # This was the last reference: the producer ends here, before it can retry.
                    self._producer = None
                    if is_final:
                        raise _lost(error.args[0], "initialising the producer") from error
                self._producer = spares.popleft()
                spares.append(self._made())
        finally:
            spares.clear()

    def begin(self, record: bytes) -> int:
        """Begin a transaction with its commit record; return the record's offset once acknowledged."""
        self._began = time.monotonic()
        self._end = None
        self._places = {}
        self._largest = dict
        undelivered: KafkaError | None = None

        def delivered(error: KafkaError | None, message: Message) -> None:
            nonlocal undelivered
            if error is None:
                self._delivered(error, message)
            else:
                # Do nothing else here: if the producer was fenced, its error is pending while this runs, and is lost
                # by any Python look-up (confluent-kafka 2.16: "NULL without setting an exception").
                undelivered = error

        with self._errors("beginning a transaction"):
            self._open().begin_transaction()
            self._produce(
                self._changelog, [{"key": COMMIT, "value": record, "callback": delivered}], self._partition
            )
            self._open().flush(self._timeout)
            if _is_dropped(undelivered):
                self._check_rights({self._changelog}, "beginning a transaction")
        return (
            self._arrived_end(
                f"{self._explained('beginning a transaction')}: its commit record did not arrive"
            )
            - 1
        )

    def prepare(self, outputs: Outputs, changes: Changes, offsets: Offsets, metadata: str) -> None:
        """Write these outputs, changelog records and input offsets to the open transaction."""
        self._largest = partial(_largest, outputs, changes, self._changelog)
        positions = [
            TopicPartition(topic, self._partition, offset, metadata)
            for topic, offset in zip(self._inputs, offsets.each, strict=True)
        ]
        with self._errors("writing a transaction"):
            try:
                self._hand_over(outputs, changes)
                self._open().send_offsets_to_transaction(positions, self._group, self._timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001
                    raise
                # An earlier record was refused, maybe while the offsets were sent. The next call, which cannot
                # succeed, reports the reason.
                self._open().send_offsets_to_transaction(positions, self._group, self._timeout)
                raise

    def _hand_over(self, outputs: Outputs, changes: Changes) -> None:
        self._emit(outputs)
        if changes:
            self._end = None
            records: list[_Record] = [{"key": key, "value": value} for key, value in changes.items()]
            # Offsets increase within a partition, so the last record's is enough.
            records[-1]["callback"] = self._delivered
            self._produce(self._changelog, records, self._partition)

    def commit(self) -> int:
        """Commit the transaction; return the changelog offset after its last record."""
        with self._errors("committing a transaction"):
            self._open().commit_transaction(self._timeout)
        self._largest = dict
        return self._arrived_end(
            "the transaction was committed, but the changelog's offset did not come back"
        )

    def abort(self) -> None:
        """Abort the transaction if possible; never raises."""
        if self._producer is not None:
            try:
                # Flush first: librdkafka drops pending records, so their partitions might not get the abort marker.
                self._producer.flush(self._timeout)
                self._producer.abort_transaction(self._timeout)
            except (KafkaException, SystemError):
                # The next owner's fence aborts it.
                self.close()

    def places(self) -> Mapping[Place, int]:
        """Return the offset of the last commit's last record in each partition."""
        return dict(self._places)

    def sweep(self, spared: Collection[Place] = ()) -> Mapping[Place, int]:
        """Abort a transaction in every partition that the task may have written to; return its record offsets."""
        self._began = time.monotonic()
        arrived: dict[Place, int] = {}
        undelivered: KafkaError | None = None

        def delivered(error: KafkaError | None, message: Message) -> None:
            nonlocal undelivered
            if error is not None:
                undelivered = error  # do nothing else here, as in `begin`
            elif (offset := message.offset()) is not None and offset >= 0:
                arrived[message.topic() or "", message.partition() or 0] = offset

        record: _Record = {"key": _NO_KEY, "value": b"", "callback": delivered}
        places: set[Place] = {(self._changelog, self._partition)}
        with self._errors("ending what hangs"):
            self._open().begin_transaction()
            for topic in self._outputs:
                # It is not known which of an output's partitions were written to.
                described = self._open().list_topics(topic, self._timeout).topics[topic]
                if described.error is not None:
                    raise KafkaException(described.error)
                places.update((topic, number) for number in described.partitions)
            places.difference_update(spared)
            for topic, number in sorted(places):
                self._produce(topic, [dict(record)], number)
            # Flush and check first: librdkafka drops pending records when it aborts.
            self._open().flush(self._timeout)
            if missing := sorted(places - arrived.keys()):
                if _is_dropped(undelivered):
                    self._check_rights({topic for topic, _ in missing}, "ending what hangs")
                listed = ", ".join(f"{topic}-{number}" for topic, number in missing)
                raise WriterLost(f"{self._explained('ending what hangs')}: no answer from {listed}")
            nowhere = [TopicPartition(topic, self._partition, 0, "") for topic in self._inputs]
            self._open().send_offsets_to_transaction(nowhere, self._group, self._timeout)
            self._open().abort_transaction(self._timeout)
        return arrived

    def close(self) -> None:
        """Drop the producer and all that it has not delivered. May be called beside any other method.

        Its own close() is not used: it tries to abort, and would wait for an unavailable broker.
        """
        # Another thread may be in a call: it finds no producer for its next one, so nothing is added after the purge.
        producer, self._producer = self._producer, None
        if producer is not None and len(producer):
            _purge(producer)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Translate librdkafka's errors: after any of them, this producer is unusable (measured)."""
        try:
            yield
        except KafkaException as error:
            raise self._failure(error.args[0], what) from error
        except SystemError as error:
            # The cause of an error in a callback is attached to it.
            cause = error.__cause__
            if isinstance(cause, KafkaException):
                raise self._failure(cause.args[0], what) from error
            raise WriterLost(f"{self._explained(what)}: {error}", is_late=self._is_late) from error

    def _failure(self, reason: object, what: str) -> WriterLost | BadConfiguration:
        if isinstance(reason, KafkaError) and (
            reason.code() in TOO_LARGE
            # A commit that detects a refused record does not report the reason.
            or (reason.code() == KafkaError._INCONSISTENT and self._sizes.is_over(self._largest()))  # noqa: SLF001
        ):
            return RecordTooLarge(f"{what}: {self._sizes.refused(self._largest(), reason.str())}")
        if isinstance(reason, KafkaError) and (why := _REFUSED_RECORD.get(reason.code())):
            return RecordRefused(f"{what}: Kafka refuses a record: {reason.str()} ({why})")
        return _lost(reason, self._explained(what), is_late=self._is_late)

    def _check_rights(self, topics: Collection[str], what: str) -> None:
        """Raise `BadConfiguration` if records were dropped because writing to ``topics`` is not permitted.

        In that case the producer is closed: no transaction is open, and further calls may crash librdkafka.
        """
        if refused := self._rights.not_writable(topics):
            self.close()
            raise BadConfiguration(
                f"{what}: Kafka refuses it: no right to write to {', '.join(refused)} (operation Write)"
            )

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self._began >= self._timeout

    def _explained(self, what: str) -> str:
        """Return ``what`` with the likely reason: Kafka reports a time-out like a fence."""
        seconds = time.monotonic() - self._began
        if seconds < self._timeout:
            return what
        return f"{what} that has taken {seconds:.1f} s (job.transaction.timeout.ms is {self._timeout * 1000:.0f})"

    def _arrived_end(self, otherwise: str) -> int:
        """Return the offset after the last acknowledged changelog record. Raises `WriterLost` with ``otherwise``."""
        if self._end is None:
            raise WriterLost(otherwise)
        return self._end

    def _open(self) -> Producer:
        if self._producer is None:
            raise WriterLost("the producer is closed")
        return self._producer

    def _emit(self, outputs: Outputs) -> None:
        """Produce the outputs; the order of records with the same key is kept."""
        for topic, records in outputs.by_topic.items():
            if records.keys:
                self._emit_to(topic, records)

    def _emit_to(self, topic: str, outputs: TopicRecords) -> None:
        for partition, numbers in self._partitions.parts(topic, outputs.keys):
            records: list[_Record] = [
                {"key": outputs.keys[number], "value": outputs.values[number]} for number in numbers
            ]
            # Offsets increase within a partition, so the last record's is enough.
            for record in records if partition == BY_LIBRARY else records[-1:]:
                record["callback"] = self._arrived
            begin = 0
            # A batch supports neither (confluent-kafka 2.16 documents the timestamp, but refuses it).
            for at, number in enumerate(numbers) if outputs.special else ():
                if number in outputs.special:
                    self._produce(topic, records[begin:at], partition)
                    self._produce_one(topic, records[at], partition, *outputs.special[number])
                    begin = at + 1
            self._produce(topic, records[begin:], partition)

    def _count_of(self, topic: str) -> int | None:
        """Return an output's number of partitions; None without an answer in time."""
        try:
            described = self._open().list_topics(topic, min(self._timeout, _COUNT_SECONDS)).topics[topic]
        except KafkaException:
            return None
        return len(described.partitions) if described.error is None else None

    def _produce(self, topic: str, records: list[_Record], partition: int) -> None:
        """Produce records in one call: separate calls took a third of a batch's time (docs/benchmarks.md)."""
        while records and self._open().produce_batch(topic, records, partition) < len(records):
            # Refused records contain their error. A full queue takes no record after the first refused one, so the
            # order is kept.
            records = [each for each in records if "_error" in each]
            for each in records:
                error = each.pop("_error")
                if error.code() != KafkaError._QUEUE_FULL:  # noqa: SLF001
                    raise self._not_taken(error, topic)
            self._await_room(topic, records[0])

    def _produce_one(
        self,
        topic: str,
        record: _Record,
        partition: int,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> None:
        pairs: list[tuple[str, str | bytes | None]] = [*headers]
        while True:
            try:
                # 0: the time at which it is sent.
                self._open().produce(
                    topic, **record, partition=partition, headers=pairs, timestamp=timestamp_ms or 0
                )
                return
            except BufferError:
                self._await_room(topic, record)
            except KafkaException as error:
                raise self._not_taken(error.args[0], topic) from error

    def _not_taken(self, error: KafkaError, topic: str) -> KafkaException | WriterLost:
        """Return what to raise for a record that the client does not take."""
        if error.code() != KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001
            return KafkaException(error)
        # The client knows fewer partitions than the writer, for example from a broker that lags behind a growth.
        self._partitions.forget()
        return WriterLost(f"{topic}: the client does not know a partition of it yet: {error.str()}")

    def _await_room(self, topic: str, record: _Record) -> None:
        """Return when the broker may have taken some queued records, or the writer was closed.

        Raises `RecordTooLarge` when none is queued: then there will never be room for ``record``.
        """
        # The report of each one that was taken is queued until it is polled, and that is only here.
        if not len(self._open()):
            size = len(record["key"] or b"") + len(record["value"] or b"")
            raise RecordTooLarge(
                f"a record of {size} bytes, key and value, is too large for {topic}: the client's queue has no room "
                f"for it, {_QUEUE_SIZE} is {self._settings.get(_QUEUE_SIZE.removeprefix('kafka.'))}"
            )
        self._open().poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None and (offset := message.offset()) is not None and offset >= 0:
            self._end = offset + 1
            self._places[self._changelog, self._partition] = offset

    def _arrived(self, error: KafkaError | None, message: Message) -> None:
        """Record an output's offset. It may be called for every output, so it is minimal."""
        if error is None:
            # Acknowledgements of a partition arrive in order.
            self._places[message.topic(), message.partition()] = message.offset()  # type: ignore[index, assignment]


def _purge(producer: Producer) -> None:
    """Return when no request of ``producer`` waits for an answer.

    An answer must not arrive while a producer ends. If it says that the producer is fenced, librdkafka 2.16 frees the
    text of an error that it has freed already (`rd_kafka_txns_term`), and the process aborts.
    """
    # confluent-kafka 2.16 means the opposite by `blocking`. If false, it would wait, and hold the interpreter's lock
    # meanwhile. Here `poll` waits, without the lock, until everything is reported as purged.
    producer.purge(blocking=True)
    deadline = time.monotonic() + _PURGE_SECONDS
    while len(producer) and time.monotonic() < deadline:
        # It raises the errors of callbacks, and once that the producer is fenced.
        with suppress(KafkaException, SystemError):
            producer.poll(0.05)


def _is_dropped(error: KafkaError | None) -> bool:
    """Return whether a record was dropped before it was sent, because its transaction had failed."""
    return error is not None and error.code() == KafkaError._PURGE_QUEUE  # noqa: SLF001


def _tries() -> Iterator[float]:
    yield from _FIRST_TRIES
    while True:
        yield _TRY_SECONDS


def _lost(reason: object, what: str, *, is_late: bool = False) -> WriterLost | BadConfiguration:
    if not isinstance(reason, KafkaError):
        return WriterLost(f"{what}: {reason}", is_late=is_late)
    if reason.code() in _NEVER_TAKEN:
        return BadConfiguration(f"{what}: Kafka refuses it: {reason.str()}")
    return WriterLost(
        f"{what}: {reason.name()}: {reason.str()}", fenced=reason.code() in FENCED, is_late=is_late
    )


def _largest(outputs: Outputs, changes: Changes, changelog: str) -> Mapping[str, int]:
    """Return the bytes of the largest record for each topic: key, value and headers."""
    found: dict[str, int] = {}
    for topic, key, value, headers, _ in outputs:
        in_headers = sum(len(name.encode()) + len(content or b"") for name, content in headers)
        size = len(key or b"") + len(value or b"") + in_headers
        found[topic] = max(size, found.get(topic, 0))
    if changes:
        found[changelog] = max(len(key) + len(value or b"") for key, value in changes.items())
    return found
