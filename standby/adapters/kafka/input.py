"""The input topics through confluent-kafka: their bounds, and a reader at explicit positions."""

from __future__ import annotations

import logging
import operator
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition

from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import ClientKind
from standby.adapters.kafka.codes import DAMAGED, OUT_OF_RANGE, translate
from standby.adapters.kafka.offsets import EARLIEST, LATEST, OffsetClient
from standby.config import KafkaSettings
from standby.errors import CorruptState, StandfastError, Transient
from standby.ports import InputAway, UnreadableRecord
from standby.replica.outbox import Headers
from standby.shared.model import InputPartition

_LOG: Final = logging.getLogger(__name__)

#: How long a reader waits, after a corrupt batch, for the answer to the next fetch, which takes milliseconds.
_RESET_SECONDS: Final = 0.5

#: Before a size-limited read checks the size again, it takes at most this many times the records it already has.
_LOOK_RECORDS: Final = 16

#: The most records that are taken from the client at once, so that they are still in the processor's cache when they
#: are looked at: to hold one took 0.3 µs, and 0.7 µs with 40,000 at once (measured).
_AT_ONCE: Final = 1_000

#: A partition's turn has at least this many records, and this share of a read, if it has them: each turn is a
#: transaction of its task, which costs as much as several hundred records.
_TURN_RECORDS: Final = 5_000
_TURNS: Final = 4

#: Bytes of records that a reader may hold beyond a read, to find those of other partitions behind them.
_HELD_BYTES: Final = 16 << 20

#: Bytes of a held record beside its key and value, roughly.
_MESSAGE_BYTES: Final = 200


#: `Message.headers`, called so that an error that it leaves beside its result is raised. Compiled code, once a call has
#: been made a few times, does not look for one (CPython 3.11), and goes on with a list whose elements are missing.
_HEADERS: Final = operator.methodcaller("headers")


class InputBounds:
    """Requests the bounds of partitions, over persistent connections."""

    def __init__(self, settings: KafkaSettings, group: str, timeout_seconds: float = 5.0) -> None:
        """``group`` is the job's."""
        self._timeout_seconds = timeout_seconds
        # Without a logger of ours, for which the client would keep lines until it is polled.
        self._offsets = OffsetClient(settings, group)

    def ask(self, partitions: Iterable[InputPartition]) -> dict[InputPartition, tuple[int, int]]:
        """Return the first offset and the end of the committed part (last stable offset) of each partition.

        A partition without a timely answer, such as one without a leader or an unknown one, is left out. Raises
        `Transient` when no partition is left.
        """
        level = IsolationLevel.READ_COMMITTED
        found, _ = self._offsets.ask(list(partitions), level, (EARLIEST, LATEST), self._timeout_seconds)
        return {each: (first, end) for each, (first, end) in found.items()}

    def check(self, positions: Mapping[InputPartition, int]) -> dict[InputPartition, tuple[int, int]]:
        """Return the bounds of each partition like `ask`, and check that its position is within them.

        ``positions``: partition → offset. Raises `CorruptState` for a position outside of its partition, and
        `Transient` for one that an open transaction still hides from readers of committed records. If only some of
        the partitions answer, raises `InputAway` for the others.
        """
        found = self.ask(positions)
        away = sorted(set(positions) - set(found))
        if away:
            names = ", ".join(f"{topic}[{number}]" for topic, number in away)
            raise InputAway(f"no broker reports the bounds of input {names}", {each for _, each in away})
        for partition, (first, end) in found.items():
            position = positions[partition]
            if first <= position <= end:
                continue
            what = f"input {partition[0]}[{partition[1]}]: position {position}"
            if position < first:
                raise CorruptState(f"{what} is below the first record, {first}")
            level = IsolationLevel.READ_UNCOMMITTED
            ends, _ = self._offsets.ask([partition], level, (LATEST,), self._timeout_seconds)
            (high,) = ends[partition]
            if position > high:
                raise CorruptState(f"{what} is past the end, {high}")
            raise Transient(f"{what} is above the last stable offset, {end}: a transaction is open below it")
        return found


