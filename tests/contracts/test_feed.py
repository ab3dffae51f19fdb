"""What `standby.ports.Feed` promises, proved for each feed on a real broker."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from standby.config import JobConfig, parse
from standby.errors import BadConfiguration, CorruptState, Transient
from standby.feed.batches import HEADERS, ROWS
from standby.feed.make import make_feed
from standby.ports import Feed, InputAway, TaskBatch, UnreadableRecord
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.cases import case
from tests.librdkafka import produce_with_header
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS
from tests.topics import make_topics

at = Offsets.of


def task(partition: int) -> TaskId:
    return TaskId("contract", "main", partition)


class Broker:
    """The real broker as the tests use it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        # Idempotent, or records of a new topic, sent again by a busy machine, come in another order.
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def topic(self, partitions: int = 1) -> str:
        name = f"feed-{uuid.uuid4().hex[:12]}"
        make_topics(self.bootstrap, [NewTopic(name, partitions, 1)])
        return name

    def produce(
        self, topic: str, values: list[bytes | None], partition: int = 0, key: bytes | None = None
    ) -> None:
        failed: list[KafkaError] = []
        for value in values:
            self.producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert self.producer.flush(PATIENCE_SECONDS) == 0
        assert not failed, failed

    def transactional(self) -> Producer:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": uuid.uuid4().hex}
        producer = Producer({**settings, "retry.backoff.ms": 1, "retry.backoff.max.ms": 10})
        producer.init_transactions(PATIENCE_SECONDS)
        return producer

    def truncate(self, topic: str, before: int) -> None:
        where = TopicPartition(topic, 0, before)
        self.admin.delete_records([where])[where].result(PATIENCE_SECONDS)

    def transactions(self, topic: str, records: int, **names: bool) -> None:
        """Write so many records in each transaction, and commit or abort it."""
        writer = self.transactional()
        for name, is_kept in names.items():
            writer.begin_transaction()
            for value in numbered(records, name):
                writer.produce(topic, value, partition=0)
            writer.flush(PATIENCE_SECONDS)
            (writer.commit_transaction if is_kept else writer.abort_transaction)(PATIENCE_SECONDS)


