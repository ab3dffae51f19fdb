"""Records of a job's topics, for the command line: what it writes is read, what it reads can be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from standby.adapters.kafka import clients
from standby.config import KafkaSettings
from standby.errors import Unavailable

#: How long a broker may take to answer, seconds.
_ANSWER_SECONDS: Final = 10.0

#: How often the writer looks whether it is to end while the broker does not take records, seconds.
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A committed record of a topic."""

    topic: str
    key: bytes | None
    value: bytes | None


class TopicsReader:
    """Reads the records of topics that are committed from now on."""

    def __init__(self, settings: KafkaSettings, partitions: Mapping[str, int]) -> None:
        """Begin at the present ends of topics with so many partitions; raises `Unavailable`."""
        self._consumer = clients.OUTPUTS_READER.make(settings, logger=clients.LIBRARY_LOG)
        asked = [TopicPartition(topic, each) for topic, count in partitions.items() for each in range(count)]
        try:
            ends = [self._consumer.get_watermark_offsets(each, _ANSWER_SECONDS)[1] for each in asked]
        except KafkaException as error:
            clients.close_consumer(self._consumer)
            raise Unavailable(f"the outputs cannot be read: {error.args[0].str()}") from error
        self._consumer.assign(
            [TopicPartition(each.topic, each.partition, end) for each, end in zip(asked, ends, strict=True)]
        )

    def read(self, timeout_seconds: float) -> list[TopicRecord]:
        """Return the next records; none if none comes in time, or none can be read now."""
        return [
            TopicRecord(each.topic() or "", _bytes(each.key()), _bytes(each.value()))
            for each in self._consumer.consume(500, timeout_seconds)
            if each.error() is None
        ]

    def close(self) -> None:
        """Stop reading."""
        clients.close_consumer(self._consumer)


class TopicWriter:
    """Writes records to one topic; keys get the partitions that Kafka's own producers give them."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._topic = topic
        #: How many records Kafka has refused, and why the first one.
        self.refused = 0
        self.why = ""
        self._producer = clients.INPUTS_WRITER.make(settings, logger=clients.LIBRARY_LOG)

    def write(self, key: bytes | None, value: bytes) -> None:
        """Write a record; waits while too many are on their way. Raises `Unavailable`."""
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._note)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(_LOOK_SECONDS)
            except KafkaException as error:
                raise Unavailable(f"{self._topic} cannot be written: {error.args[0].str()}") from error

    def flush(self, timeout_seconds: float) -> int:
        """Return of how many records the broker has not said in this time whether it takes them."""
        return int(self._producer.flush(timeout_seconds))

    def _note(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.refused += 1
            self.why = self.why or error.str()


def key_and_value(lines: Iterable[bytes]) -> Iterable[tuple[bytes | None, bytes]]:
    """Yield key and value of each line ``KEY|VALUE`` that is not empty; without ``|`` there is no key. Pure."""
    for line in lines:
        text = line.rstrip(b"\r\n")
        key, bar, value = text.partition(b"|")
        if text:
            yield (key, value) if bar else (None, text)


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
