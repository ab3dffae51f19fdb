"""Kafka for the master and the command line: the event log, topics, and the fence of a kill."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from appmaster.adapters.kafka_release import shape_of
from appmaster.eventlog.entries import EntryKind, LogEntry, entry_document
from appmaster.topics.ports import TopicShape
from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import ClientNames, answer_of
from standby.adapters.kafka.offsets import EARLIEST, offset_in
from standby.adapters.kafka.refusals import Refusals
from standby.config import JobConfig, KafkaSettings, kafka_settings, parse
from standby.errors import Transient, Unavailable
from standby.shared import naming
from standby.shared.clock import REAL, Clock
from standby.shared.model import TaskId
from standby.shared.wire import JobDefinition

_log = logging.getLogger(__name__)

#: What every entry of an event log has.
_FIELDS = entry_document(LogEntry(EntryKind.TASKS_FENCED), 0, 0).keys()

#: The partition of an event log. If the topic was missing, a broker may have made it for the first entry, with as many
#: partitions as it gives any topic: the others stay empty.
_PARTITION = 0

#: Time after which every broker knows of a topic that was created or changed.
_NEW_TOPIC_SECONDS = 10.0
_LOOK_SECONDS = 0.05

#: Default time to wait for an answer.
ANSWER_SECONDS = 30.0

#: Time to wait for the answer why a partition cannot be read.
_WHY_SECONDS = 5.0


class EventLog:
    """Writes the cluster's event log: one JSON object per record, in order, without ever blocking the leader."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._topic = topic
        self._producer = clients.EVENTS_WRITER.make(settings, logger=clients.LIBRARY_LOG)

    def append(self, entry: Mapping[str, object]) -> None:
        """Append an entry; while the broker is unavailable it waits in memory, and is dropped if that is full."""
        try:
            value = json.dumps(entry).encode()
            self._producer.produce(self._topic, value, partition=_PARTITION, on_delivery=self._delivered)
        except (BufferError, KafkaException) as error:
            _log.warning("the event log cannot be written: %s; dropped: %s", error, entry)
        self._producer.poll(0)

    @staticmethod
    def _delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            _log.warning("an entry of the event log was lost: %s", error)

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Write out the waiting entries."""
        self._producer.flush(timeout_seconds)


@contextmanager
def _events_reader(settings: KafkaSettings, topic: str) -> Iterator[tuple[Consumer, int, int]]:
    """Return a consumer for an event log, the log's first offset, and its end; raises `Unavailable`."""
    refusals = Refusals()
    consumer = clients.EVENTS_READER.make(settings, error_cb=refusals.note, logger=clients.LIBRARY_LOG)
    try:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, _PARTITION), timeout=10)
        except KafkaException as error:
            refusals.explain(error, consumer)
            # The error itself may only say that there was no answer in time.
            why = "" if refusals.why() else _why_unreadable(consumer, topic)
            raise Unavailable(
                f"the event log {topic} cannot be read: {why or error.args[0].str()}"
            ) from error
        yield consumer, low, high
    finally:
        clients.close_consumer(consumer)


def first_event(settings: KafkaSettings, topic: str) -> int:
    """Return the first offset of an event log: above 0, entries before it have expired; raises `Unavailable`."""
    with _events_reader(settings, topic) as (_, low, _):
        return low


def read_events(
    settings: KafkaSettings, topic: str, *, follow: bool, stop: Callable[[], bool], clock: Clock = REAL
) -> Iterator[dict[str, Any]]:
    """Yield the entries of the event log from its start; with ``follow``, wait for more until ``stop()``.

    Records that are no entries are left out, with a warning. Raises `Unavailable` if the broker or the topic cannot be
    read. If that happens in between, it is raised when no entry has come for `ANSWER_SECONDS`; with ``follow``, a
    warning is logged instead, once until the log can be read.
    """
    with _events_reader(settings, topic) as (consumer, low, high):
        consumer.assign([TopicPartition(topic, _PARTITION, low)])
        position, waits_since, is_told, has_others = low, clock.monotonic(), False, False
        while not stop():
            if not follow and position >= high:
                return
            messages = consumer.consume(500, clock.pace(0.2))
            for message in messages:
                failure, offset = message.error(), message.offset()
                if failure is not None or offset is None:
                    why = failure.str() if failure is not None else "a record without an offset"
                    raise Unavailable(f"the event log {topic} cannot be read: {why}")
                position = offset + 1
                entry = _entry_in(message.value())
                if entry is not None:
                    yield entry
                elif not has_others:
                    has_others = True
                    _log.warning(
                        "the event log %s has records that are no entries; they are left out, the first at offset %d",
                        *(topic, offset),
                    )
            if messages:
                waits_since = clock.monotonic()
            elif clock.monotonic() - waits_since > ANSWER_SECONDS:
                why = _why_unreadable(consumer, topic)
                if not follow:
                    raise Unavailable(
                        f"the event log {topic} cannot be read to its end: {high - position} entries are left, and "
                        f"none came for {ANSWER_SECONDS:g} s{f': {why}' if why else ''}"
                    )
                if why and not is_told:
                    _log.warning("the event log %s cannot be read: %s; waiting for it", topic, why)
                waits_since, is_told = clock.monotonic(), bool(why)


