"""Passes each entry on to the event log, the metrics and the process's own log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from appmaster.eventlog.entries import LogEntry, entry_document
from appmaster.planning.state.view import ClusterView

_log = logging.getLogger("appmaster.events")


def published_document(entry: LogEntry, view: ClusterView) -> dict[str, Any]:
    """Return an entry of the leader in its written form; docs/events.md describes it."""
    return entry_document(
        entry, view.wall(entry.at_ms if entry.at_ms is not None else view.now_ms), view.epoch
    )


def publisher(
    count: Callable[[LogEntry], None], *listeners: Callable[[dict[str, Any]], None]
) -> Callable[[LogEntry, ClusterView], None]:
    """Return a function that counts and logs each entry, and passes its written form to every listener."""

    def publish(entry: LogEntry, view: ClusterView) -> None:
        record = published_document(entry, view)
        _log.info(
            "%s %s",
            entry.kind.value,
            " ".join(
                f"{key}={value}"
                for key, value in record.items()
                if key not in ("at_ms", "epoch", "kind") and value not in (None, {})
            ),
        )
        count(entry)
        for each in listeners:
            each(record)

    return publish
