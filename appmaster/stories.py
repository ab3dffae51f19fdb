"""The last failover or hand-over of each processor, as the leader told it: what a command waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_TOLD: Final = frozenset({"handover_finished", "handover_given_up", "failover_finished"})


class Stories:
    """Hears the entries of the event log on the leader's thread; read from any."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}

    def hear(self, entry: Mapping[str, Any]) -> None:
        """Take note of an entry if it ends a failover or hand-over."""
        if entry["kind"] not in _TOLD:
            return
        data = entry["data"]
        story = {
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
        self._latest = {**self._latest, (entry["job"], data["processor"]): story}

    def latest(self) -> list[dict[str, Any]]:
        """Return one JSON-ready story a processor, by job and number."""
        return [story for _, story in sorted(self._latest.items())]