def _entry_in(value: bytes | str | None) -> dict[str, Any] | None:
    """Return the entry in a record of an event log; None if it is none: whoever may write there can write anything."""
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() >= _FIELDS else None


def _why_unreadable(consumer: Consumer, topic: str) -> str:
    """Return why nothing can be read from an event log now; empty if its partition has a leader."""
    try:
        found = consumer.list_topics(topic, _WHY_SECONDS).topics[topic]
    except KafkaException as error:
        return f"no broker answers: {error.args[0].str()}"
    if found.error is not None:
        return str(found.error.str())
    has_leader = _PARTITION in found.partitions and found.partitions[_PARTITION].leader >= 0
    return "" if has_leader else f"partition {topic}-{_PARTITION} has no leader"


class Topics:
    """The operations of the command line on brokers."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connects at the first use; raises `BadConfiguration` for a setting that librdkafka rejects."""
        self._settings = dict(settings)
        self._refusals = Refusals()
        self._admin = clients.TOPICS.make(settings, error_cb=self._refusals.note, logger=clients.LIBRARY_LOG)

    def _said(self, error: KafkaException) -> str:
        """Return Kafka's error, with the reason if it rejects this client."""
        self._refusals.explain(error, self._admin)
        return str(error.args[0].str())

    @contextmanager
    def _or_unavailable(self, what: str, *expected: int) -> Iterator[None]:
        """Raise `Unavailable`, which begins with ``what``, for Kafka's errors; ``expected`` ones just end the block."""
        try:
            yield
        except KafkaException as error:
            if error.args[0].code() not in expected:
                raise Unavailable(f"{what}: {self._said(error)}") from error

    def partitions(self, timeout_seconds: float = 10.0) -> dict[str, int]:
        """Return every topic with its number of partitions; raises `Unavailable` if no broker answers."""
        try:
            metadata = self._admin.list_topics(timeout=timeout_seconds)
        except KafkaException as error:
            servers = self._settings.get("bootstrap.servers")
            raise Unavailable(
                f"no Kafka broker answers at {servers}: {self._said(error)}; "
                "check kafka.bootstrap.servers and that the brokers run"
            ) from error
        return {name: len(each.partitions) for name, each in metadata.topics.items()}

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False if it exists already. Not every broker knows it at once."""
        topic = NewTopic(name, partitions, replication, config=dict(config))
        try:
            answer_of(self._admin, self._admin.create_topics([topic])[name], ANSWER_SECONDS, name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise Unavailable(f"topic {name} cannot be created: {self._said(error)}") from error
        return True

    def count(self, name: str, timeout_seconds: float = 10.0) -> int:
        """Return a topic's number of partitions, 0 if there is no such topic.

        Asks for this topic only, and never causes it to be created. Raises `Unavailable` if no broker answers.
        """
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=timeout_seconds)
        try:
            return len(answer_of(self._admin, asked[name], timeout_seconds + 5, name).partitions)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise Unavailable(f"topic {name} cannot be described: {self._said(error)}") from error

    def ids(self, names: Collection[str], timeout_seconds: float = 10.0) -> dict[str, str]:
        """Return Kafka's id of each topic; topics that do not exist are left out. Raises `Unavailable`."""
        asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_seconds)
        found = {}
        for name, described in asked.items():
            with self._or_unavailable(f"topic {name} cannot be described", KafkaError.UNKNOWN_TOPIC_OR_PART):
                found[name] = str(answer_of(self._admin, described, timeout_seconds + 5, name).topic_id)
        return found

    def grow(self, name: str, partitions: int) -> None:
        """Enlarge a topic to this number of partitions, if it has fewer. Raises `Unavailable`."""
        if self.count(name) >= partitions:
            return
        done = self._admin.create_partitions([NewPartitions(name, partitions)], operation_timeout=30)[name]
        try:
            with self._or_unavailable(f"topic {name} cannot be enlarged"):
                answer_of(self._admin, done, 40.0, name)
        except Unavailable:
            # Another client may have enlarged it meanwhile.
            if self.count(name) < partitions:
                raise

    def commit_first(self, group: str, topic: str, partitions: Sequence[int], metadata: str) -> None:
        """Commit the first offset of those partitions for which the group has committed none; raises `Unavailable`."""
        asked = [TopicPartition(topic, each) for each in partitions]
        # A consumer that joins no group, as in `standby.adapters.kafka.broker`. The admin client's calls to a group's
        # coordinator can end the process (librdkafka 2.16, when a broker goes away at that moment).
        member = clients.OFFSETS.make(self._settings, {"group.id": group}, logger=clients.LIBRARY_LOG)
        try:
            with self._or_unavailable(f"offsets of {topic} cannot be committed for {group}"):
                known = clients.committed_offsets(member, asked, ANSWER_SECONDS)
                asked = [TopicPartition(topic, each.partition, EARLIEST) for each in known if each.offset < 0]
                found = member.offsets_for_times(asked, ANSWER_SECONDS) if asked else []
                first = [
                    TopicPartition(
                        topic, each.partition, offset_in(each, f"{topic}-{each.partition}"), metadata
                    )
                    for each in found
                ]
                if first:
                    for each in member.commit(offsets=first, asynchronous=False) or ():
                        if each.error is not None:
                            raise KafkaException(each.error)
        finally:
            clients.close_consumer(member)

    def shape(self, name: str, timeout_seconds: float = 30.0) -> TopicShape:
        """Return the settings and partitions of an existing topic; raises `Unavailable`.

        A broker learns of a new topic a moment after its creation; until then the topic is unknown to it.
        """
        give_up = time.monotonic() + _NEW_TOPIC_SECONDS
        while True:
            try:
                return self._described(name, timeout_seconds)
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > give_up:
                    raise Unavailable(f"topic {name} cannot be described: {self._said(error)}") from error
            time.sleep(_LOOK_SECONDS)

    def _described(self, name: str, timeout_seconds: float) -> TopicShape:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=timeout_seconds)
        configs = self._admin.describe_configs([resource])
        settings = answer_of(self._admin, configs[resource], timeout_seconds, name)
        return shape_of(answer_of(self._admin, asked[name], timeout_seconds + 5, name), settings)

    def alter(self, name: str, config: Mapping[str, str]) -> None:
        """Change settings of a topic and keep the others; returns when the change is visible. Raises `Unavailable`."""
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
        with self._or_unavailable(f"the settings of topic {name} cannot be changed"):
            altered = self._admin.incremental_alter_configs([resource])
            answer_of(self._admin, altered[resource], ANSWER_SECONDS, name)
        give_up = time.monotonic() + _NEW_TOPIC_SECONDS
        while not config.items() <= self.shape(name).settings.items():
            if time.monotonic() > give_up:
                raise Unavailable(f"topic {name} does not show its new settings {dict(config)}")
            time.sleep(_LOOK_SECONDS)

    def delete(self, names: list[str]) -> None:
        """Delete topics; those that do not exist are skipped."""
        for name, done in self._admin.delete_topics(names, operation_timeout=30).items():
            with self._or_unavailable(f"topic {name} cannot be deleted", KafkaError.UNKNOWN_TOPIC_OR_PART):
                answer_of(self._admin, done, ANSWER_SECONDS, name)

    def delete_group(self, group: str) -> None:
        """Delete a consumer group with its committed offsets; one that does not exist is skipped."""
        gone = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID)
        for done in self._admin.delete_consumer_groups([group]).values():
            with self._or_unavailable(f"group {group} cannot be deleted", *gone):
                answer_of(self._admin, done, ANSWER_SECONDS, None)


