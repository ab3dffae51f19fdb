"""What one batch of one task does: reads that see its own writes, ordered changes, and output. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from standby.api import State
from standby.errors import BadConfiguration
from standby.replica.keys import prefix

#: Full key → new value, None for a deletion; in the order of each key's first write.
Changes = dict[bytes, "bytes | None"]


class Reads(Protocol):
    """The committed state below a batch."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each full key, in order; None where there is none."""
        ...


class StoreOverlay:
    """One named store during one batch; implements `standby.api.Store`."""

    def __init__(self, name: str, reads: Reads, changes: Changes) -> None:
        self._prefix = prefix(name)
        self._reads = reads
        self._changes = changes

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        full = self._prefix + key
        if full in self._changes:
            return self._changes[full]
        return self._reads.get_many((full,))[0]

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the present ones among ``keys`` with their values, in one look-up."""
        present: dict[bytes, bytes] = {}
        missing: list[bytes] = []
        for key in dict.fromkeys(keys):
            full = self._prefix + key
            if full not in self._changes:
                missing.append(key)
            elif (value := self._changes[full]) is not None:
                present[key] = value
        if missing:
            values = self._reads.get_many([self._prefix + key for key in missing])
            present.update(
                (key, value) for key, value in zip(missing, values, strict=True) if value is not None
            )
        return present

    def put(self, key: bytes, value: bytes) -> None:
        """Set ``key`` to ``value``."""
        # Checked here, where the author's line is in the traceback, not when the batch is written.
        if type(key) is not bytes or type(value) is not bytes:
            raise TypeError(
                f"a store maps bytes to bytes, not {type(key).__name__} to {type(value).__name__}"
            )
        self._changes[self._prefix + key] = value

    def delete(self, key: bytes) -> None:
        """Remove ``key``, whether it exists or not."""
        self._changes[self._prefix + key] = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """One output record."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] | Sequence[tuple[str, bytes | None]] | None = None
    """As pairs where a name may come twice or a value be missing."""


class Outbox:
    """Collects a batch's output records; implements `standby.api.Output`."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = tuple(topics)
        self.records: list[Emitted] = []

    def emit(
        self,
        key: bytes | None,
        value: bytes | None,
        topic: str | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Send a record to ``topic``, by default the first output."""
        if topic is None:
            if not self._topics:
                raise BadConfiguration("task.outputs: empty, but the step emits a record without a topic")
            topic = self._topics[0]
        elif topic not in self._topics:
            raise BadConfiguration(f"task.outputs: does not list {topic!r}, to which the step emits")
        self.records.append(Emitted(topic, key, value, headers))


def overlay(stores: Iterable[str], reads: Reads) -> tuple[State, Changes]:
    """Return the state that a step function gets, and the dictionary in which its changes gather.

    The last write of a key counts; nothing reaches ``reads``.
    """
    changes: Changes = {}
    return {name: StoreOverlay(name, reads, changes) for name in stores}, changes