class Deliveries:
    """A `Deliver` that keeps what it was given and lets the test wait for it."""

    def __init__(self, before: Callable[[tuple[TaskBatch, ...]], None] = lambda _: None) -> None:
        self._changed = threading.Condition()
        self.before = before
        self.calls: list[tuple[TaskBatch, ...]] = []

    def __call__(self, batches: tuple[TaskBatch, ...]) -> None:
        self.before(batches)
        with self._changed:
            self.calls.append(batches)
            self._changed.notify_all()

    def of(self, partition: int) -> list[TaskBatch]:
        return [batch for call in self.calls for batch in call if batch.task == task(partition)]

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [value for batch in self.of(partition) for value in batch.rows.column("value").to_pylist()]

    def end(self, partition: int = 0) -> int:
        batches = self.of(partition)
        return batches[-1].end.total if batches else -1

    def wait(self, feed: Feed, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while not until():
                assert not feed.wait(0), f"the feed ended: {feed.failure!r}"
                assert time.monotonic() < deadline, f"after {PATIENCE_SECONDS} s only {self.calls}"
                self._changed.wait(LOOK_SECONDS)

    def assert_gapless(self, starts: Mapping[int, int]) -> None:
        for partition, start in starts.items():
            expected = start
            for batch in self.of(partition):
                assert batch.start == at(expected)
                assert batch.end.total > expected
                offsets = batch.rows.column("_offset").to_pylist()
                assert offsets == sorted(offsets)
                assert all(expected <= each < batch.end.total for each in offsets)
                assert set(batch.rows.column("_task").to_pylist()) <= {partition}
                expected = batch.end.total


class Boom(BaseException):
    """What a state step of these tests raises: like `SystemExit` no ordinary exception."""


@pytest.fixture(scope="session")
def broker(kafka_bootstrap: str) -> Broker:
    return Broker(kafka_bootstrap)


Make = Callable[..., Feed]


@contextmanager
def feeds_of(kind: str, broker: Broker) -> Iterator[Make]:
    """Yield what builds a feed of a kind for a topic, and close all of them; the name of a transform lacks its kind."""
    feeds: list[Feed] = []

    def build(topic: str, transform: str = "", **changes: Any) -> Feed:
        if kind == "spark" and not transform:
            # Without a transform there is nothing for Spark to run.
            transform = "unchanged"
        config = dataclasses.replace(
            configuration(broker, topic, kind),
            transform=f"tests.contracts.feed_functions:{kind}_{transform}" if transform else "",
            **changes,
        )
        job = JobDefinition(
            name="contract", run="r", config={}, changelog="none", group=f"group-{topic}", tasks=1
        )
        feed = make_feed(config, job)
        feeds.append(feed)
        return feed

    yield build
    for feed in feeds:
        feed.close()


@pytest.fixture
def make(broker: Broker) -> Iterator[Make]:
    """Builds the plain feed: how the input is read and delivered is common to all."""
    with feeds_of("plain", broker) as make:
        yield make


@pytest.fixture(params=["plain", pytest.param("spark", marks=pytest.mark.spark)])
def make_each(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Make]:
    """Builds a feed of each kind, where what runs the transform may make a difference."""
    if request.param == "spark":
        request.getfixturevalue("shared_spark")
    with feeds_of(request.param, broker) as make:
        yield make


def configuration(broker: Broker, topic: str, kind: str) -> JobConfig:
    return parse(
        {
            "job.name": "contract",
            "task.inputs": topic,
            "task.step": "contract:step",
            "task.feed": kind,
            "kafka.bootstrap.servers": broker.bootstrap,
            "zookeeper.connect": "unused:2181",
        }
    )


def failure_of(feed: Feed) -> BaseException | None:
    """The failure now: mypy would take what an earlier assertion said of the property for its value."""
    return feed.failure


def numbered(count: int, prefix: str = "v") -> list[bytes | None]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def test_an_exception_in_deliver_ends_the_feed_and_the_batch_comes_again(
    broker: Broker, make_each: Make
) -> None:
    """Every record comes once, across batches, exceptions and restarts."""
    topic = broker.topic(2)
    broker.produce(topic, numbered(120, "a"), 0)
    broker.produce(topic, numbered(80, "b"), 1)
    feed = make_each(topic, batch_max_records=30)
    everything = Deliveries()

    def committed() -> dict[TaskId, Offsets]:
        return {task(partition): at(max(everything.end(partition), 0)) for partition in (0, 1)}

    for _ in range(2):
        boom, seen = Boom("in the third batch"), Deliveries()

        def fail(_: tuple[TaskBatch, ...], boom: Boom = boom, seen: Deliveries = seen) -> None:
            if len(seen.calls) == 2:
                raise boom

        seen.before = fail
        feed.start(committed(), seen)
        assert feed.wait(PATIENCE_SECONDS)
        assert feed.failure is boom
        everything.calls += seen.calls
    feed.start(committed(), everything)
    assert failure_of(feed) is None
    everything.wait(feed, lambda: everything.end(0) == 120 and everything.end(1) == 80)
    broker.produce(topic, numbered(5, "late"), 1)
    everything.wait(feed, lambda: everything.end(1) == 85)
    assert everything.values(0) == numbered(120, "a")
    assert everything.values(1) == numbered(80, "b") + numbered(5, "late")
    everything.assert_gapless({0: 0, 1: 0})
    assert max(sum(batch.rows.num_rows for batch in call) for call in everything.calls) <= 30


def test_record_that_cannot_be_decoded_fails_as_the_jobs_code_does(broker: Broker, make: Make) -> None:
    topic = broker.topic()
    # So many that Python has adapted the code that reads them, which then looks for fewer errors.
    many = 100
    broker.produce(topic, numbered(many))
    # A producer may encode names as it likes; the client decodes them as UTF-8.
    produce_with_header(broker.bootstrap, topic, b"", b"late", b"caf\xe9")
    broker.produce(topic, numbered(2, "w"))
    feed, seen = make(topic, input_headers=True), Deliveries()
    feed.start({task(0): at(0)}, seen)
    assert feed.wait(PATIENCE_SECONDS)
    assert isinstance(feed.failure, UnreadableRecord), feed.failure
    assert re.search(rf"offset {many}\b", str(feed.failure))
    # What was read before it came may have been delivered.
    assert seen.values() in ([], numbered(many))
    # Behind it, and before it, all is well.
    seen = Deliveries()
    for start, until in ((0, many), (many + 1, many + 3)):
        feed.start({task(0): at(start)}, seen, {task(0): at(until)})
        assert feed.wait(PATIENCE_SECONDS)
        assert feed.failure is None
    assert seen.values() == numbered(many) + numbered(2, "w")


def test_aborted_records_are_invisible_and_markers_are_passed(broker: Broker, make: Make) -> None:
    topic = broker.topic()
    broker.transactions(topic, 3, first=True, gone=False, second=True, tail=False)
    feed, seen = make(topic, batch_max_records=4), Deliveries()
    feed.start({task(0): at(0)}, seen)
    # Four transactions of three records, each with its marker.
    seen.wait(feed, lambda: seen.end() == 16)
    assert seen.values() == numbered(3, "first") + numbered(3, "second")
    seen.assert_gapless({0: 0})


def test_an_open_transaction_shows_nothing_until_it_is_committed(broker: Broker, make: Make) -> None:
    topic = broker.topic()
    broker.produce(topic, [b"before"])
    writer = broker.transactional()
    writer.begin_transaction()
    writer.produce(topic, b"inside", partition=0)
    writer.flush(PATIENCE_SECONDS)
    broker.produce(topic, [b"behind"])
    feed, seen = make(topic), Deliveries()
    with pytest.raises(Transient, match="last stable offset, 1"):
        feed.start({task(0): at(3)}, seen)
    feed.start({task(0): at(0)}, seen)
    seen.wait(feed, lambda: seen.end() >= 1)
    assert seen.values() == [b"before"]
    assert seen.end() == 1
    writer.commit_transaction(PATIENCE_SECONDS)
    seen.wait(feed, lambda: seen.end() == 4)
    assert seen.values() == [b"before", b"inside", b"behind"]
    seen.assert_gapless({0: 0})


def test_nothing_at_or_behind_the_end_of_a_bounded_run_is_touched(broker: Broker, make_each: Make) -> None:
    """Behind it lies what the transform cannot bear: it must not even see it."""
    topic = broker.topic(2)
    good: list[bytes | None] = [b"%d" % each for each in range(9)]
    broker.produce(topic, [*good, b"poison", *good], 0)
    broker.produce(topic, good, 1)
    feed, seen = make_each(topic, "refuse_poison", batch_max_records=5), Deliveries()
    feed.start({task(0): at(1)}, seen, {task(0): at(9)})
    assert feed.wait(PATIENCE_SECONDS)
    assert feed.failure is None
    assert seen.values(0) == good[1:]
    assert seen.end(0) == 9
    assert seen.of(1) == []
    assert max(batch.rows.num_rows for batch in seen.of(0)) <= 5
    seen.assert_gapless({0: 1})
    # The record itself, alone: what the transform raises is reported, and nothing is delivered.
    feed.start({task(0): at(9)}, seen, {task(0): at(10)})
    assert feed.wait(PATIENCE_SECONDS)
    assert "poison" in str(failure_of(feed))
    assert not isinstance(failure_of(feed), (Transient, CorruptState))
    assert seen.end(0) == 9
    # And what comes behind it.
    feed.start({task(0): at(10), task(1): at(2)}, seen, {task(0): at(12), task(1): at(3)})
    assert feed.wait(PATIENCE_SECONDS)
    assert failure_of(feed) is None
    assert seen.values(0) == [*good[1:], *good[:2]]
    assert seen.values(1) == good[2:3]
    # It is as if nothing had been: an endless run begins at the given offsets.
    again = Deliveries()
    feed.start({task(1): at(0)}, again)
    again.wait(feed, lambda: again.end(1) == 9)
    assert again.values(1) == good
    assert again.of(0) == [], "only what is given is read"


def test_a_bounded_run_passes_what_holds_no_records(broker: Broker, make: Make) -> None:
    topic = broker.topic()
    broker.transactions(topic, 2, first=True, gone=False, last=True)
    feed, seen = make(topic), Deliveries()
    # Two records and a marker each; then the end lies behind a marker, and amid an aborted transaction.
    for until in (3, 5, 6, 7, 9):
        feed.start({task(0): at(max(seen.end(), 0))}, seen, {task(0): at(until)})
        assert feed.wait(PATIENCE_SECONDS)
        assert failure_of(feed) is None
        assert seen.end() == until
    assert seen.values() == numbered(2, "first") + numbered(2, "last")
    seen.assert_gapless({0: 0})


def test_a_position_outside_the_partition_is_refused(broker: Broker, make: Make) -> None:
    topic = broker.topic()
    broker.produce(topic, numbered(10))
    broker.truncate(topic, before=3)
    feed = make(topic)
    for position, until, why in (
        (2, None, "below the first record"),
        (11, None, "past the end"),
        (3, {task(0): at(11)}, "past the end"),
    ):
        with case(position, until), pytest.raises(CorruptState, match=why):
            feed.start({task(0): at(position)}, Deliveries(), until)
        assert feed.wait(0)
    seen = Deliveries()
    feed.start({task(0): at(3)}, seen)
    seen.wait(feed, lambda: seen.end() == 10)
    assert seen.values() == numbered(10)[3:]
    seen.assert_gapless({0: 3})


def test_an_input_that_is_not_there_is_worth_another_try(broker: Broker, make: Make) -> None:
    feed = make("never-made")
    with pytest.raises(Transient, match=r"never-made\[0\]"):
        feed.start({task(0): at(0)}, Deliveries())


def test_partitions_that_no_broker_answers_for_are_named_and_the_others_can_be_read(
    broker: Broker, make: Make
) -> None:
    """One that does not exist is as one without a leader."""
    topic = broker.topic()
    broker.produce(topic, numbered(3))
    feed, seen = make(topic), Deliveries()
    positions = {task(0): at(0), task(7): at(0)}
    with pytest.raises(InputAway, match=re.escape(f"{topic}[7]")) as away:
        feed.start(positions, seen)
    assert away.value.partitions == {7}
    feed.start({task(0): at(0)}, seen)
    seen.wait(feed, lambda: seen.end() == 3)
    assert seen.values() == numbered(3)


def test_rows_have_the_same_columns_types_and_values_from_each_feed(broker: Broker, make_each: Make) -> None:
    topic = broker.topic()
    records: list[tuple[bytes | None, bytes | None]] = [
        (None, None),
        (b"", b""),
        ("clé ключ 鍵".encode(), "vrai 🛫".encode()),
        (b"\x00\xff", None),
        (None, b"x" * 100_000),
    ]
    for number, (key, value) in enumerate(records):
        broker.producer.produce(topic, value, key, 0, timestamp=1_357_000_000_123 + number)
    broker.producer.flush(PATIENCE_SECONDS)
    feed, seen = make_each(topic), Deliveries()
    feed.start({task(0): at(0)}, seen)
    seen.wait(feed, lambda: seen.end() == 5)
    rows = pa.concat_tables([batch.rows for batch in seen.of(0)])
    assert rows.schema.names == ROWS.names
    assert rows.schema.types == ROWS.types
    assert list(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)) == records
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [
        1_357_000_000_123_000 + 1000 * number for number in range(5)
    ]
    assert rows.column("_task").to_pylist() == [0] * 5
    assert rows.column("_offset").to_pylist() == [0, 1, 2, 3, 4]


