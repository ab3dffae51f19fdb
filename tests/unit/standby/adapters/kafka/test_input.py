"""A reader of inputs: how much of what there is one read takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka import input as input_of_kafka
from standby.adapters.kafka.input import InputReader

EACH, MOST = 20_000, 1_000_000


class Endless:
    """A consumer of records with a key, a value and a header of so many bytes, as many as somebody takes."""

    def __init__(self, key: int, value: int | None, header: int = 0) -> None:
        self._key, self._value = bytes(key), None if value is None else bytes(value)
        self._headers: list[Any] = [("name", bytes(header)), ("none", None)] if header else []
        self._next = 0

    def assign(self, places: Sequence[TopicPartition]) -> None:
        del places

    def poll(self, timeout: float) -> Message:
        return self.consume(1, timeout)[0]

    def consume(self, limit: int, timeout: float = 0) -> list[Message]:
        del timeout
        given = range(self._next, self._next + limit)
        self._next = given.stop
        return [
            Message(
                topic="in", partition=0, offset=each, key=self._key, value=self._value, headers=self._headers
            )
            for each in given
        ]


@pytest.mark.parametrize(
    ("key", "value", "header"),
    [(0, EACH, 0), (EACH, 0, 0), (EACH, None, 0), (EACH // 2, EACH // 2, 0), (0, 0, EACH)],
    ids=["value", "key", "key of a tombstone", "both", "headers"],
)
def test_a_read_has_no_more_bytes_than_it_may(key: int, value: int | None, header: int) -> None:
    for until in (None, 1_000):
        reader = reader_of(Endless(key, value, header), has_headers=header > 0, until=until)
        for _ in range(2):
            found = reader.read(10_000, 0, MOST)
            # A header has a name, too.
            assert MOST - EACH <= len(found) * EACH <= MOST + EACH
        assert len(reader.read(10, 0, MOST)) == 10


class Chunks:
    """A consumer that gives out all that it has fetched of one partition before anything of the next one."""

    def __init__(self, *chunks: tuple[int, int]) -> None:
        """``chunks``: partition and number of records, in their order."""
        self._ends: Counter[int] = Counter()
        self._fetched = [partition for partition, records in chunks for _ in range(records)]

    def assign(self, places: Sequence[TopicPartition]) -> None:
        del places

    def poll(self, timeout: float) -> Message | None:
        return next(iter(self.consume(1, timeout)), None)

    def consume(self, limit: int, timeout: float = 0) -> list[Message]:
        del timeout
        given, self._fetched = self._fetched[:limit], self._fetched[limit:]
        found = []
        for each in given:
            found.append(
                Message(topic="in", partition=each, offset=self._ends[each], key=None, value=bytes(10))
            )
            self._ends[each] += 1
        return found

    def position(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition("in", each.partition, self._ends.get(each.partition, -1001)) for each in places
        ]


def reader_of(
    consumer: Endless | Chunks, *, has_headers: bool = False, until: int | None = None
) -> InputReader:
    """Return a reader of four partitions, from their beginnings on."""
    kind = replace(clients.INPUT, library=lambda *_, **__: cast("Consumer", consumer))
    reader = InputReader({}, ("in",), "group", kind, has_headers=has_headers)
    places = [("in", each) for each in range(4)]
    reader.assign(dict.fromkeys(places, 0), None if until is None else dict.fromkeys(places, until))
    return reader


@pytest.mark.parametrize(("most_bytes", "at_once"), [(None, 1_000), (1_000_000, 1_000), (None, 7)])
@pytest.mark.parametrize(
    ("turn", "first"),
    [
        (1, [{0: 34, 1: 34, 2: 32}, {0: 59, 1: 6, 2: 35}]),
        (60, [{0: 60, 1: 40}, {2: 60, 0: 40}, {2: 60, 0: 40}]),
        (100, [{0: 100}, {1: 40, 2: 60}, {0: 100}, {2: 100}, {0: 100}]),
    ],
)
def test_partitions_take_turns_while_there_is_a_backlog(
    monkeypatch: pytest.MonkeyPatch,
    turn: int,
    first: list[dict[int, int]],
    most_bytes: int | None,
    at_once: int,
) -> None:
    """A task whose records lie behind another one's backlog had no output until that was processed."""
    monkeypatch.setattr(input_of_kafka, "_AT_ONCE", at_once)
    monkeypatch.setattr(input_of_kafka, "_TURN_RECORDS", turn)
    reader = reader_of(Chunks((0, 5_000), (1, 40), (2, 5_000), (0, 5_000)))
    came: dict[int, list[int]] = {each: [] for each in range(4)}
    counts = []
    while found := reader.read(100, 0, most_bytes):
        for each in found:
            came[each.partition() or 0].append(each.offset() or 0)
        counts.append(Counter(each.partition() for each in found))
        # What is held does not count as read for a commit.
        assert reader.positions() == {("in", each): len(came[each]) for each in range(4)}
    assert counts[: len(first)] == first
    assert came == {0: list(range(10_000)), 1: list(range(40)), 2: list(range(5_000)), 3: []}


def test_partitions_with_large_records_take_turns_from_read_to_read() -> None:
    reader = reader_of(Chunks(*((each, 50) for each in range(4))))
    # Room for one record: each read begins with the partition that has waited longest.
    assert [reader.read(100, 0, 10)[0].partition() for _ in range(8)] == [0, 1, 2, 3] * 2
