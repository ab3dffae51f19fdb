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
            **_process(each),
            "uptime_seconds": max(0, now_ms - each.started_ms) // 1000,
            "is_leader": led_by is not None and each.candidate == led_by.candidate,
        }
        for _, each in _decoded(nodes, "candidates", CandidateRecord)
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
                "status": status.state,
                "reasons": list(status.reasons),
                "traceback": status.traceback,
                "is_unfenceable": status.is_unfenceable,
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
        "containers": [_process(each) for _, each in _decoded(nodes, "containers", ContainerRecord)],
        "drained": dict(_drained(nodes)),
    }


def _process(record: CandidateRecord | ContainerRecord) -> dict[str, Any]:
    return {
        "container": record.container,
        "host": record.host,
        "port": record.port,
        "http_port": record.http_port,
        "peer_port": record.peer_port,
        "cell": record.cell,
        "pid": record.pid,
        "version": record.standfast,
    }


def leader(nodes: Mapping[str, bytes]) -> dict[str, Any] | None:
    """Return id, host and port of the candidate that leads, with its epoch; None if none does."""
    found = _controller(nodes)
    if found is None:
        return None
    return {"candidate": found.candidate, "host": found.host, "port": found.port, "epoch": found.epoch}


def _controller(nodes: Mapping[str, bytes]) -> shared.ControllerRecord | None:
    data = nodes.get("controller")
    return shared.decoded(data, "controller", shared.ControllerRecord) if data is not None else None


def _drained(nodes: Mapping[str, bytes]) -> Mapping[str, str]:
    data = nodes.get("drained")
    return bodies.decode(data, "drained", DrainedRecord).hosts if data is not None else {}


def _status(nodes: Mapping[str, bytes], job: str) -> StatusRecord:
    """Return a job's status; an empty one before a leader has written any."""
    path = f"jobs/{job}/status"
    return bodies.decode(nodes[path], path, StatusRecord) if path in nodes else StatusRecord("")


def _decoded(nodes: Mapping[str, bytes], parent: str, kind: type[_Body]) -> Iterator[tuple[str, _Body]]:
    """Yield name and record of each child of a node; records that another version wrote are left out."""
    for path, data in sorted(nodes.items()):
        above, _, name = path.partition("/")
        if above == parent and "/" not in name:
            with suppress(BadConfiguration):
                yield name, bodies.decode(data, path, kind)