def test_headers_come_as_they_were_sent_when_they_are_asked_for(broker: Broker, make: Make) -> None:
    topic = broker.topic()
    sent: list[list[tuple[str, str | bytes | None]] | None] = [
        None,
        [("trace", b"\x00\xff")],
        [("trace", b"1"), ("none", None), ("trace", b"2"), ("", b"")],
    ]
    for headers in sent:
        broker.producer.produce(topic, b"v", None, 0, headers=headers)
    broker.producer.flush(PATIENCE_SECONDS)
    feed, seen = make(topic, input_headers=True), Deliveries()
    feed.start({task(0): at(0)}, seen)
    seen.wait(feed, lambda: seen.end() == len(sent))
    rows = pa.concat_tables([batch.rows for batch in seen.of(0)])
    assert rows.schema.names == [*ROWS.names, "headers"]
    assert rows.schema.types == [*ROWS.types, HEADERS.type]
    found = rows.column("headers").to_pylist()
    assert [each and [(header["key"], header["value"]) for header in each] for each in found] == sent


def test_warming_changes_nothing_of_what_is_delivered(broker: Broker, make_each: Make) -> None:
    topic = broker.topic()
    broker.produce(topic, numbered(10))
    feed, seen = make_each(topic), Deliveries()
    feed.warm()
    assert feed.is_warm
    feed.warm()
    feed.start({task(0): at(7)}, seen)
    seen.wait(feed, lambda: seen.end() == 10)
    assert seen.values() == numbered(10)[7:]
    feed.stop()
    feed.warm()
    again = Deliveries()
    feed.start({task(0): at(0)}, again)
    again.wait(feed, lambda: again.end() == 10)
    assert again.values() == numbered(10)


