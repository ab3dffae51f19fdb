"""The cluster's info: its leader, candidates, cells, jobs and containers, as any candidate reports them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from appmaster import records as bodies
from appmaster.records import CandidateRecord, CellRecord, DrainedRecord, JobRecord, StatusRecord
from standby.errors import BadConfiguration
from standby.shared import records as shared
from standby.shared.records import ContainerRecord

_Body = TypeVar("_Body")


def info(cluster: str, nodes: Mapping[str, bytes], now_ms: int) -> dict[str, Any]:
    """Return the cluster's info as JSON-ready data; the schema is in docs/code.md.

    ``nodes`` are paths below the cluster's root with their data, ``now_ms`` Unix milliseconds. Follows Storm's
    ``ClusterSummary``: any candidate can report it, so that clients do not need ZooKeeper.
    """
    led_by = _controller(nodes)
    candidates = [
        {
            "candidate": each.candidate,
            "host": each.host,
            "port": each.port,
            "http_port": each.http_port,
            "peer_port": each.peer_port,
            "cell": each.cell,
            "pid": each.pid,
            "container": each.container,
            "uptime_seconds": max(0, now_ms - each.started_ms) // 1000,
            "version": each.standfast,
            "is_leader": led_by is not None and each.candidate == led_by.candidate,
        }
        for _, each in _decoded(nodes, "candidates", CandidateRecord)
    ]
    containers = [
        {
            "container": each.container,
            "host": each.host,
            "port": each.port,
            "http_port": each.http_port,
            "peer_port": each.peer_port,
            "cell": each.cell,
            "pid": each.pid,
            "version": each.standfast,
        }
        for _, each in _decoded(nodes, "containers", ContainerRecord)
    ]
    jobs = []
    for name, job in _decoded(nodes, "jobs", JobRecord):
        status = _status(nodes, name)
        jobs.append(
            {
                "job": name,
                "run": job.definition.run,
                "revision": job.definition.revision,
                "active_revision": job.activated if job.definition.code else job.definition.revision,
                "code": job.definition.code,
                "is_wanted": job.is_wanted,
                "status": status.state if status is not None else "",
                "reasons": list(status.reasons) if status is not None else [],
                "traceback": status.traceback if status is not None else "",
                "is_unfenceable": status is not None and status.is_unfenceable,
            }
        )
    cells = [
        {"cell": int(name), "application": each.application, "is_pool": each.is_pool}
        for name, each in _decoded(nodes, "cells", CellRecord)
        if name.isdecimal()
    ]
    return {
        "cluster": cluster,
        "epoch": led_by.epoch if led_by is not None else 0,
        "leader": leader(nodes),
        "candidates": candidates,
        "cells": cells,
        "jobs": jobs,
        "containers": containers,
        "drained": dict(_drained(nodes)),
    }


def leader(nodes: Mapping[str, bytes]) -> dict[str, Any] | None:
    """Return id, host and port of the candidate that leads, with its epoch; None if none does."""
    found = _controller(nodes)
    if found is None:
        return None
    return {"candidate": found.candidate, "host": found.host, "port": found.port, "epoch": found.epoch}


def _controller(nodes: Mapping[str, bytes]) -> shared.ControllerRecord | None:
    data = nodes.get("controller")
    return shared.decode_controller(data, "controller") if data is not None else None


def _drained(nodes: Mapping[str, bytes]) -> Mapping[str, str]:
    data = nodes.get("drained")
    return bodies.decode(data, "drained", DrainedRecord).hosts if data is not None else {}


def _status(nodes: Mapping[str, bytes], job: str) -> StatusRecord | None:
    path = f"jobs/{job}/status"
    return bodies.decode(nodes[path], path, StatusRecord) if path in nodes else None


def _decoded(nodes: Mapping[str, bytes], parent: str, kind: type[_Body]) -> Iterator[tuple[str, _Body]]:
    """Yield name and record of each child of a node; records that another version wrote are left out."""
    for path, data in sorted(nodes.items()):
        above, _, name = path.partition("/")
        if above == parent and "/" not in name:
            with suppress(BadConfiguration):
                yield name, bodies.decode(data, path, kind)
