"""A task's producer on a real broker: what it is given in one transaction comes out whole and in order."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from standby.adapters.confluent_kafka import connect
from standby.config import parse
from standby.errors import BadConfiguration
from standby.kernel.ports import Writer
from standby.model import Offsets
from standby.replica.overlay import Changes, Emitted
from standby.wire import JobDefinition
from tests.patience import PATIENCE_SECONDS

#: Fewer than the records of one transaction below.
QUEUE = 50

Open = Callable[..., Writer]


@pytest.fixture
def name(kafka_bootstrap: str) -> str:
    """Return the name of a job whose topics are there, with one partition each."""
    name = f"writer-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    topics = [NewTopic(f"{name}-{each}", 1, 1) for each in ("in", "out", "late", "changelog")]
    for future in admin.create_topics(topics).values():
        future.result(PATIENCE_SECONDS)
    return name


@pytest.fixture
def writer(name: str, kafka_bootstrap: str) -> Writer:
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
    writer = connect("test", parse(flat), definition).open_writer(0)
    writer.initialise(lambda: False, 30)
    return writer


def read(bootstrap: str, topic: str, count: int) -> list[Message]:
    """Return the first ``count`` committed records of the topic's only partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, 20)
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
    writer.prepare(outputs, changes, Offsets.of(1), "m")
    assert writer.commit() == len(changes)
    for topic in (f"{name}-out", f"{name}-late"):
        expected = [each.value for each in outputs if each.topic == topic]
        assert [each.value() for each in read(kafka_bootstrap, topic, len(expected))] == expected
    written = read(kafka_bootstrap, f"{name}-changelog", len(changes))
    assert [(each.key(), each.value()) for each in written] == list(changes.items())
    writer.close()


def test_what_is_empty_missing_or_has_headers_comes_as_it_was_sent(
    writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    topic = f"{name}-out"
    outputs = [
        Emitted(topic, b"", b""),
        Emitted(topic, None, None),
        Emitted(topic, b"k", b"1", {"h": b"x"}),
        Emitted(topic, b"k", None),
        Emitted(topic, None, b"2", [("h", b"1"), ("h", None)]),
        Emitted(topic, b"k", b"3"),
    ]
    writer.prepare(outputs, {}, Offsets.of(1), "m")
    assert writer.commit() is None
    came = read(kafka_bootstrap, topic, len(outputs))
    assert [(each.key(), each.value()) for each in came] == [(each.key, each.value) for each in outputs]
    assert [each.headers() for each in came] == [
        *(None, None, [("h", b"x")], None, [("h", b"1"), ("h", None)], None)
    ]
    writer.close()


def test_a_record_that_is_too_large_is_named_as_the_cause(writer: Writer, name: str) -> None:
    small, large = Emitted(f"{name}-out", b"k", b"1"), Emitted(f"{name}-out", b"k", bytes(9 << 20))
    with pytest.raises(BadConfiguration, match="Kafka refuses it"):
        writer.prepare([small, large, small], {}, Offsets.of(1), "m")
    # Nothing else is wrong with it: what it had begun can be ended.
    writer.abort()
    writer.prepare([small], {}, Offsets.of(1), "m")
    assert writer.commit() is None
    writer.close()


def test_a_sweep_ends_in_each_partition_that_a_transaction_may_have_been_in(
    writer: Writer, name: str, kafka_bootstrap: str
) -> None:
    writer.sweep()
    small = Emitted(f"{name}-out", b"k", b"1")
    writer.prepare([small], {}, Offsets.of(1), "m")
    assert writer.commit() is None
    writer.close()
    (came,) = read(kafka_bootstrap, f"{name}-out", 1)
    assert (came.offset(), came.value()) == (2, b"1"), "a record and a marker come before it"
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": "test"})
    for topic in ("late", "changelog"):
        assert consumer.get_watermark_offsets(TopicPartition(f"{name}-{topic}", 0), 10) == (0, 2)
    consumer.close()
