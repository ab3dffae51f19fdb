"""Batches that cannot be read, and other faults in a partition: only librdkafka goes on behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka.changelog import KafkaChangelog
from standby.adapters.kafka.codes import DAMAGED, MISSING, OUT_OF_RANGE, REFUSED, TOO_LARGE, translate
from standby.adapters.kafka.input import InputReader
from standby.errors import CorruptState, Transient, Unavailable
from standby.kernel.ports import Chunk
from standby.ports import UnreadableRecord
from standby.shared.wire import JobDefinition
from tests.cases import case
from tests.fakes.jobs import job_config
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS

DEFINITION = JobDefinition("j", "run", {}, "changelog", "group", 2)
BAD_BATCH = KafkaError(KafkaError._BAD_MSG, "MessageSet at offset 202 failed CRC32C check")
PASSING = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "not known at the moment")


def record(topic: str, partition: int, at: int, failure: KafkaError | None = None) -> Message:
    """Return a record, or an error, as a consumer gives it out."""
    return Message(topic=topic, partition=partition, offset=at, key=b"%d" % at, value=b"v", error=failure)


class Scripted:
    """A consumer that returns what the test sets, and passes it, errors as well."""

    def __init__(self, settings: dict[str, Any], **_: Any) -> None:
        self.settings = settings
        self.script: list[Message] = []
        self.positions: dict[Any, int] = {}
        self.assigned: list[tuple[int, int]] = []
        self.paused: list[int] = []
        self.may_end, self.is_closed = threading.Event(), threading.Event()
        self.may_end.set()

    def close(self) -> None:
        assert self.may_end.wait(PATIENCE_SECONDS)
        self.is_closed.set()

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned += [(each.partition, each.offset) for each in places]
        self.assign(places)

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.positions.update({(each.topic, each.partition): each.offset for each in places})

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        for each in places:
            del self.positions[each.topic, each.partition]

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self.paused += [each.partition for each in places]

    def consume(self, limit: int, timeout: float = 0) -> list[Message]:
        del timeout
        given, self.script = self.script[:limit], self.script[limit:]
        self.positions.update({(each.topic(), each.partition()): (each.offset() or 0) + 1 for each in given})
        return given

    def poll(self, timeout: float) -> Message | None:
        return next(iter(self.consume(1, timeout)), None)

    def position(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(each.topic, each.partition, self.positions[each.topic, each.partition])
            for each in places
        ]


def library() -> tuple[Callable[..., Consumer], list[Scripted]]:
    """Return what makes scripted consumers, and those that it has made."""
    made: list[Scripted] = []

    def make(settings: dict[str, Any], **_: Any) -> Consumer:
        made.append(Scripted(settings))
        return cast("Consumer", made[-1])

    return make, made


def changelog(*script: Message) -> tuple[KafkaChangelog, Scripted]:
    """Return a reader of partitions 0 and 1 from offset 200 on, and its consumer."""
    make, made = library()
    reader = KafkaChangelog(job_config(), DEFINITION, replace(clients.CHANGELOG, library=make))
    for partition in (0, 1):
        reader.add(partition, 200)
    made[0].script = list(script)
    return reader, made[0]


def told(partition: int, at: int, failure: KafkaError | None = None) -> Message:
    return record("changelog", partition, at, failure)


def test_a_damaged_batch_of_the_changelog_is_named_and_nothing_of_its_partition_passed() -> None:
    for code in sorted(DAMAGED):
        failure = KafkaError(code, "why")
        reader, consumer = changelog(
            told(0, 200), told(1, 200), told(0, 202, failure), told(0, 206), told(1, 201)
        )
        found = reader.read(100, 0)
        assert found[1] == Chunk([(b"200", b"v"), (b"201", b"v")], 202)
        assert (found[0].changes, found[0].position, found[0].is_out_of_range) == ((), 200, False)
        assert found[0].damage == f"at offset 202: {failure.name()}: why"
        assert consumer.assigned[2:] == [(0, 200)], "it is read from there again"
        assert consumer.settings["check.crcs"] is True


def test_a_passing_fault_of_a_partition_leaves_no_gap_and_is_no_damage() -> None:
    reader, consumer = changelog(told(0, 200), told(0, 202, PASSING), told(0, 203), told(1, 200))
    reader.pause(0)
    assert reader.read(100, 0) == {1: Chunk([(b"200", b"v")], 201)}
    assert consumer.assigned[2:] == [(0, 200)]
    assert consumer.paused == [0, 0], "a pause ends with the assignment"
    consumer.script = [told(0, 200), told(0, 202), told(0, 203)]
    assert reader.read(100, 0)[0].position == 204


def test_a_position_outside_of_the_changelog_is_reported_as_that() -> None:
    reader, _ = changelog(told(0, 200, KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range")))
    assert reader.read(100, 0) == {0: Chunk((), 200, is_out_of_range=True)}


def test_a_fault_of_no_partition_is_waited_out() -> None:
    away = KafkaError(KafkaError._ALL_BROKERS_DOWN, "no broker is there")
    reader, consumer = changelog(record("", -1, -1001, away), told(0, 200))
    assert reader.read(100, 0) == {0: Chunk([(b"200", b"v")], 201)}
    assert len(consumer.assigned) == 2


def test_a_changelog_that_may_not_be_read_is_no_passing_fault() -> None:
    reader, _ = changelog(told(0, 200, KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "not you")))
    with pytest.raises(Unavailable, match="reading changelog as group group: CLUSTER_AUTHORIZATION_FAILED"):
        reader.read(100, 0)


def input_reader(*script: Message, until: int | None = None) -> tuple[InputReader, Scripted]:
    """Return a reader of partition 0 from offset 200 on, and its consumer."""
    make, made = library()
    reader = InputReader({}, ("in",), "group", replace(clients.INPUT, library=make))
    assert made[0].settings["check.crcs"] is True
    reader.assign({("in", 0): 200}, None if until is None else {("in", 0): until})
    made[0].script = list(script)
    return reader, made[0]


def test_an_input_is_never_read_behind_a_fault() -> None:
    forbidden = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not you")
    for failure, kind, says in (
        (BAD_BATCH, UnreadableRecord, r"input in\[0\], offset 202: .*at offset 202 failed CRC32C check"),
        (forbidden, Unavailable, r"input in\[0\].*not you"),
        (PASSING, Transient, r"input in\[0\].*not known at the moment"),
        (KafkaError(KafkaError._LOG_TRUNCATION, "cut"), CorruptState, r"input in\[0\]: cut"),
    ):
        for before in (0, 2):
            script = [record("in", 0, 200 + each) for each in range(before)]
            reader, _ = input_reader(*script, record("in", 0, 202, failure), record("in", 0, 203))
            with case(kind, before), pytest.raises(kind, match=says) as raised:
                reader.read(100, 0)
            assert isinstance(raised.value, Transient) is (kind is Transient)
            if isinstance(raised.value, UnreadableRecord):
                assert raised.value.batch == 202


def test_what_lies_behind_an_unrequested_damaged_batch_is_no_fault() -> None:
    records: list[Any] = [record("in", 0, 200), record("in", 0, 201)]
    nowhere = record("in", 0, 3 << 60, KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range"))
    reader, consumer = input_reader(*records, record("in", 0, 202, BAD_BATCH), nowhere, until=202)
    assert reader.read(100, 0) == records
    assert reader.positions() == {("in", 0): 202}
    consumer.script = [record("in", 0, 400), nowhere]
    assert reader.read(100, 0) == []


def test_a_reader_is_closed_once_the_client_knows_that_it_reads_nowhere() -> None:
    nowhere = record("in", 0, 3 << 60, KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range"))
    reader, consumer = input_reader(record("in", 0, 202, BAD_BATCH))
    with pytest.raises(UnreadableRecord):
        reader.read(100, 0)
    behind = record("in", 0, 500)
    consumer.script = [behind, nowhere, behind]
    reader.close()
    assert consumer.script == [behind]
    assert consumer.is_closed.is_set()


def test_a_consumer_that_never_ends_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_CLOSE_SECONDS", LOOK_SECONDS)
    reader, consumer = input_reader()
    consumer.may_end.clear()
    reader.close()
    assert not consumer.is_closed.is_set()
    consumer.may_end.set()
    assert consumer.is_closed.wait(PATIENCE_SECONDS)


def test_within_a_range_damage_counts_and_a_fault_of_the_whole_counts_everywhere() -> None:
    for fault, kind in (
        (record("in", 0, 201, BAD_BATCH), UnreadableRecord),
        (record("in", 0, -1001, KafkaError(KafkaError._TRANSPORT, "away")), Transient),
    ):
        reader, _ = input_reader(record("in", 0, 200), fault, until=202)
        with case(kind), pytest.raises(kind):
            reader.read(100, 0)


def test_no_code_means_two_things_but_for_a_size_which_may_be_of_what_is_written() -> None:
    kinds = [REFUSED, MISSING, OUT_OF_RANGE, DAMAGED, TOO_LARGE - DAMAGED]
    assert sum(map(len, kinds)) == len(frozenset().union(*kinds))


def test_what_no_repetition_mends_is_not_repeated_and_everything_else_may_be_different_in_a_moment() -> None:
    for code in sorted(REFUSED):
        error = translate(KafkaError(code, "why"), "asking")
        assert str(error).startswith("asking: ")
        assert not isinstance(error, Transient), code
    for reason in (PASSING, "text alone"):
        assert isinstance(translate(reason, "asking"), Transient), reason
