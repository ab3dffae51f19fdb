"""Kafka as the kernel of one job sees it, through confluent-kafka (librdkafka)."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Collection, Mapping, Sequence
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
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from standby.adapters.kafka_changelog import KafkaChangelog
from standby.adapters.kafka_input import EARLIEST, LATEST, InputReader, list_offsets, offset_in
from standby.adapters.kafka_writer import KafkaWriter
from standby.adapters.lasting import RECONNECT_MS, Lasting, lasting_admin
from standby.config import JobConfig, kafka_settings
from standby.errors import StandfastError, Transient, Unavailable
from standby.kernel.ports import ANSWER_SECONDS
from standby.model import InputPartition, TaskId
from standby.naming import transactional_id
from standby.replica.claim import Committed
from standby.replica.failing import InputRecord
from standby.wire import JobDefinition

#: What no repetition mends; everything else a broker says may be different in a moment.
_HOPELESS: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own errors are named like this
        KafkaError.UNSUPPORTED_VERSION,
    }
)


def translate(error: KafkaException, what: str) -> StandfastError:
    """Return the error of ours for one of Kafka's that came while doing ``what``."""
    reason = error.args[0]
    if isinstance(reason, KafkaError):
        text = f"{what}: {reason.name()}: {reason.str()}"
        return Unavailable(text) if reason.code() in _HOPELESS else Transient(text)
    return Transient(f"{what}: {reason}")


