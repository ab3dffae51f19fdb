"""Ranks the replicas from which a state may be fetched. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from standby.shared.model import TaskRecord


class StateSource(str, enum.Enum):
    """Where a replica's state came from."""

    LOCAL = "local"
    """State left on the host's disks by this or an earlier container."""
    STANDBY = "standby"
    """A copy of a standby's state."""
    ACTIVE = "active"
    """A copy of the active's state."""
    CHANGELOG = "changelog"
    """No state: the whole changelog is replayed."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A replica that may give a copy of its state."""

    copy: int
    container: str
    kind: StateSource


def peers_of(record: TaskRecord | None, container: str) -> tuple[Peer, ...]:
    """Return the replicas to ask, best first, without those in ``container``, which is asking.

    Standbys come before the active, which has other work, and in-sync standbys before others. Each peer decides
    itself whether it can give a copy, because only it knows its current phase.
    """
    if record is None:
        return ()
    peers = [
        Peer(copy, holder, StateSource.ACTIVE if copy == record.active else StateSource.STANDBY)
        for copy, holder in record.placed.items()
        if holder != container
    ]
    return tuple(
        sorted(
            peers,
            key=lambda each: (each.kind is StateSource.ACTIVE, each.copy not in record.in_sync, each.copy),
        )
    )
