"""The last failover or hand-over of each processor, from the leader's log entries; commands wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from appmaster.eventlog.entries import EntryKind

_ENDS: Final = frozenset(
    {EntryKind.HANDOVER_FINISHED, EntryKind.HANDOVER_GIVEN_UP, EntryKind.FAILOVER_FINISHED}
)


class LatestFailovers:
    """Receives the entries of the event log on the leader's thread; any thread may read."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}

    def note(self, entry: Mapping[str, Any]) -> None:
        """Store an entry if it ends a failover or hand-over."""
        if entry["kind"] not in _ENDS:
            return
        data = entry["data"]
        found = {
            "job": entry["job"],
            "processor": data["processor"],
            "kind": entry["kind"],
            "at_ms": entry["at_ms"],
            "copy": entry["copy"],
            "container": entry["container"],
            "host": entry["host"],
            "reason": entry["reason"],
            "tasks": data.get("tasks", {}),
        }
        self._latest = {**self._latest, (entry["job"], data["processor"]): found}

    def latest(self) -> list[dict[str, Any]]:
        """Return the last one of each processor, JSON-ready, by job and number."""
        return [found for _, found in sorted(self._latest.items())]
