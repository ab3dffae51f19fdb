"""A task's producer on a real broker: what it is given in one transaction comes out whole and in order."""

from __future__ import annotations

import time
import uuid
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from appmaster.topics.partitioners import PARTITIONERS
from standby.adapters.kafka import clients
from standby.adapters.kafka.broker import connect
from standby.adapters.kafka.writer import KafkaWriter
from standby.config import parse
from standby.kernel.ports import Broker, RecordRefused, RecordTooLarge, Writer, WriterLost
from standby.replica.outbox import Emitted, Headers, Outputs
from standby.replica.store.keys import COMMIT
from standby.replica.store.overlay import Changes
from standby.shared.model import Offsets
from standby.shared.wire import JobDefinition
from tests.patience import PATIENCE_SECONDS, soon
from tests.topics import make_topics

#: Fewer than the records of one transaction below.
QUEUE = 50

Open = Callable[..., Writer]


@pytest.fixture
def name(kafka_bootstrap: str) -> str:
    """Return the name of a job whose topics are there, with one partition each."""
    name = f"writer-{uuid.uuid4().hex[:10]}"
    topics = ("in", "out", "late", "changelog")
    make_topics(kafka_bootstrap, [NewTopic(f"{name}-{each}", 1, 1) for each in topics])
    return name


@pytest.fixture
def broker(name: str, kafka_bootstrap: str) -> Broker:
    flat = {
        "job.name": name,
        "task.inputs": f"{name}-in",
        "task.outputs": f"{name}-out,{name}-late",
        "task.step": "m:f",
        "kafka.bootstrap.servers": kafka_bootstrap,
        "kafka.queue.buffering.max.messages": str(QUEUE),
        "zookeeper.connect": "unused:1",
    }
    definition = JobDefinition(name, "run", flat, f"{name}-changelog", f"{name}-group", 1)
    return connect("test", parse(flat), definition)


@pytest.fixture
def writer(broker: Broker) -> Writer:
    return opened(broker)


def opened(broker: Broker) -> Writer:
    writer = broker.open_writer(0)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    return writer


def write(writer: Writer, outputs: list[Emitted]) -> None:
    """Write records in one transaction."""
    writer.begin(b"record")
    writer.prepare(Outputs.of(outputs), {}, Offsets.of(1), "m")
    writer.commit()


def give_up_and_write(broker: Broker, writer: Writer, outputs: list[Emitted]) -> None:
    """Abort what a writer has begun; the next one of the task writes records."""
    writer.abort()
    writer.close()
    again = opened(broker)
    write(again, outputs)
    again.close()


def read(bootstrap: str, topic: str, count: int, *, partitions: int = 1) -> list[Message]:
    """Return the first ``count`` committed records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    try:
        messages = consumer.consume(count, PATIENCE_SECONDS)
    finally:
        consumer.close()
    assert len(messages) == count
    assert all(each.error() is None for each in messages)
    return messages


def test_more_records_than_the_producers_queue_holds_keep_their_order(
    writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    outputs = [
        Emitted(f"{name}-{'late' if number % 7 == 0 else 'out'}", b"k", b"%d" % number)
        for number in range(400)
    ]
    changes: Changes = {b"key%d" % number: b"%d" % number for number in range(300)}
    writer.begin(b"record")
    writer.prepare(Outputs.of(outputs), changes, Offsets.of(1), "m")
    assert writer.commit() == len(changes) + 1
    for topic in (f"{name}-out", f"{name}-late"):
        expected = [each.value for each in outputs if each.topic == topic]
        assert [each.value() for each in read(kafka_bootstrap, topic, len(expected))] == expected
    written = read(kafka_bootstrap, f"{name}-changelog", len(changes) + 1)
    assert [(each.key(), each.value()) for each in written] == [(COMMIT, b"record"), *changes.items()]
    writer.close()


def test_what_is_empty_missing_or_has_headers_comes_as_it_was_sent(
    writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    topic = f"{name}-out"
    outputs = [
        Emitted(topic, b"", b""),
        Emitted(topic, None, None),
        Emitted(topic, b"k", b"1", (("h", b"x"),)),
        Emitted(topic, b"k", None),
        Emitted(topic, None, b"2", (("h", b"1"), ("h", None))),
        Emitted(topic, b"k", b"3"),
    ]
    write(writer, outputs)
    came = read(kafka_bootstrap, topic, len(outputs))
    assert [(each.key(), each.value()) for each in came] == [(each.key, each.value) for each in outputs]
    assert [each.headers() for each in came] == [
        *(None, None, [("h", b"x")], None, [("h", b"1"), ("h", None)], None)
    ]
    writer.close()


def test_the_writer_selects_partitions_whatever_the_client_knows_of_a_topic(
    broker: Broker, name: str, kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that grows may be known to the client first.

    A record in a partition that the commit does not know would lack the look for its marker.
    """
    topic, keys = f"{name}-wide", [b"key-%d" % number for number in range(40)]
    make_topics(kafka_bootstrap, [NewTopic(topic, 4, 1)])
    monkeypatch.setattr(KafkaWriter, "_count_of", lambda _writer, _topic: 2)
    writer = opened(broker)
    headers = dict.fromkeys((0, 7, 8, 39), (("h", b"x"),))
    write(writer, [Emitted(topic, key, b"v", headers.get(at, ())) for at, key in enumerate(keys)])
    came = read(kafka_bootstrap, topic, len(keys), partitions=4)
    assert {each.key(): each.partition() for each in came} == {
        each: PARTITIONERS["murmur2"](each, 2) for each in keys
    }
    last = {(topic, each.partition()): each.offset() for each in came}
    assert {place: offset for place, offset in writer.places().items() if place[0] == topic} == last
    writer.close()


