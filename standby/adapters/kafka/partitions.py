"""Selects the partition of each output record, as librdkafka's partitioner ``murmur2_random`` does.

A commit has to know the last record in each partition that it writes to (rule `marker-seen`). If librdkafka selects the
partitions, only a report about each record says that, which takes a sixth of the time of a batch
(docs/decisions/0036). If they are selected here, a report about the last record of each partition is enough.

`Producer.produce_batch` has one partition for all its records: what a record says of its own is ignored
(confluent-kafka 2.16, https://github.com/confluentinc/confluent-kafka-python/pull/2069). So records are handed over in
parts, one for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

#: The record's partition is left to librdkafka.
BY_LIBRARY: Final = -1

#: The setting, and those of its values for which keyed records are selected here.
SETTING: Final = "partitioner"
DEFAULT: Final = "murmur2_random"
_OURS: Final = frozenset({DEFAULT, "murmur2"})

#: How often to ask for the number of partitions, which may grow. librdkafka asks every five minutes.
_ASK_SECONDS: Final = 60.0

#: Longer keys are left to librdkafka: here, each four bytes of the longest key cost a few operations on arrays.
_MOST_KEY_BYTES: Final = 256

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)

#: Number of bytes after a key's last whole word → which bits of the next word are the key's.
_OF_REST: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)


class OutputPartitions:
    """The partitions of one task's output records. Used by one thread."""

    def __init__(
        self, partitioner: str, count_of: Callable[[str], int | None], monotonic: Callable[[], float]
    ) -> None:
        """``partitioner`` is the job's setting; ``count_of`` asks for a topic's number of partitions, None: unknown."""
        self._is_ours = partitioner in _OURS
        self._count_of = count_of
        self._monotonic = monotonic
        #: Topic → its number of partitions as last known, and when to ask again.
        self._counts: dict[str, tuple[int | None, float]] = {}

    def parts(self, topic: str, keys: Sequence[bytes | None]) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield each partition with the indices of its records, in order; `BY_LIBRARY` if librdkafka is to select it.

        Records with the same key are in the same part.
        """
        count = self._count(topic) if self._is_ours else None
        if count is None or count == 1:
            yield BY_LIBRARY if count is None else 0, range(len(keys))
            return
        own = [at for at, key in enumerate(keys) if key is not None and len(key) <= _MOST_KEY_BYTES]
        if len(own) == len(keys):
            yield from _parts(_partitions(keys, count))
            return
        if own:
            for partition, part in _parts(_partitions([keys[at] for at in own], count)):
                yield partition, [own[at] for at in part]
        yield BY_LIBRARY, [at for at, key in enumerate(keys) if key is None or len(key) > _MOST_KEY_BYTES]

    def forget(self) -> None:
        """Ask for the numbers of partitions again, for example of a new client."""
        self._counts.clear()

    def _count(self, topic: str) -> int | None:
        known, ask_at = self._counts.get(topic, (None, 0.0))
        if self._monotonic() >= ask_at:
            known = self._count_of(topic) or known
            self._counts[topic] = known, self._monotonic() + _ASK_SECONDS
        return known


def _partitions(keys: Sequence[Any], count: int) -> Any:
    """Return ``keys``' partitions among ``count``, as an array."""
    found = (murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    # A stable sort of 16 bits takes a tenth of the time of one of 32.
    return found.astype(np.uint16) if count <= 1 << 16 else found


def _parts(partitions: Any) -> Iterator[tuple[int, list[int]]]:
    """Yield each of ``partitions``, at least one, with the indices where it is."""
    order = np.argsort(partitions, kind="stable")
    found, begins = np.unique(partitions[order], return_index=True)
    for partition, part in zip(found.tolist(), np.split(order, begins[1:]), strict=True):
        yield partition, part.tolist()


def murmur2(keys: Sequence[bytes]) -> Any:
    """Return Kafka's hash of each key, as an array of uint32 (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    if not keys:
        return np.empty(0, np.uint32)
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    starts = np.cumsum(lengths) - lengths
    # Longest first: the keys that have another word are always the first ones.
    order = np.argsort(-lengths, kind="stable")
    lengths, starts = lengths[order], starts[order]
    whole = lengths >> 2
    # The four bytes from each position on; a key's last bytes may be followed by less than a word.
    data = b"".join(keys) + bytes(4)
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    found = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    for number in range(int(whole[0])):
        more = int(np.searchsorted(-whole, -number, side="left"))
        word = words[starts[:more] + 4 * number] * _M
        word ^= word >> np.uint32(24)
        word *= _M
        found[:more] *= _M
        found[:more] ^= word
    rest = words[starts + 4 * whole] & _OF_REST[lengths & 3]
    found = np.where(lengths & 3, (found ^ rest) * _M, found)
    found ^= found >> np.uint32(13)
    found *= _M
    found ^= found >> np.uint32(15)
    unsorted = np.empty_like(found)
    unsorted[order] = found
    return unsorted
