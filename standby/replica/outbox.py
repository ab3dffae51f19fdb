"""The output records of a batch, from the step to the producer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from standby.errors import BadConfiguration

#: A record's headers, in order; a name may occur twice, and a value may be missing.
Headers = tuple[tuple[str, bytes | None], ...]

_CONTENT: Final = frozenset({bytes, type(None)})
_HEADER_VALUES: Final = _CONTENT | {str}


class Emitted(NamedTuple):
    """An output record."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """Unix milliseconds; None: the time of sending."""


@dataclass(slots=True)
class TopicRecords:
    """The output records for one topic, in order, as columns of equal length."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    special: dict[int, tuple[Headers, int | None]] = field(default_factory=dict)
    """Index of a record → its headers and its time in Unix milliseconds, if it has either."""

    def add(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int | None) -> None:
        """Append a record."""
        if headers or timestamp_ms is not None:
            self.special[len(self.keys)] = headers, timestamp_ms
        self.keys.append(key)
        self.values.append(value)


class Outputs:
    """The output records of a transaction, in order for each topic.

    They are columns because an object for each record took a tenth of a batch's processor time (docs/benchmarks.md).
    """

    def __init__(self, topics: Iterable[str] = ()) -> None:
        self.by_topic: Final = {each: TopicRecords() for each in topics}

    @classmethod
    def of(cls, records: Iterable[Emitted]) -> Outputs:
        """Return these records."""
        found = cls()
        for topic, key, value, headers, timestamp_ms in records:
            found.by_topic.setdefault(topic, TopicRecords()).add(key, value, headers, timestamp_ms)
        return found

    def __len__(self) -> int:
        return sum(len(each.keys) for each in self.by_topic.values())

    def __iter__(self) -> Iterator[Emitted]:
        for topic, each in self.by_topic.items():
            for at, (key, value) in enumerate(zip(each.keys, each.values, strict=True)):
                yield Emitted(topic, key, value, *each.special.get(at, ((), None)))


class Outbox:
    """Collects a batch's output records; implements `standby.api.Output`."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.records: Final = Outputs(topics)
        self._first = topics[0] if topics else None
        self._open = self.records.by_topic
        self._is_over = False

    def emit(
        self,
        key: bytes | None,
        value: bytes | None,
        topic: str | None = None,
        headers: Mapping[str, bytes] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send a record to ``topic``, by default the first output."""
        records = self._records(topic)
        # Checked here, where the author's line is in the traceback, not when the batch is written.
        if not ((key is None or type(key) is bytes) and (value is None or type(value) is bytes)):
            raise _not_bytes(key, value)
        if timestamp_ms is not None:
            _check_time(timestamp_ms)
        # Copied, because the caller may change and reuse its headers for the next record.
        records.add(key, value, _copied(headers) if headers is not None else (), timestamp_ms)

    def emit_many(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], topic: str | None = None
    ) -> None:
        """Send records to ``topic``, in order; all or, on an error, none of them."""
        records = self._records(topic)
        # Not as pairs, which would be an object for each record again.
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values are no records")
        # A list that is added to an array is not extended: the sum of each pair of elements is made.
        keys, values = list(keys), list(values)
        if not _CONTENT.issuperset({*map(type, keys), *map(type, values)}):
            pairs = zip(keys, values, strict=True)
            raise next(_not_bytes(*each) for each in pairs if not _CONTENT.issuperset(map(type, each)))
        records.keys += keys
        records.values += values

    def end(self) -> None:
        """Refuse whatever is emitted from now on: the batch is complete."""
        self._open, self._is_over = {}, True

    def _records(self, topic: str | None) -> TopicRecords:
        if topic is None:
            topic = self._first
            if topic is None:
                raise BadConfiguration("task.outputs: empty, but the step emits a record without a topic")
        records = self._open.get(topic)
        if records is None and self._is_over:
            raise RuntimeError("the batch that this output was given for is over")
        if records is None:
            raise BadConfiguration(f"task.outputs: does not list {topic!r}, to which the step emits")
        return records


def _not_bytes(key: object, value: object) -> TypeError:
    return TypeError(
        f"an output record has bytes or None, not {type(key).__name__} and {type(value).__name__}"
    )


def _copied(headers: Mapping[str, bytes] | Sequence[tuple[str, bytes | None]]) -> Headers:
    """Return headers as Kafka's client takes them; text as a value is accepted although `standby.api` excludes it."""
    found: list[tuple[str, bytes | None]] = []
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"headers are pairs of a name and a value, not {pair!r}")
        name, content = pair
        if type(name) is not str or type(content) not in _HEADER_VALUES:
            raise TypeError(
                f"a header has text as name and bytes as value, not {type(name).__name__} and "
                f"{type(content).__name__}: {name!r}"
            )
        name.encode()  # raises for a lone surrogate, which no record can contain
        if "\0" in name:
            raise ValueError(f"the name of a header has no NUL, at which Kafka's client ends it: {name!r}")
        found.append((name, content.encode() if isinstance(content, str) else content))
    return tuple(found)


def _check_time(timestamp_ms: object) -> None:
    if type(timestamp_ms) is not int:
        raise TypeError(f"timestamp_ms is a whole number, not {type(timestamp_ms).__name__}")
    # Kafka's client interprets 0 as the time of sending, and does not support times before 1970.
    if not 0 < timestamp_ms < 1 << 63:
        raise ValueError(f"timestamp_ms counts milliseconds since 1970, from 1 on: {timestamp_ms}")