@pytest.mark.parametrize("headers", [(), (("h", b"x"),)], ids=["in bulk", "one by one"])
def test_a_partition_that_the_client_does_not_know_yet_is_no_fault_of_the_topic(
    broker: Broker, name: str, headers: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(broker)
    write(writer, [Emitted(f"{name}-out", b"k", b"v")])  # the client knows the topic from now on
    monkeypatch.setattr(KafkaWriter, "_count_of", lambda _writer, _topic: 1000)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    outputs = [Emitted(f"{name}-out", b"%d" % each, b"v", headers) for each in range(9)]
    writer.begin(b"record")
    soon(lambda: is_lost(writer, outputs), "the client knows the topic")
    monkeypatch.undo()
    give_up_and_write(broker, writer, outputs)


def is_lost(writer: Writer, outputs: list[Emitted]) -> bool:
    """Return whether the writer is lost by writing records; a client that knows no number of partitions keeps them."""
    try:
        writer.prepare(Outputs.of(outputs), {}, Offsets.of(1), "m")
    except WriterLost:
        return True
    return False


def test_a_record_has_the_time_that_it_is_given_else_that_of_its_sending(
    writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    topic, begun = f"{name}-out", int(time.time() * 1000)
    outputs = [
        Emitted(topic, b"k", b"1", timestamp_ms=1_357_000_000_123),
        Emitted(topic, b"k", b"2"),
        Emitted(topic, b"k", b"3", (("h", b"x"),), begun - 1),
        Emitted(topic, b"k", b"4", (("h", b"x"),)),
    ]
    write(writer, outputs)
    writer.close()
    first, second, third, fourth = (
        each.timestamp()[1] for each in read(kafka_bootstrap, topic, len(outputs))
    )
    assert (first, third) == (1_357_000_000_123, begun - 1)
    assert begun <= second <= fourth


def test_a_time_that_the_topic_refuses_is_a_fault_of_the_record(
    broker: Broker, writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    alter(kafka_bootstrap, f"{name}-out", "message.timestamp.before.max.ms", "3600000")
    with pytest.raises(RecordRefused, match=r"message\.timestamp\.before\.max\.ms"):
        write(writer, [Emitted(f"{name}-out", b"k", b"1", timestamp_ms=1_357_000_000_123)])
    give_up_and_write(broker, writer, [Emitted(f"{name}-out", b"k", b"1")])


def test_a_record_that_is_too_large_is_named_as_the_cause(writer: Writer, name: str) -> None:
    small, large = Emitted(f"{name}-out", b"k", b"1"), Emitted(f"{name}-out", b"k", bytes(9 << 20))
    writer.begin(b"record")
    with pytest.raises(
        RecordTooLarge, match=rf"9437185 bytes, .* {name}-out: kafka.message.max.bytes is 8388608"
    ):
        writer.prepare(Outputs.of([small, large, small]), {}, Offsets.of(1), "m")
    # Nothing else is wrong with it: what it had begun can be ended.
    writer.abort()
    write(writer, [small])
    writer.close()


@pytest.mark.parametrize("size", [110_000, 900_000])
def test_a_record_that_the_topic_refuses_is_named_and_the_next_transaction_is_well(
    broker: Broker, writer: Writer, name: str, kafka_bootstrap: str, size: int
) -> None:
    bound(kafka_bootstrap, f"{name}-out", 100_000)
    small, large = Emitted(f"{name}-out", b"k", b"1"), Emitted(f"{name}-out", b"k", bytes(size))
    told = rf"{size + 1} bytes, .* {name}-out: the topic's max.message.bytes is 100000"
    with pytest.raises(RecordTooLarge, match=told):
        write(writer, [small, large, small])
    give_up_and_write(broker, writer, [small])
    assert [each.value() for each in read(kafka_bootstrap, f"{name}-out", 1)] == [b"1"]


class Overtaken(Producer):
    """Hears while it sends offsets that a record was refused, and says only that its state is wrong."""

    was_overtaken = False

    def send_offsets_to_transaction(self, *args: Any) -> None:
        if not self.was_overtaken:
            self.was_overtaken = True
            assert self.flush(PATIENCE_SECONDS) == 0
            raise KafkaException(KafkaError(KafkaError._STATE))
        super().send_offsets_to_transaction(*args)


def test_a_record_is_named_that_is_refused_while_offsets_are_sent(
    name: str, kafka_bootstrap: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound(kafka_bootstrap, f"{name}-out", 100_000)
    monkeypatch.setattr(clients, "WRITER", replace(clients.WRITER, library=Overtaken))
    writer = opened(broker)
    with pytest.raises(RecordTooLarge, match=r"the topic's max\.message\.bytes is 100000"):
        write(writer, [Emitted(f"{name}-out", b"k", bytes(110_000))])
    writer.abort()
    writer.close()


def test_a_record_without_a_key_is_refused_by_a_compacted_topic_and_is_no_fault_of_the_topic(
    broker: Broker, writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    alter(kafka_bootstrap, f"{name}-out", "cleanup.policy", "compact")
    with pytest.raises(RecordRefused, match="accepts none without a key"):
        write(writer, [Emitted(f"{name}-out", None, b"1")])
    give_up_and_write(broker, writer, [Emitted(f"{name}-out", b"k", b"1")])


def test_records_that_are_too_many_for_one_piece_are_sent_in_smaller_ones(
    broker: Broker, writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    """librdkafka sends up to a megabyte in one piece, and does not part one that is refused."""
    bound(kafka_bootstrap, f"{name}-out", 20_000)
    outputs = [Emitted(f"{name}-out", b"k", b"%d" % number + bytes(1_000)) for number in range(300)]
    with pytest.raises(RecordTooLarge, match=rf"the largest records: {name}-out 1004 bytes"):
        write(writer, outputs)
    give_up_and_write(broker, writer, outputs)
    came = read(kafka_bootstrap, f"{name}-out", len(outputs))
    assert [each.value() for each in came] == [each.value for each in outputs]


class Slow(Producer):
    """Sends nothing by itself during a test."""

    made: ClassVar[weakref.WeakSet[Slow]] = weakref.WeakSet()

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__({**settings, "linger.ms": 30_000, "transaction.timeout.ms": 60_000})
        self.made.add(self)


def test_a_producer_that_ends_waits_for_no_answer(
    name: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka may abort the process if an answer comes while a producer ends, and says that it was fenced."""
    monkeypatch.setattr(clients, "WRITER", replace(clients.WRITER, library=Slow))
    writer = opened(broker)
    writer.begin(b"record")
    writer.prepare(Outputs.of([Emitted(f"{name}-out", b"k", b"1")]), {}, Offsets.of(1), "m")
    (producer,) = (each for each in Slow.made if len(each))
    assert len(producer) == 1
    writer.close()
    assert len(producer) == 0


def bound(bootstrap: str, topic: str, most: int) -> None:
    """Have the topic take pieces of so many bytes at most."""
    alter(bootstrap, topic, "max.message.bytes", str(most))


def alter(bootstrap: str, topic: str, setting: str, value: str) -> None:
    """Return when the setting counts at the broker: the controller's answer comes before."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConfigResource(ResourceType.TOPIC, topic)
    # A broker takes over one change after the other: where the second one is seen, the first one counts.

    def has(name: str, wanted: str) -> bool:
        return bool(admin.describe_configs([asked])[asked].result(PATIENCE_SECONDS)[name].value == wanted)

    for name, wanted in ((setting, value), ("file.delete.delay.ms", str(time.time_ns() // 1_000_000))):
        entry = ConfigEntry(name, wanted, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result(PATIENCE_SECONDS)
        soon(partial(has, name, wanted), f"{name} of {topic}")


def test_a_sweep_ends_in_each_partition_that_a_transaction_may_have_been_in(
    writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    topics = ("out", "late", "changelog")
    assert writer.sweep() == {(f"{name}-{topic}", 0): 0 for topic in topics}
    small = Emitted(f"{name}-out", b"k", b"1")
    write(writer, [small])
    writer.close()
    (came,) = read(kafka_bootstrap, f"{name}-out", 1)
    assert (came.offset(), came.value()) == (2, b"1"), "a record and a marker come before it"
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": "test"})
    assert consumer.get_watermark_offsets(TopicPartition(f"{name}-late", 0), PATIENCE_SECONDS) == (0, 2)
    consumer.close()


def test_a_sweep_that_does_not_reach_a_partition_is_none(
    writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    alter(kafka_bootstrap, f"{name}-late", "max.message.bytes", "1")
    try:
        with pytest.raises(WriterLost, match=f"no answer from .*{name}-late-0$"):
            writer.sweep()
    finally:
        # Before the transaction runs out of time: a marker that has no room keeps the coordinator busy for ever.
        alter(kafka_bootstrap, f"{name}-late", "max.message.bytes", "1048588")
    writer.close()