def test_a_stopped_or_unused_feed_lends_nothing_and_may_be_stopped_and_closed(
    broker: Broker, make_each: Make
) -> None:
    topic = broker.topic()
    feed = make_each(topic)
    with pytest.raises(Transient):
        feed.lend(b"rows")
    feed.stop()
    assert feed.wait(0)
    assert feed.failure is None
    feed.start({task(0): at(0)}, Deliveries())
    assert not feed.wait(0)
    feed.stop()
    feed.stop()
    feed.close()
    feed.close()
    assert feed.wait(0)


def test_of_two_inputs_each_task_gets_both_and_the_rows_say_which(broker: Broker, make: Make) -> None:
    """The contract of several inputs: positions of each, rows merged by time, no record twice and none left out."""
    first, second = broker.topic(2), broker.topic(2)
    produce_at(broker, first, 0, [(b"a0", 1_000), (b"a1", 3_000), (b"a2", 5_000)])
    produce_at(broker, second, 0, [(b"b0", 2_000), (b"b1", 3_000), (b"b2", 3_500)])
    produce_at(broker, second, 1, [(b"c0", 1_000)])
    feed, seen = make(f"{first},{second}"), Deliveries()
    feed.start({task(0): at(0, 1), task(1): at(0, 0)}, seen)
    seen.wait(feed, lambda: seen.end(0) == 6 and seen.end(1) == 1)
    assert sorted(seen.values(0), key=str) == [b"a0", b"a1", b"a2", b"b1", b"b2"]
    assert seen.values(1) == [b"c0"]
    assert topics_of(seen, 0) == {b"a0": first, b"a1": first, b"a2": first, b"b1": second, b"b2": second}
    assert seen.of(0)[0].start == at(0, 1)
    assert seen.of(0)[-1].end == at(3, 3)
    # What goes on reads on in both.
    produce_at(broker, second, 0, [(b"b3", 9_000)])
    seen.wait(feed, lambda: seen.end(0) == 7)
    assert seen.of(0)[-1].start == at(3, 3)
    assert seen.of(0)[-1].end == at(3, 4)