class KafkaBroker:
    """The Kafka cluster of one job; its admin client and its connections live as long as it."""

    def __init__(self, cluster: str, config: JobConfig, definition: JobDefinition) -> None:
        self._cluster = cluster
        self._config = config
        self._definition = definition
        self._inputs = config.inputs
        self._admin = lasting_admin(kafka_settings(config))
        # Only a consumer knows a group's metadata; it never subscribes, so it never joins.
        member = kafka_settings(
            config,
            group_id=definition.group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            retry_backoff_ms=5,
            retry_backoff_max_ms=50,
            reconnect_backoff_max_ms=RECONNECT_MS,
        )
        self._member = Lasting(lambda: Consumer(member))
        with self._member.use() as consumer:
            self._group = consumer.consumer_group_metadata()
        self._changelog_id: str | None = None

    def changelog_id(self) -> str:
        """Return Kafka's id of the changelog topic."""
        if self._changelog_id is None:
            topic = self._definition.changelog
            with self._admin.use() as admin:
                asked = admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)
                described = _answer(asked[topic], f"describing {topic}")
            self._changelog_id = str(described.topic_id)
        return self._changelog_id

    def changelog_bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end (read uncommitted) of a changelog partition."""
        (bounds,) = self._bounds([(self._definition.changelog, partition)], IsolationLevel.READ_UNCOMMITTED)
        return bounds

    def changelog_ends(
        self, partitions: Collection[int], *, is_stable: bool = False, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        """Return the ends of changelog partitions: of all records, or the last stable offset."""
        level = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
        places = [(self._definition.changelog, each) for each in partitions]
        found, _ = self._offsets(places, level, (LATEST,), timeout_seconds)
        return {partition: offset for (_, partition), (offset,) in found.items()}

    def input_bounds(self, partition: int) -> Sequence[tuple[int, int]]:
        """Return the first offset and the end of a partition of each input."""
        return self._bounds([(topic, partition) for topic in self._inputs], IsolationLevel.READ_COMMITTED)

    def input_ends(
        self, partitions: Collection[int], *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Mapping[int, int]:
        """Return where each partition ends, as a reader of committed records sees it: the sum over the inputs."""
        places = [(topic, each) for each in partitions for topic in self._inputs]
        ends, _ = self._offsets(places, IsolationLevel.READ_COMMITTED, (LATEST,), timeout_seconds)
        told = [each for each in partitions if all((topic, each) in ends for topic in self._inputs)]
        if partitions and not told:
            raise Transient(
                f"reading the ends of {', '.join(self._inputs)}: no partition answers in all of them"
            )
        return {each: sum(ends[topic, each][0] for topic in self._inputs) for each in told}

    def committed(self, partitions: Collection[int]) -> Mapping[int, Sequence[Committed | None]]:
        """Return the stable committed offset of each partition of each input, None where there is none."""
        numbers = ", ".join(map(str, sorted(partitions)))
        what = f"reading the committed offsets of {', '.join(self._inputs)}-{numbers}"
        asked = [TopicPartition(topic, each) for each in partitions for topic in self._inputs]
        try:
            # Not the AdminClient's list_consumer_group_offsets: librdkafka 2.16 can end the process with a
            # segmentation fault there. A consumer that reads committed asks for stable offsets, and asks
            # again by itself while a commit is still on its way into the offsets topic.
            with self._member.use() as member:
                found = {
                    (each.topic, each.partition): each for each in member.committed(asked, ANSWER_SECONDS)
                }
        except KafkaException as error:
            raise translate(error, what) from error
        for each in found.values():
            if each.error is not None:
                raise translate(KafkaException(each.error), what)
        return {
            partition: tuple(_committed(found[topic, partition]) for topic in self._inputs)
            for partition in partitions
        }

    def read_input(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Return the record of an input at an offset; None when no committed record lies there."""
        what = f"reading {topic}-{partition} at {offset}"
        ((first, end),) = self._bounds([(topic, partition)], IsolationLevel.READ_COMMITTED)
        if not first <= offset < end:
            return None
        # Rare: a reader of its own is simpler than one that is kept.
        reader = InputReader(kafka_settings(self._config), (topic,), self._definition.group)
        try:
            reader.assign({(topic, partition): offset})
            deadline = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < deadline:
                for message in reader.read(1, 0.1):
                    return _record(message) if message.offset() == offset else None
                if reader.positions()[topic, partition] > offset:
                    return None  # a transaction's marker, or records that were aborted
        finally:
            reader.close()
        raise Transient(f"{what}: no answer")

    def open_changelog(self) -> KafkaChangelog:
        """Return a new reader of the changelog."""
        return KafkaChangelog(self._config, self._definition)

    def open_writer(self, partition: int) -> KafkaWriter:
        """Return a new producer for a task; it fences nobody before it is initialised."""
        task = TaskId(self._definition.name, self._config.stage, partition)
        return KafkaWriter(
            self._config, self._definition, partition, transactional_id(self._cluster, task), self._group
        )

    def close(self) -> None:
        """End the clients that the broker's own questions use."""
        with self._member.use() as member:
            member.close()

    def _bounds(
        self, places: Collection[InputPartition], level: IsolationLevel
    ) -> tuple[tuple[int, int], ...]:
        """Return the first offset and the end of each place, all of them in one round trip."""
        found, failure = self._offsets(places, level, (EARLIEST, LATEST))
        if failure is not None:
            raise failure
        return tuple((first, end) for first, end in (found[each] for each in places))

    def _offsets(
        self,
        places: Collection[InputPartition],
        level: IsolationLevel,
        specs: Sequence[OffsetSpec],
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> tuple[dict[InputPartition, tuple[int, ...]], StandfastError | None]:
        """Return what each place has for ``specs``, and why some are not among them; raises when none is."""
        if not places:
            return {}, None
        kind = "end" if len(specs) == 1 else "bounds"

        def offset_of(answer: concurrent.futures.Future[Any], place: InputPartition) -> int:
            what = f"reading the {kind} of {place[0]}-{place[1]}"
            return offset_in(_answer(answer, what, timeout_seconds), what)

        with self._admin.use() as admin:
            return list_offsets(admin, places, level, specs, timeout_seconds, offset_of)


def _committed(found: TopicPartition) -> Committed | None:
    return None if found.offset < 0 else Committed(found.offset, found.metadata or "")


def _record(message: Message) -> InputRecord:
    # Its types leave open whether this is a mapping; it is a list of pairs.
    headers: Any = message.headers()
    return InputRecord(
        message.offset() or 0, _bytes(message.key()), _bytes(message.value()), tuple(headers or ())
    )


def _bytes(value: Any) -> bytes | None:
    """Return what is bytes as long as no deserializer is set; the client's types allow for one."""
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def _answer(
    future: concurrent.futures.Future[Any], what: str, timeout_seconds: float = ANSWER_SECONDS
) -> Any:
    """Return what the future brings; the time-out here is only for an answer that never comes at all."""
    try:
        return future.result(timeout_seconds + 1)
    except KafkaException as error:
        raise translate(error, what) from error
    except concurrent.futures.TimeoutError as error:
        raise Transient(f"{what}: no answer") from error


def connect(cluster: str, config: JobConfig, definition: JobDefinition) -> KafkaBroker:
    """Return Kafka as the kernel of a job sees it; asks nothing yet."""
    return KafkaBroker(cluster, config, definition)
