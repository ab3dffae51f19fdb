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
                topic="in",
                partition=0,
                offset=each,
                key=self._key,
                value=self._value,
                headers=self._headers,
            )
            for each in given
        ]


@pytest.mark.parametrize(
    ("key", "value", "header"),
    [(0, EACH, 0), (EACH, 0, 0), (EACH, None, 0), (EACH // 2, EACH // 2, 0), (0, 0, EACH)],
    ids=["value", "key", "key of a tombstone", "both", "headers"],
)
def test_a_read_has_no_more_bytes_than_it_may(key: int, value: int | None, header: int) -> None:
    def make(_: dict[str, Any], **__: Any) -> Consumer:
        return cast("Consumer", Endless(key, value, header))

    kind = replace(clients.INPUT, library=make)
    reader = InputReader({}, ("in",), "group", kind, has_headers=header > 0)
    reader.assign({("in", 0): 0})
    for _ in range(2):
        found = reader.read(10_000, 0, MOST)
        # A header has a name, too.
        assert MOST - EACH <= len(found) * EACH <= MOST + EACH
    assert len(reader.read(10, 0, MOST)) == 10