class InputReader:
    """Reads committed records of partitions of topics, one reader for one run of a feed."""

    def __init__(
        self,
        settings: KafkaSettings,
        topics: Sequence[str],
        group: str,
        kind: ClientKind[Consumer] = clients.INPUT,
        *,
        has_headers: bool = False,
    ) -> None:
        """``has_headers``: the job is given the records' headers, so that they count among the bytes of a read."""
        self._topics = topics
        self.sizes_of = sizes_with_headers if has_headers else sizes_of
        self._run_key: Callable[[Message], Hashable] = _place_of if len(topics) > 1 else Message.partition
        self._positions: dict[InputPartition, int] = {}
        self._until: Mapping[InputPartition, int] | None = None
        self._damaged: set[InputPartition] = set()
        """Partitions with an unreadable batch: all that the client returns for them afterwards is unreliable."""
        self._held: dict[InputPartition, list[Message]] = {}
        """Records taken from the client and not returned yet. The partition whose turn it is comes first."""
        self._sizes: dict[InputPartition, list[int]] = {}
        """The bytes of each held record. As pairs, they would be objects that the garbage collection visits."""
        self._held_records = 0
        self._held_bytes = 0
        self._consumer = kind.make(settings, {"group.id": group}, logger=_LOG)

    def connect(self, timeout_seconds: float) -> None:
        """Fetch the topics' metadata in advance of `assign`. Raises `Transient`."""
        for topic in self._topics:
            try:
                self._consumer.list_topics(topic, timeout=timeout_seconds)
            except KafkaException as error:
                raise _translated(error.args[0], topic) from error

    def idle(self) -> None:
        """Pass on what the client logs. To be called now and then before `assign`: nothing else takes it until then.

        While the brokers are away, a client logs some 20 lines a second, which it keeps.
        """
        while self._consumer.poll(0) is not None:
            pass  # an error, of which the log tells

    def assign(
        self, positions: Mapping[InputPartition, int], until: Mapping[InputPartition, int] | None = None
    ) -> None:
        """Start fetching at ``positions`` (partition → offset). Raises `Transient`.

        Records at or after the offsets in ``until`` are not returned, nor included in `positions`.
        """
        self._positions = dict(positions)
        self._until = until
        self._held = {each: [] for each in positions}
        self._sizes = {each: [] for each in positions}
        self._held_records = self._held_bytes = 0
        try:
            self._consumer.assign([TopicPartition(*each, offset) for each, offset in positions.items()])
        except KafkaException as error:
            raise _translated(error.args[0], ", ".join(self._topics)) from error

    def read(self, max_records: int, timeout_seconds: float, max_bytes: int | None = None) -> list[Message]:
        """Return available records, at most ``max_records``; waits for the first one only.

        Partitions take turns. The client returns what it has fetched of one partition, up to a megabyte, before
        anything of the next one, so while there is a backlog the others would have to wait for all of that.

        Stops once their keys and values, and headers that the job is given, reach ``max_bytes``, which may be exceeded
        by what the client has prefetched.
        Raises `CorruptState` when a position is out of range, `UnreadableRecord` for a record or batch that the client
        cannot decode, `Unavailable` for errors that a retry cannot fix, and `Transient` for others. The reader is
        unusable after an error: the client may have skipped what it could not read.
        """
        if not self._held_records:
            first = self._consumer.poll(timeout_seconds)
            if first is None:
                return []
            self._hold([first])
        while (limit := self._wanted(max_records, max_bytes)) > 0:
            more = self._consumer.consume(limit, timeout=0)
            self._hold(more)
            if len(more) < limit:
                break
        return self._take(max_records, max_bytes)

    def _wanted(self, max_records: int, max_bytes: int | None) -> int:
        """Return how many more records to take from the client for a read in which each partition has its turn."""
        limit, bound = max_records - self._held_records, max_bytes
        if limit <= 0 or (bound is not None and self._held_bytes >= bound):
            # Enough for the read; but the records of some partitions may be behind those of others.
            is_full = self._held_bytes + _MESSAGE_BYTES * self._held_records >= _HELD_BYTES
            if is_full or all(self._held.values()):
                return 0
            limit, bound = max_records, _HELD_BYTES
        if bound is not None:
            # As many as will fit, if they have the same size as those before.
            records = max(1, self._held_records)
            room = bound - self._held_bytes
            limit = min(limit, 1 + room * records // max(1, self._held_bytes), _LOOK_RECORDS * records)
        return min(limit, _AT_ONCE)

    def _hold(self, messages: Sequence[Message]) -> None:
        """Keep the records that are asked for. Raises as `read`."""
        records = messages
        if any(map(Message.error, messages)):
            records = [each for each in messages if each.error() is None]
            for each in messages:
                if (error := each.error()) is not None:
                    self._check(error, _place_of(each), each)
        if self._until is not None:
            records = [each for each in records if self._is_asked_for(each)]
        # The client returns long runs of one partition's records.
        for _, run in groupby(records, self._run_key):
            held = list(run)
            place, sizes = _place_of(held[0]), self.sizes_of(held)
            self._held[place] += held
            self._sizes[place] += sizes
            self._held_records += len(held)
            self._held_bytes += sum(sizes)

    def _check(self, error: KafkaError, partition: InputPartition, message: Message) -> None:
        if partition in self._damaged:
            return
        where = f"{partition[0]}[{partition[1]}]"
        if error.code() not in DAMAGED:
            raise _translated(error, where)
        self._damaged.add(partition)
        # The client prefetches; records after the end were not requested.
        if self._is_asked_for(message):
            offset = message.offset()
            raise UnreadableRecord(f"input {where}, offset {offset}: {error.str()}", batch=offset)

    def _take(self, max_records: int, max_bytes: int | None) -> list[Message]:
        """Return and release held records: turns of equal length of as many partitions as there is room for."""
        taken: list[Message] = []
        size, bound = 0, sys.maxsize if max_bytes is None else max_bytes
        left = min(max_records, self._held_records)
        while left > 0 and size < bound:
            waiting = [partition for partition, held in self._held.items() if held]
            share = max(-(-left // len(waiting)), max_records // _TURNS, _TURN_RECORDS)
            for partition in waiting:
                if left <= 0 or size >= bound:
                    break
                # Its turn: if a bound cuts the others off, they come first next time.
                held = self._held[partition] = self._held.pop(partition)
                sums = list(accumulate(self._sizes[partition][: min(share, left)]))
                # The last record may exceed the bound.
                count = min(len(sums), bisect_left(sums, bound - size) + 1)
                taken += held[:count]
                del held[:count], self._sizes[partition][:count]
                left -= count
                size += sums[count - 1]
        self._held_records -= len(taken)
        self._held_bytes -= size
        return taken

    def _await_reset(self) -> None:
        """Wait until the client has noticed that its position is invalid, so that it can be closed.

        After an unreadable batch, it misinterprets the following data as a batch, and fetches from a random offset.
        The broker's answer, OFFSET_OUT_OF_RANGE, must not arrive during the closing (`clients.close_consumer`).
        """
        deadline = time.monotonic() + _RESET_SECONDS
        while time.monotonic() < deadline:
            message = self._consumer.poll(_RESET_SECONDS / 10)
            error = None if message is None else message.error()
            if error is not None and error.code() in OUT_OF_RANGE:
                break

    def _is_asked_for(self, message: Message) -> bool:
        until = self._until
        return until is None or (message.offset() or 0) < until[_place_of(message)]

    def positions(self) -> dict[InputPartition, int]:
        """Return the offset after everything returned so far, per partition, including transaction markers."""
        for each in self._consumer.position([TopicPartition(*each) for each in self._positions]):
            # Negative until something was read.
            if each.offset >= 0:
                partition = (each.topic, each.partition)
                held = self._held[partition]
                at = (held[0].offset() or 0) if held else each.offset
                end = at if self._until is None else self._until[partition]
                self._positions[partition] = min(at, end)
        return dict(self._positions)

    def close(self) -> None:
        """Stop fetching, and close the client."""
        if self._damaged:
            self._await_reset()
        clients.close_consumer(self._consumer)


def _place_of(message: Message) -> InputPartition:
    return message.topic() or "", message.partition() or 0


def sizes_of(messages: Sequence[Message]) -> list[int]:
    """Return the bytes of each one's key and value; the client's own length of a record is that of its value."""
    return [len(each) + len(each.key() or b"") for each in messages]


def headers_of(message: Message) -> Headers:
    """Return a record's headers. Raises `UnreadableRecord` if the name of one is not UTF-8.

    Such a record must not be asked again: the client (confluent-kafka 2.16) then returns a list with missing elements,
    and the process ends at the first look into it.
    """
    try:
        # The type hints allow a mapping, but it is a list of pairs.
        found: Any = _HEADERS(message)
    except SystemError as error:
        # Its cause is the decoder's error ("returned a result with an exception set").
        raise UnreadableRecord(
            f"input {message.topic()}[{message.partition()}], offset {message.offset()}: the name of a header is not "
            f"UTF-8: {error.__cause__}"
        ) from error
    return tuple(found or ())


def sizes_with_headers(messages: Sequence[Message]) -> list[int]:
    """Return the bytes of each one's key, value and headers. Raises as `headers_of`."""
    in_headers = [sum(len(name) + len(value or b"") for name, value in headers_of(each)) for each in messages]
    return list(map(operator.add, sizes_of(messages), in_headers))


def _translated(error: KafkaError, what: str) -> StandfastError:
    if error.code() in OUT_OF_RANGE:
        return CorruptState(f"input {what}: {error.str()}")
    return translate(error, f"input {what} cannot be read")
