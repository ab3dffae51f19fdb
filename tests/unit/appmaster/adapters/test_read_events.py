"""The event log: where it is written, and what is read when its partition has no leader for a while."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from appmaster.adapters.kafka import ANSWER_SECONDS, EventLog, read_events
from appmaster.eventlog.entries import EntryKind, LogEntry, entry_document
from standby.adapters.kafka import clients
from standby.errors import Unavailable
from tests.fakes.clock import HandClock, held

TOPIC = "standfast__c__events"

ENTRY = entry_document(LogEntry(EntryKind.TASKS_FENCED), 0, 1)


class Partition:
    """One with three entries, a consumer of it, and a clock: each time nothing comes, half of the wait is over."""

    def __init__(self, readable: int) -> None:
        self.readable = readable
        self.position = 0
        self.others: dict[int, bytes | None] = {}
        """Offset → what is there instead of an entry."""
        self.clock: HandClock = held()
        self.waits = 0
        self.has_leader = False
        self.is_silent = False
        """Whether there is no answer about its ends, either."""

    def make(self, settings: object, **_: object) -> Any:
        return self

    def get_watermark_offsets(self, partition: object, timeout: float) -> tuple[int, int]:
        if self.is_silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 0, 3

    def assign(self, partitions: object) -> None:
        pass

    def consume(self, count: int, timeout_seconds: float) -> list[Any]:
        if self.position == self.readable:
            self.waits += 1
            self.clock.advance(ANSWER_SECONDS / 2 + 1)
            return []
        offset, self.position = self.position, self.position + 1
        value = self.others.get(offset, json.dumps({**ENTRY, "number": offset}).encode())
        return [SimpleNamespace(error=lambda: None, offset=lambda: offset, value=lambda: value)]

    def list_topics(self, topic: str, timeout_seconds: float) -> Any:
        partition = SimpleNamespace(leader=1 if self.has_leader else -1)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: partition})})

    def poll(self, timeout_seconds: float) -> None:
        pass

    def close(self) -> None:
        pass

    def stop(self) -> bool:
        assert self.waits < 20, "it waits for ever"
        return False


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> Partition:
    found = Partition(readable=2)
    monkeypatch.setattr(clients, "EVENTS_READER", replace(clients.EVENTS_READER, library=found.make))
    return found


def test_entries_are_written_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that makes missing topics by itself may give this one several partitions."""
    written: list[int] = []

    def produce(topic: str, value: bytes, *, partition: int = -1, **_: object) -> None:
        written.append(partition)

    producer: Any = SimpleNamespace(produce=produce, poll=lambda _: 0)
    library = replace(clients.EVENTS_WRITER, library=lambda *_, **__: producer)
    monkeypatch.setattr(clients, "EVENTS_WRITER", library)
    EventLog({}, TOPIC).append(ENTRY)
    assert written == [0]


@pytest.mark.parametrize(("has_leader", "why"), [(False, f": partition {TOPIC}-0 has no leader"), (True, "")])
def test_log_without_a_leader_is_read_as_far_as_it_can_be(
    partition: Partition, has_leader: bool, why: str
) -> None:
    partition.has_leader = has_leader
    entries = read_events({}, TOPIC, follow=False, stop=partition.stop, clock=partition.clock)
    assert [next(entries)["number"], next(entries)["number"]] == [0, 1]
    with pytest.raises(Unavailable, match=f"{TOPIC} .*1 entries are left, and none came for 30 s{why}$"):
        next(entries)
    partition.is_silent = True
    with pytest.raises(Unavailable, match=why or "Timed out"):
        next(read_events({}, TOPIC, follow=False, stop=partition.stop, clock=partition.clock))


def test_follower_waits_for_a_leader_and_says_so_once(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    def stop() -> bool:
        if partition.waits == 9:
            partition.readable = 3
        return partition.stop()

    entries = read_events({}, TOPIC, follow=True, stop=stop, clock=partition.clock)
    assert [next(entries)["number"] for _ in range(3)] == [0, 1, 2]
    assert [each.getMessage() for each in caplog.records] == [
        f"the event log {TOPIC} cannot be read: partition {TOPIC}-0 has no leader; waiting for it"
    ]


@pytest.mark.parametrize("other", [None, b"hello", b"\xff", b'"hello"', b'{"kind":"hello"}', b"[" * 100_000])
def test_record_that_is_no_entry_hides_no_entry(
    partition: Partition, other: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Every reader ended there with an unexpected error, at each attempt."""
    partition.readable, partition.others = 3, {0: other, 1: other}
    entries = read_events({}, TOPIC, follow=False, stop=partition.stop, clock=partition.clock)
    assert [each["number"] for each in entries] == [2]
    assert [each.getMessage() for each in caplog.records] == [
        f"the event log {TOPIC} has records that are no entries; they are left out, the first at offset 0"
    ]