def test_a_transform_of_two_inputs_must_keep_the_topic(broker: Broker, make_each: Make) -> None:
    first, second = broker.topic(), broker.topic()
    produce_at(broker, first, 0, [(b"a0", 1_000)])
    feed = make_each(f"{first},{second}", "without_topic")
    seen = Deliveries()

    def run() -> None:
        """Spark's refuses to begin, the plain one finds out with the first rows."""
        feed.start({task(0): at(0, 0)}, seen)
        assert feed.wait(PATIENCE_SECONDS)
        assert feed.failure is not None
        raise feed.failure

    with pytest.raises(BadConfiguration, match="returns no column '_topic'"):
        run()
    assert seen.calls == []


def produce_at(broker: Broker, topic: str, partition: int, records: list[tuple[bytes, int]]) -> None:
    """Write values with their times, in milliseconds."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value, time_ms in records:
        producer.produce(topic, value, b"k", partition, timestamp=1_700_000_000_000 + time_ms)
    assert producer.flush(PATIENCE_SECONDS) == 0


def topics_of(seen: Deliveries, partition: int) -> dict[bytes | None, str]:
    return {
        value: topic
        for batch in seen.of(partition)
        for value, topic in zip(
            batch.rows.column("value").to_pylist(), batch.rows.column("_topic").to_pylist(), strict=True
        )
    }
