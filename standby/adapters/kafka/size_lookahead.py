"""Samples the size of coming records, for readers that count only records, like Spark's source."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka.input import bytes_of, bytes_with_headers
from standby.config import KafkaSettings
from standby.shared.model import InputPartition

_log: Final = logging.getLogger(__name__)

#: Sampled places, as fractions of the coming records; each sample is of another partition.
_PLACES: Final = (0.05, 0.25, 0.5, 1.0)

#: Number of records per sample, and how long to wait for the first one.
_RECORDS: Final = 8
_POLL_SECONDS: Final = 0.05


class SizeLookahead:
    """Samples coming records on a thread of its own, while the previous batch is being processed."""

    def __init__(self, settings: KafkaSettings, group: str, *, has_headers: bool = False) -> None:
        """Connects for the first sample. The arguments are those of `standby.adapters.kafka.input.InputReader`."""
        self._bytes_of = bytes_with_headers if has_headers else bytes_of
        self._settings, self._group = settings, group
        self._consumer: Consumer | None = None
        self._turns = itertools.count()
        self._thread: threading.Thread | None = None
        self._found = 0

    def look(self, positions: Mapping[InputPartition, int], records: int) -> None:
        """Start sampling the next ``records`` records from ``positions`` on."""
        if positions and (self._thread is None or not self._thread.is_alive()):
            self._found = 0
            self._thread = threading.Thread(
                target=self._run, args=(dict(positions), records), name="input-ahead", daemon=True
            )
            self._thread.start()

    def largest(self) -> int:
        """Return the mean record size, in bytes, of the sample with the largest records; 0: none found in time."""
        if self._thread is not None:
            self._thread.join(_POLL_SECONDS)
        return self._found

    def close(self) -> None:
        """End it."""
        if self._thread is not None:
            self._thread.join()
        if self._consumer is not None:
            clients.close_consumer(self._consumer)
            self._consumer = None

    def _run(self, positions: dict[InputPartition, int], records: int) -> None:
        partitions = sorted(positions)
        try:
            if self._consumer is None:
                self._consumer = clients.AHEAD.make(self._settings, {"group.id": self._group}, logger=_log)
            for part in _PLACES:
                topic, number = partitions[next(self._turns) % len(partitions)]
                offset = positions[topic, number] + int(part * records)
                self._consumer.assign([TopicPartition(topic, number, offset)])
                first = self._consumer.poll(_POLL_SECONDS)
                if first is None or first.error() is not None:
                    continue
                found = [first, *self._consumer.consume(_RECORDS - 1, timeout=0)]
                sizes = [self._bytes_of(each) for each in found if each.error() is None]
                self._found = max(self._found, sum(sizes) // len(sizes))
            self._consumer.unassign()
        except (KafkaException, RuntimeError) as error:
            # The result is only a hint.
            _log.warning("the size of the coming records is not known: %s", error)
