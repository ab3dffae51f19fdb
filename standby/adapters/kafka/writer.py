"""The transactional producer of one task (rules `whole-batch`, `commit-first`, `writer-id`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import Names
from standby.adapters.kafka.codes import FENCED, MISSING, REFUSED, TOO_LARGE
from standby.adapters.kafka.limits import Rights, Sizes
from standby.config import JobConfig, kafka_settings
from standby.errors import BadConfiguration
from standby.kernel.ports import Place, RecordRefused, RecordTooLarge, WriterLost
from standby.replica.store.keys import COMMIT
from standby.replica.store.overlay import Changes, Emitted
from standby.shared.model import Offsets

#: How long the first attempts to initialise may take. librdkafka asks again only 500 ms after the
#: coordinator said "I am still aborting what the last owner left", which is the normal case when an active
#: dies in a transaction, and is over in some 10 ms. A new producer, already connected, asks at once; and the
#: one given up must be gone before it asks again, or it would fence its own successor.
_FIRST_TRIES: Final = (0.03, 0.03, 0.06, 0.06, 0.12, 0.25)

#: How long one later attempt may take; a coordinator that has to make its topic needs a second or two.
_TRY_SECONDS: Final = 3.0

#: The partition of a record whose key decides.
_BY_KEY: Final = -1

#: Of a record that is written for its transaction's marker alone.
_NO_KEY: Final = b"\x00"

#: A record as a batch takes it.
_Record = dict[str, Any]

#: What is wrong with a record itself, by the error with which its topic refuses it.
_REFUSED_RECORD: Final[Mapping[int, str]] = {
    KafkaError.INVALID_RECORD: "a compacted topic takes none without a key",
    KafkaError.INVALID_TIMESTAMP: "its time is further from the broker's than the topic's "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow",
}
#: What is never written, whoever tries again.
_NEVER_TAKEN: Final = REFUSED | MISSING | TOO_LARGE


@dataclass(frozen=True, slots=True)
class Refusal:
    """What tells more of a refusal than the brokers say with it."""

    sizes: Sizes
    rights: Rights
    explain: Callable[[BaseException], None] = lambda _error: None
    """Adds to the message of an error why brokers do not let this job's clients in, if they do not."""


