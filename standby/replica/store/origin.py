"""The origin of local state, and the checks whether it may be used (rule `old-state`). Pure.

The origin is recorded in two places, which must agree. The *position* is in the database and is written in one batch
with the data, so it is never ahead of the data. The *side file* is next to the database and is updated only after a
flush. It is a lower bound of what the database must contain, which detects a database that silently opens empty (a
truncated MANIFEST).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Final

from standby.errors import CorruptState, Unavailable
from standby.shared.model import TaskId


class BeginningLost(Unavailable):
    """A changelog does not begin at offset 0, so an empty state cannot be restored from it."""


#: Incremented when the layout of the database or of the side file changes.
FORMAT: Final = 1

#: Name of the side file in a task's state directory; the database is in `DATABASE` beside it.
SIDE_FILE: Final = "origin.json"
DATABASE: Final = "rocksdb"


@dataclass(frozen=True, slots=True)
class Position:
    """The changelog position of a database."""

    offset: int
    """Changelog offset after the last record applied."""
    caught_up_ms: int
    """Latest known time (Unix milliseconds) at which the whole changelog was below `offset`."""

    def encode(self) -> bytes:
        """Return the value of the position key."""
        return self.offset.to_bytes(8, "big") + self.caught_up_ms.to_bytes(8, "big")


def decode_position(data: bytes) -> Position:
    """Return the position in the position key's value. Raises `CorruptState` when it is malformed."""
    if len(data) != 16:
        raise CorruptState(f"the position has {len(data)} bytes, not 16")
    return Position(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big"))


@dataclass(frozen=True, slots=True)
class Origin:
    """The side file: the task and changelog of the state, and its position at the last flush."""

    job: str
    stage: str
    partition: int
    run: str
    topic: str
    topic_id: str
    """Kafka's id of the changelog topic: a topic that was deleted and recreated has another id."""
    retention_ms: int
    """The changelog's delete.retention.ms: how long tombstones are kept."""
    offset: int = 0
    caught_up_ms: int = 0
    format: int = FORMAT

    @property
    def task(self) -> TaskId:
        """The task whose state it is."""
        return TaskId(self.job, self.stage, self.partition)

    def at(self, position: Position) -> Origin:
        """Return the side file for a database that was flushed at ``position``."""
        return replace(self, offset=position.offset, caught_up_ms=position.caught_up_ms)

    def encode(self) -> bytes:
        """Return the file's content."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"


_TYPES: Final = {each.name: int if each.type in ("int", int) else str for each in fields(Origin)}


def decode_origin(data: bytes) -> Origin:
    """Return the content of a side file. Raises `CorruptState` when it is not of this format."""
    try:
        content = json.loads(data)
    except ValueError as error:
        raise CorruptState(f"the side file is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CorruptState(f"the side file is not of format {FORMAT}")
    for name, kind in _TYPES.items():
        if type(content.get(name)) is not kind:
            raise CorruptState(f"{name} is missing or wrong in the side file: {content.get(name)!r}")
    return Origin(**{name: content[name] for name in _TYPES})


def margin_ms(retention_ms: int) -> int:
    """Return the safety margin by which state counts as too old before the retention of tombstones ends."""
    return max(retention_ms // 10, 5_000)


def is_too_old(caught_up_ms: int, retention_ms: int, now_ms: int) -> bool:
    """Return whether tombstones that this state has not seen may have been removed already."""
    return now_ms - caught_up_ms > retention_ms - margin_ms(retention_ms)


def check_state(found: Origin, expected: Origin, position: Position | None, end: int, now_ms: int) -> None:
    """Raise `CorruptState` with the reason if the state must not be used.

    ``position`` is the database's position, None when it has none; ``end`` is the changelog's current end.
    """
    for name in ("job", "stage", "partition", "run", "topic", "topic_id"):
        have, want = getattr(found, name), getattr(expected, name)
        if have != want:
            raise CorruptState(f"it is of {name} {have}, not {want}")
    if position is None:
        raise CorruptState("the database has no position")
    if position.offset < found.offset:
        raise CorruptState(f"the database is at {position.offset} although {found.offset} was flushed")
    if position.offset > end:
        raise CorruptState(f"it is at {position.offset}, past the changelog's end {end}")
    if is_too_old(position.caught_up_ms, expected.retention_ms, now_ms):
        raise CorruptState(
            f"it was last caught up {now_ms - position.caught_up_ms} ms ago, which is too long for a changelog "
            f"that keeps tombstones for {expected.retention_ms} ms"
        )


def check_beginning(origin: Origin, first: int) -> None:
    """Raise `BeginningLost` when an empty state cannot be restored from a changelog (rule `whole-changelog`).

    ``first`` is its first offset. A topic that has only ever been compacted begins at 0: compaction removes records,
    but does not move the log's start. If the start has moved, records were deleted that may have been the latest
    ones of their keys.
    """
    if first > 0:
        topic = origin.topic
        raise BeginningLost(
            f"changelog {topic}-{origin.partition} has lost its beginning: it begins at offset {first}, what was "
            "committed before is not in it, and no copy of the state is available. Its cleanup.policy was not always "
            "compact, or records were deleted. Bring back a host that has the state; otherwise recreate the topic, run "
            f"`standfast topics {origin.job} --accept {topic} --from earliest`, and submit the job: the state "
            "is then rebuilt from the inputs (docs/troubles.md)"
        )
