"""A reader of inputs: how much of what there is one read takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka.input import InputReader

EACH, MOST = 20_000, 1_000_000


class Endless:
    """A consumer of records with a key and a value of so many bytes, as many as somebody takes."""

    def __init__(self, key: int, value: int | None) -> None:
        self._key, self._value = bytes(key), None if value is None else bytes(value)
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
            Message(topic="in", partition=0, offset=each, key=self._key, value=self._value) for each in given
        ]


@pytest.mark.parametrize(
    ("key", "value"),
    [(0, EACH), (EACH, 0), (EACH, None), (EACH // 2, EACH // 2)],
    ids=["value", "key", "key of a tombstone", "both"],
)
def test_a_read_has_no_more_bytes_than_it_may(key: int, value: int | None) -> None:
    def make(_: dict[str, Any], **__: Any) -> Consumer:
        return cast("Consumer", Endless(key, value))

    reader = InputReader({}, ("in",), "group", replace(clients.INPUT, library=make))
    reader.assign({("in", 0): 0})
    for _ in range(2):
        found = reader.read(10_000, 0, MOST)
        assert MOST <= len(found) * EACH <= MOST + EACH
    assert len(reader.read(10, 0, MOST)) == 10
