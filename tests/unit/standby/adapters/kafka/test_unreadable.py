"""What librdkafka cannot take apart: it names the place, and nothing that nobody asked for counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from standby.adapters.kafka.input import InputReader
from standby.errors import Transient
from standby.ports import UnreadableRecord

BAD = KafkaError(KafkaError._BAD_COMPRESSION, "Decompression failed")


def message(offset: int, error: KafkaError | None = None) -> Any:
    values = {"topic": "in", "partition": 0, "offset": offset, "error": error}
    return Message(**{name: (lambda value=value: value) for name, value in values.items()})


class Message(SimpleNamespace):
    def __len__(self) -> int:
        return 1


class Log:
    """A consumer that gives out what it was made with, at once."""

    def __init__(self, *messages: Any) -> None:
        self._messages = list(messages)

    def assign(self, _: object) -> None:
        pass

    def poll(self, _: float) -> Any:
        return self._messages.pop(0) if self._messages else None

    def consume(self, count: int, timeout: float) -> list[Any]:
        del timeout
        taken, self._messages = self._messages[:count], self._messages[count:]
        return taken


def reader(*messages: Any, until: int | None = None) -> InputReader:
    made = InputReader({"bootstrap.servers": "unused:1", "log_level": 0}, ("in",), "group")
    made.close()
    made._consumer = cast("Any", Log(*messages))
    made.assign({("in", 0): 0}, None if until is None else {("in", 0): until})
    return made


def test_batch_of_the_log_that_cannot_be_taken_apart_is_named_by_its_offset() -> None:
    with pytest.raises(UnreadableRecord, match=r"input in\[0\], offset 2: Decompression failed"):
        reader(message(0), message(1), message(2, BAD)).read(10, 0)


def test_nothing_behind_the_end_of_a_range_is_looked_at() -> None:
    read = reader(message(0), message(1), message(2, BAD), until=2).read(10, 0)
    assert [each.offset() for each in read] == [0, 1]
    with pytest.raises(UnreadableRecord):
        reader(message(0), message(1, BAD), until=2).read(10, 0)


def test_every_other_error_is_a_passing_fault_wherever_it_is_told() -> None:
    away = KafkaError(KafkaError._TRANSPORT, "away")
    with pytest.raises(Transient, match=r"cannot be read: .*away"):
        reader(message(0), message(-1001, away), until=2).read(10, 0)
