"""The producer of a task, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka.limits import RecordSizes, WriteRights
from standby.adapters.kafka.renewable_client import lasting
from standby.adapters.kafka.writer import KafkaWriter, WriteErrorContext
from standby.kernel.ports import RecordTooLarge
from standby.replica.outbox import Emitted, Outputs
from standby.shared.model import Offsets
from tests.fakes.jobs import job_config

FULL = KafkaError(KafkaError._QUEUE_FULL)


class Full:
    """A producer whose queue has no room for a record, although it holds nothing but an event."""

    def __init__(self, settings: object) -> None:
        self.events = 1
        self.polls = 0

    def __len__(self) -> int:
        return self.events

    def list_topics(self, topic: str, timeout_seconds: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def produce_batch(self, topic: str, records: Sequence[dict[str, Any]], partition: int) -> int:
        for each in records:
            each["_error"] = FULL
        return 0

    def produce(self, topic: str, **_: object) -> None:
        raise BufferError

    def poll(self, timeout_seconds: float) -> None:
        self.events, self.polls = 0, self.polls + 1
        assert self.polls < 5, "it waits for ever"


@pytest.mark.parametrize("headers", [(), (("name", b"value"),)])
def test_a_record_larger_than_the_clients_queue_is_refused(
    headers: tuple[tuple[str, bytes], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "WRITER", replace(clients.WRITER, library=cast("Any", Full)))
    config = job_config({"kafka.queue.buffering.max.kbytes": "1024"})
    admin = lasting(clients.QUESTIONS, {})
    context = WriteErrorContext(RecordSizes(config, admin), WriteRights(admin))
    writer = KafkaWriter(config, TopicPartition("changelog", 0), "id", None, context)
    outputs = Outputs.of([Emitted("out", b"key", b"value", headers)])
    with pytest.raises(
        RecordTooLarge, match=r"8 bytes, .* out: .*kafka\.queue\.buffering\.max\.kbytes is 1024"
    ):
        writer.prepare(outputs, {}, Offsets.of(1), "")
