"""Statuses in the leader's own form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: copy, host, container
Place = tuple[int, "str | None", "str | None"]


def task(
    partition: int, places: Sequence[Place], *, active: int | None = 0, in_sync: Sequence[int] = (0, 1)
) -> dict[str, Any]:
    return {
        "task": {"job": "flights", "stage": "main", "partition": partition},
        "epoch": 1,
        "active": active,
        "in_sync": list(in_sync),
        "replicas": [
            {
                "copy": copy,
                "role": "active" if copy == active else "standby",
                "phase": "active" if copy == active else "tailing",
                "container": container,
                "host": host,
                "pid": 100 + copy if container else None,
                "in_sync": copy in in_sync,
                "applied": 10,
                "end": 12,
                "changelog_lag_records": 2,
                "changelog_lag_ms": 0,
                "input_committed": 5 if copy == active else None,
                "input_end": 9 if copy == active else None,
                "warm": copy != active,
            }
            for copy, host, container in places
        ],
    }


def status(*tasks: dict[str, Any], master: str = "h1") -> dict[str, Any]:
    return {
        "cluster": "flights",
        "leader": {"candidate": "c", "host": master, "epoch": 3, "container": "m"},
        "jobs": [{"name": "flights", "run": "r", "status": "deployed", "reasons": []}],
        "tasks": list(tasks),
        "containers": [
            {"container": "c1", "skein_id": "a_1", "host": "h1", "pid": 100, "http_port": 1, "state": "live"}
        ],
    }