class KafkaWriter:
    """Owns one librdkafka producer at a time, all with the task's transactional id."""

    def __init__(
        self,
        config: JobConfig,
        changelog: TopicPartition,
        transactional_id: str,
        group: Any,
        refusal: Refusal,
    ) -> None:
        """``changelog`` is the task's partition of it.

        The producer itself is not asked: with an ``error_cb``, confluent-kafka 2.16 drops the error of a producer
        that is fenced ("returned NULL without setting an exception").
        """
        sizes = refusal.sizes
        self._sizes, self._rights, self._explain = sizes, refusal.rights, refusal.explain
        self._settings = kafka_settings(config)
        self._own = {**clients.WRITER.of_job(config, Names("", transactional_id))}
        # A record that the brokers refuse takes all with it that is sent in one piece with it, and a piece may be
        # refused in which each record is small enough.
        if sizes.batch_bytes is not None:
            self._own["batch.size"] = sizes.batch_bytes
        self._changelog = changelog.topic
        self._inputs = config.inputs
        self._outputs = [each for each in (*config.outputs, config.dead_letter) if each]
        self._partition = changelog.partition
        self._group = group
        self._timeout = config.transaction_timeout_ms / 1000
        self._producer: Producer | None = self._made()
        self._is_initialised = False
        self._end: int | None = None
        #: The last record that arrived in each partition, of what was begun last.
        self._places: dict[Place, int] = {}
        self._began = 0.0
        #: The largest record of what was begun, key and value, of each topic; asked for when one is refused.
        self._largest: Callable[[], Mapping[str, int]] = dict

    # No method keeps the producer in a local variable: an exception keeps the frames it came through, and the
    # producer must end when it is dropped, not when the last exception that it raised is forgotten.

    def _made(self) -> Producer:
        return clients.WRITER.make(self._settings, self._own)

    def initialise(self, is_cancelled: Callable[[], bool], timeout_seconds: float) -> None:
        """Fence every earlier writer of the task and end what it left open.

        Raises `WriterLost` when that does not succeed in time, or when cancelled.
        """
        deadline = time.monotonic() + timeout_seconds
        if self._is_initialised and self._producer is not None:
            # The way to active broke off behind its fence, and is gone once more: librdkafka initialises a producer
            # only once, and would refuse.
            self._producer = self._made()
            self._is_initialised = False
        # Connecting while the first one tries.
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
                    # Its last reference: the producer ends here, before it could ask again.
                    self._producer = None
                    if is_final:
                        raise _lost(error.args[0], "initialising the producer") from error
                self._producer = spares.popleft()
                spares.append(self._made())
        finally:
            spares.clear()

    def begin(self, record: bytes) -> int:
        """Begin a transaction with its commit record; return its offset once it has arrived."""
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
                # No more than this: where the producer was fenced, its error waits to be raised while this runs, and is
                # lost when Python looks anything up (confluent-kafka 2.16: "NULL without setting an exception").
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
            self._arrived_end(f"{self._told('beginning a transaction')}: its commit record did not arrive")
            - 1
        )

    def prepare(self, outputs: Sequence[Emitted], changes: Changes, offsets: Offsets, metadata: str) -> None:
        """Write these outputs, changelog records and input offsets to what has begun."""
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
                # Something before was refused, maybe while the offsets were sent; what, is told by the next call,
                # which cannot succeed.
                self._open().send_offsets_to_transaction(positions, self._group, self._timeout)
                raise

    def _hand_over(self, outputs: Sequence[Emitted], changes: Changes) -> None:
        self._emit(outputs)
        if changes:
            self._end = None
            records: list[_Record] = [{"key": key, "value": value} for key, value in changes.items()]
            # Offsets rise within a partition, so the last record's is enough.
            records[-1]["callback"] = self._delivered
            self._produce(self._changelog, records, self._partition)

    def commit(self) -> int:
        """Commit what was prepared; return the changelog offset after its last record."""
        with self._errors("committing a transaction"):
            self._open().commit_transaction(self._timeout)
        self._largest = dict
        return self._arrived_end(
            "the transaction was committed, but the changelog's offset did not come back"
        )

    def abort(self) -> None:
        """Abort what was prepared, if that is possible; never raises."""
        if self._producer is not None:
            try:
                # Sent before, or what it was for might not be told of the end: librdkafka drops what still waits.
                self._producer.flush(self._timeout)
                self._producer.abort_transaction(self._timeout)
            except (KafkaException, SystemError):
                # The next owner's fence aborts it.
                self.close()

    def places(self) -> Mapping[Place, int]:
        """Return the offset of a last record in each partition that the last commit wrote to."""
        return dict(self._places)

    def sweep(self, spared: Collection[Place] = ()) -> Mapping[Place, int]:
        """Abort a transaction in every partition that one of the task's may have touched; return where it wrote."""
        self._began = time.monotonic()
        arrived: dict[Place, int] = {}
        undelivered: KafkaError | None = None

        def delivered(error: KafkaError | None, message: Message) -> None:
            nonlocal undelivered
            if error is not None:
                undelivered = error  # no more than this, as in `begin`
            elif (offset := message.offset()) is not None and offset >= 0:
                arrived[message.topic() or "", message.partition() or 0] = offset

        record: _Record = {"key": _NO_KEY, "value": b"", "callback": delivered}
        places: set[Place] = {(self._changelog, self._partition)}
        with self._errors("ending what hangs"):
            self._open().begin_transaction()
            for topic in self._outputs:
                # Which of an output's partitions were written to is not known any more.
                described = self._open().list_topics(topic, self._timeout).topics[topic]
                if described.error is not None:
                    raise KafkaException(described.error)
                places.update((topic, number) for number in described.partitions)
            places.difference_update(spared)
            for topic, number in sorted(places):
                self._produce(topic, [dict(record)], number)
            # Sent and confirmed before: librdkafka drops what still waits when it aborts.
            self._open().flush(self._timeout)
            if missing := sorted(places - arrived.keys()):
                if _is_dropped(undelivered):
                    self._check_rights({topic for topic, _ in missing}, "ending what hangs")
                told = ", ".join(f"{topic}-{number}" for topic, number in missing)
                raise WriterLost(f"{self._told('ending what hangs')}: no answer from {told}")
            nowhere = [TopicPartition(topic, self._partition, 0, "") for topic in self._inputs]
            self._open().send_offsets_to_transaction(nowhere, self._group, self._timeout)
            self._open().abort_transaction(self._timeout)
        return arrived

    def close(self) -> None:
        """Drop the producer.

        Not by its own close(): that one tries to abort, and would wait for a broker that is away.
        """
        self._producer = None

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Translate what librdkafka raises: all of it means that this producer is done for (facts measured)."""
        try:
            yield
        except KafkaException as error:
            raise self._failure(error.args[0], what) from error
        except SystemError as error:
            # An error that came up inside of a callback has its cause beneath it.
            cause = error.__cause__
            if isinstance(cause, KafkaException):
                raise self._failure(cause.args[0], what) from error
            raise WriterLost(f"{self._told(what)}: {error}", is_late=self._is_late) from error

    def _failure(self, reason: object, what: str) -> WriterLost | BadConfiguration:
        if isinstance(reason, KafkaError) and (
            reason.code() in TOO_LARGE
            # A commit says no more than that a record was refused, when it hears of that itself.
            or (reason.code() == KafkaError._INCONSISTENT and self._sizes.is_over(self._largest()))  # noqa: SLF001
        ):
            return RecordTooLarge(f"{what}: {self._sizes.refused(self._largest(), reason.str())}")
        if isinstance(reason, KafkaError) and (why := _REFUSED_RECORD.get(reason.code())):
            return RecordRefused(f"{what}: Kafka refuses a record: {reason.str()} ({why})")
        return _lost(reason, self._told(what), is_late=self._is_late)

    def _check_rights(self, topics: Collection[str], what: str) -> None:
        """Raise `BadConfiguration` where records were dropped because ``topics`` may not be written to.

        The producer is dropped then: nothing is open, and librdkafka can end the process when it is asked for more.
        """
        if refused := self._rights.not_writable(topics):
            self.close()
            raise BadConfiguration(
                f"{what}: Kafka refuses it: no right to write to {', '.join(refused)} (operation Write)"
            )

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self._began >= self._timeout

    def _told(self, what: str) -> str:
        """Return ``what`` with the likely reason: Kafka's own words for a time-out are those of a fence."""
        seconds = time.monotonic() - self._began
        if seconds < self._timeout:
            return what
        return f"{what} that has taken {seconds:.1f} s (job.transaction.timeout.ms is {self._timeout * 1000:.0f})"

    def _arrived_end(self, otherwise: str) -> int:
        """Return the offset after the last record that arrived in the changelog; raises `WriterLost`: ``otherwise``."""
        if self._end is None:
            raise WriterLost(otherwise)
        return self._end

    def _open(self) -> Producer:
        if self._producer is None:
            raise WriterLost("the producer is closed")
        return self._producer

    def _emit(self, outputs: Sequence[Emitted]) -> None:
        """Hand the outputs over, those of a topic in their order."""
        batches: dict[str, list[_Record]] = {}
        for topic, key, value, headers, timestamp_ms in outputs:
            batch = batches.get(topic)
            if batch is None:
                batch = batches[topic] = []
            if headers or timestamp_ms is not None:
                # A batch takes neither (confluent-kafka 2.16 documents the time, and refuses it).
                self._produce(topic, batch)
                batch.clear()
                self._produce_one(topic, key, value, headers or (), timestamp_ms)
            else:
                batch.append({"key": key, "value": value, "callback": self._arrived})
        for topic, batch in batches.items():
            self._produce(topic, batch)

    def _produce(self, topic: str, records: list[_Record], partition: int = _BY_KEY) -> None:
        """Hand records over in one call: a call for each took a third of a batch's time (docs/benchmarks.md)."""
        while records and self._open().produce_batch(topic, records, partition) < len(records):
            # What is refused has the reason beside it. A full queue takes nothing after the first it refuses, so
            # that the order stays.
            records = [each for each in records if "_error" in each]
            for each in records:
                error = each.pop("_error")
                if error.code() != KafkaError._QUEUE_FULL:  # noqa: SLF001
                    raise KafkaException(error)
            self._await_room()

    def _produce_one(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Mapping[str, bytes] | Sequence[tuple[str, bytes | None]],
        timestamp_ms: int | None,
    ) -> None:
        pairs: list[tuple[str, str | bytes | None]] = [
            *(headers.items() if isinstance(headers, Mapping) else headers)
        ]
        while True:
            try:
                # 0: the time at which it is sent.
                self._open().produce(
                    topic,
                    key=key,
                    value=value,
                    headers=pairs,
                    timestamp=timestamp_ms or 0,
                    on_delivery=self._arrived,
                )
                return
            except BufferError:
                self._await_room()

    def _await_room(self) -> None:
        """Return when the broker may have taken some of what is queued, or somebody closed this."""
        self._open().poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None and (offset := message.offset()) is not None and offset >= 0:
            self._end = offset + 1
            self._places[self._changelog, self._partition] = offset

    def _arrived(self, error: KafkaError | None, message: Message) -> None:
        """Note where an output is. Called for each one, so it does no more than it must."""
        if error is None:
            # Those of a partition arrive in order.
            self._places[message.topic(), message.partition()] = message.offset()  # type: ignore[index, assignment]


def _is_dropped(error: KafkaError | None) -> bool:
    """Return whether a record was dropped before it was sent: its transaction had failed."""
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


def _largest(outputs: Sequence[Emitted], changes: Changes, changelog: str) -> Mapping[str, int]:
    """Return the bytes of the largest record for each topic: key, value and headers."""
    found: dict[str, int] = {}
    for topic, key, value, headers, _ in outputs:
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(each or b"") for name, each in pairs)
        found[topic] = max(size, found.get(topic, 0))
    if changes:
        found[changelog] = max(len(key) + len(value or b"") for key, value in changes.items())
    return found
