"""Which other replicas a state may be fetched from, best first. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from standby.shared.model import TaskRecord


class Source(str, enum.Enum):
    """Where a replica's state came from."""

    LOCAL = "local"
    """What an earlier container, or this one, left on the host's disks."""
    STANDBY = "standby"
    """A copy of a standby's."""
    ACTIVE = "active"
    """A copy of the active's."""
    CHANGELOG = "changelog"
    """Nothing: everything is replayed."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A replica that may give a copy of its state."""

    copy: int
    container: str
    kind: Source


def peers_of(record: TaskRecord | None, container: str) -> tuple[Peer, ...]:
    """Return the replicas to be asked, best first; ``container`` is who asks, and is left out.

    Standbys before the active, which has other work to do; those in sync before those that are only placed.
    Whether one of them can give is for itself to say: only it knows its phase as of now.
    """
    if record is None:
        return ()
    peers = [
        Peer(copy, holder, Source.ACTIVE if copy == record.active else Source.STANDBY)
        for copy, holder in record.placed.items()
        if holder != container
    ]
    return tuple(
        sorted(
            peers, key=lambda each: (each.kind is Source.ACTIVE, each.copy not in record.in_sync, each.copy)
        )
    )