def fence(config: JobConfig, transactional_ids: tuple[str, ...], timeout_seconds: float = 30.0) -> None:
    """Fence every present writer with these ids, and abort its open transaction (rule `writer-id`).

    Raises `Transient` naming an id that could not be fenced, `BadConfiguration` if no client can be made. No more ids
    are tried after that, but those that are being tried may still be fenced when this function has returned.
    """
    settings = kafka_settings(config)

    def one(transactional_id: str) -> None:
        refusals = Refusals()
        own = clients.FENCE.of_job(config, ClientNames("", transactional_id))
        producer = clients.FENCE.make(settings, own, error_cb=refusals.note, logger=clients.LIBRARY_LOG)
        try:
            producer.init_transactions(timeout_seconds)
        except KafkaException as error:
            refusals.explain(error, producer)
            raise Transient(f"{transactional_id} could not be fenced: {error.args[0].str()}") from error

    pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="fence")
    try:
        for done in [pool.submit(one, each) for each in transactional_ids]:
            done.result()
    finally:
        # While brokers do not answer, each of the others would take the whole time-out. Those that are being tried
        # cannot be cancelled, and end within it. They may fence a writer that has come meanwhile: that costs it its
        # producer, never its task (rule `fence-no-proof`).
        pool.shutdown(wait=False, cancel_futures=True)


def fence_job(cluster: str, definition: JobDefinition) -> None:
    """Fence the writers of every task of a job; raises as `fence`."""
    config = parse(definition.config)
    tasks = (TaskId(definition.name, config.stage, each) for each in range(definition.tasks))
    fence(config, tuple(naming.transactional_id(cluster, task) for task in tasks))
