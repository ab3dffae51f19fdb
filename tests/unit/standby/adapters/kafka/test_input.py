"""A reader of inputs: how much of what there is one read takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka import input as input_of_kafka
from standby.adapters.kafka.input import InputReader

EACH, MOST = 20_000, 1_000_000


class Fetched:
    """A consumer that has fetched these messages, and gives them out in this order."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = iter(messages)
        self._ends: dict[int | None, int] = {}

    def assign(self, places: Sequence[TopicPartition]) -> None:
        del places

    def poll(self, timeout: float) -> Message | None:
        return next(iter(self.consume(1, timeout)), None)

    def consume(self, limit: int, timeout: float = 0) -> list[Message]:
        del timeout
        given = list(islice(self._messages, limit))
        self._ends.update({each.partition(): (each.offset() or 0) + 1 for each in given})
        return given

    def position(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition("in", each.partition, self._ends.get(each.partition, -1001)) for each in places
        ]


def endless(key: int, value: int | None, header: int) -> Iterator[Message]:
    """Yield records with a key, a value and a header of so many bytes."""
    headers: list[Any] = [("name", bytes(header)), ("none", None)] if header else []
    body = None if value is None else bytes(value)
    for at in count():
        yield Message(topic="in", partition=0, offset=at, key=bytes(key), value=body, headers=headers)


def chunks(*of: tuple[int, int]) -> Iterator[Message]:
    """Yield all records that were fetched of one partition before any of the next: partition and their number."""
    ends = Counter[int]()
    for partition, records in of:
        for _ in range(records):
            yield Message(topic="in", partition=partition, offset=ends[partition], key=None, value=bytes(10))
            ends[partition] += 1


def reader_of(
    messages: Iterable[Message], *, has_headers: bool = False, until: int | None = None
) -> InputReader:
    """Return a reader of four partitions, from their beginnings on."""
    kind = replace(clients.INPUT, library=lambda *_, **__: cast("Consumer", Fetched(messages)))
    reader = InputReader({}, ("in",), "group", kind, has_headers=has_headers)
    places = [("in", each) for each in range(4)]
    reader.assign(dict.fromkeys(places, 0), None if until is None else dict.fromkeys(places, until))
    return reader


@pytest.mark.parametrize(
    ("key", "value", "header"),
    [(0, EACH, 0), (EACH, 0, 0), (EACH, None, 0), (EACH // 2, EACH // 2, 0), (0, 0, EACH)],
    ids=["value", "key", "key of a tombstone", "both", "headers"],
)
def test_a_read_has_no_more_bytes_than_it_may(key: int, value: int | None, header: int) -> None:
    for until in (None, 1_000):
        reader = reader_of(endless(key, value, header), has_headers=header > 0, until=until)
        for _ in range(2):
            found = reader.read(10_000, 0, MOST)
            # A header has a name, too.
            assert MOST - EACH <= len(found) * EACH <= MOST + EACH
        assert len(reader.read(10, 0, MOST)) == 10


def test_records_that_suddenly_grow_do_not_make_a_read_larger() -> None:
    """By their number many more would be read; nothing said before that they grow."""
    sizes = [50] * 1_500 + [EACH] * 400 + [50] * 1_500
    records = (
        Message(topic="in", partition=0, offset=at, value=bytes(each)) for at, each in enumerate(sizes)
    )
    reader, came = reader_of(records), list[int]()
    while found := [len(each.value() or b"") for each in reader.read(300, 0, MOST)]:
        assert sum(found) < MOST + EACH, len(came)
        came += found
    assert came == sizes


_TURNS_OF_60 = [{0: 60, 1: 40}, {2: 60, 0: 40}, {2: 60, 0: 40}]


@pytest.mark.parametrize(
    ("turn", "first", "most_bytes", "at_once"),
    [
        (1, [{0: 34, 1: 34, 2: 32}, {0: 59, 1: 6, 2: 35}], None, 1_000),
        (60, _TURNS_OF_60, None, 1_000),
        (60, _TURNS_OF_60, 1_000_000, 1_000),
        (60, _TURNS_OF_60, None, 7),
        (100, [{0: 100}, {1: 40, 2: 60}, {0: 100}, {2: 100}, {0: 100}], None, 1_000),
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
    reader = reader_of(chunks((0, 5_000), (1, 40), (2, 5_000), (0, 5_000)))
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
    reader = reader_of(chunks(*((each, 50) for each in range(4))))
    # Room for one record: each read begins with the partition that has waited longest.
    assert [reader.read(100, 0, 10)[0].partition() for _ in range(8)] == [0, 1, 2, 3] * 2
