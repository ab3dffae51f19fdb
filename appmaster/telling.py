"""News to the event log, the metrics and the process's own log: one place for all three."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from appmaster.planning.view import ClusterView, News

_log = logging.getLogger("appmaster.events")


def entry(news: News, view: ClusterView) -> dict[str, Any]:
    """Return the event-log entry for ``news``; its schema is in docs/operations.md."""
    return {
        "at_ms": view.wall(news.at_ms if news.at_ms is not None else view.now_ms),
        "epoch": view.epoch,
        "kind": news.kind,
        "job": news.job,
        "task": str(news.task) if news.task is not None else None,
        "copy": news.copy,
        "container": news.container,
        "host": news.host,
        "task_epoch": news.task_epoch,
        "reason": news.reason,
        "decision": news.decision,
        "data": dict(news.data),
    }


def teller(*listeners: Callable[[dict[str, Any]], None]) -> Callable[[News, ClusterView], None]:
    """Return a function that hands each piece of news, as an entry, to every listener and the log."""

    def tell(news: News, view: ClusterView) -> None:
        told = entry(news, view)
        _log.info(
            "%s %s",
            news.kind,
            " ".join(
                f"{key}={value}"
                for key, value in told.items()
                if key not in ("at_ms", "epoch", "kind") and value not in (None, {})
            ),
        )
        for each in listeners:
            each(told)

    return tell
