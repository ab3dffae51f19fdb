"""The view as plain data, for `standfast status` and related commands, the HTTP port, and the demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from appmaster.planning.jobs.spreading import spread_of
from appmaster.planning.state.job import Job, PlannerPolicy
from appmaster.planning.state.model import JobSpec, Slot, job_of
from appmaster.planning.state.view import ClusterView, Container
from standby.shared.model import Phase, ReplicaId, ReplicaStatus, Role, TaskRecord


def snapshot(view: ClusterView, cluster: str, leader: dict[str, Any]) -> dict[str, Any]:
    """Return everything the leader knows, as JSON-ready data."""
    unsettled = {each.job for each in view.unsettled}
    return {
        "cluster": cluster,
        "leader": {**leader, "epoch": view.epoch},
        "jobs": [
            {
                "name": job.name,
                "run": job.run,
                "status": job.state.value,
                "reasons": list(job.reasons),
                "traceback": job.traceback,
                "processors": len(job.model.processors),
                "copies": job.model.copies,
                "containers": job.model.containers or len(job.model.slots),
                "model_version": job.model.version,
                "spares": _spares(view, job),
                "revision": job.revision,
                "policy": "restart" if job.policy.restarts else "promote",
                "mixed": job.model.is_mixed,
                "asked": requested_document(job.spec, job.policy),
                "is_modelling": job.is_modelling,
                "settled": job.name not in unsettled,
                "notes": list(job.notes),
                "spread": asdict(spread_of(view, job)),
                "parked": {str(processor): str(why) for processor, why in job.model.parked.items()},
            }
            for job in view.jobs.values()
        ],
        "tasks": [_task(view, each.record) for _, each in sorted(view.records.items())],
        "containers": [
            {
                "container": each.id,
                "skein_id": each.skein_id,
                "host": each.host,
                "cell": each.cell,
                "pid": each.pid,
                "http_port": each.http_port,
                "state": each.presence.value,
                "slot": str(slot) if (slot := _slot(view, each)) is not None else None,
                "job": job_of(slot) if slot is not None else None,
                "spare": each.is_spare,
                "replicas": len(view.assigned.get(each.id, ())),
                "revisions": dict(each.revisions),
                "warm": each.is_warm,
                "leaving": each.is_leaving,
                "rss_bytes": each.rss_bytes,
                "heard_ms_ago": max(0, view.now_ms - each.heard_ms),
                "reason": each.reason,
                "group": each.offer.group or None if each.offer is not None else None,
                "attributes": dict(each.offer.attributes) if each.offer is not None else {},
            }
            for _, each in sorted(view.containers.items())
        ],
        "requests": [
            {
                "skein_id": each.skein_id,
                "slot": str(each.slot),
                "kind": each.kind.value,
                "host": each.host,
                "state": each.state.value,
                "waited_ms": max(0, view.now_ms - each.since_ms),
            }
            for _, each in sorted(view.requests.items())
        ],
        "handovers": [
            {
                "processor": str(processor),
                "job": processor.job,
                "to_copy": each.to_copy,
                "to": each.to,
                "reason": str(each.reason),
                "waited_ms": max(0, view.now_ms - each.since_ms),
            }
            for processor, each in sorted(view.handovers.items())
        ],
        "failovers": [
            {
                "processor": str(processor),
                "job": processor.job,
                "from": each.lost,
                "to": each.to,
                "to_copy": each.to_copy,
                "is_planned": each.is_planned,
                "reason": each.reason.value,
            }
            for processor, each in sorted(view.failovers.items())
        ],
        "cells": [
            {
                "cell": each.number,
                "attempt": each.attempt,
                "is_up": each.is_up,
                "state": each.state.value,
                "since_ms_ago": max(0, view.now_ms - each.since_ms),
                "containers": sum(held.cell == each.number for held in view.containers.values()),
                "reason": each.reason,
            }
            for _, each in sorted(view.cells.items())
        ],
        "hosts": {
            name: {"cell": each.cell, "rack": each.rack, "attributes": dict(each.attributes)}
            for name, each in sorted(view.hosts.items())
        },
        "drained": dict(view.drained),
        "settled": not view.unsettled,
    }


def _spares(view: ClusterView, job: Job) -> dict[str, int]:
    held = view.spares_of(job.name)
    ready = sum(each.is_warm for each in held)
    return {"wanted": job.policy.spare_count, "ready": ready, "held": len(held)}


def _slot(view: ClusterView, container: Container) -> Slot | None:
    """Return the slot that a container serves, or its slot as a spare one; None if it is neither."""
    return view.home(container.id) or (container.slot if container.is_spare else None)


def job_in(status: Mapping[str, Any], job: str) -> dict[str, Any] | None:
    """Return a job in a snapshot; None if the leader does not know it."""
    return next((each for each in status["jobs"] if each["name"] == job), None)


def tasks_in(status: Mapping[str, Any], job: str) -> list[dict[str, Any]]:
    """Return the tasks of a job in a snapshot."""
    return [each for each in status["tasks"] if each["task"]["job"] == job]


def requested_document(spec: JobSpec, policy: PlannerPolicy) -> dict[str, Any]:
    """Return a job's requested settings, JSON-ready: a command compares them to see that the leader knows a change."""
    named = {name: value for name, value in asdict(spec).items() if name != "grouper"}
    settings = {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(policy).items()
    }
    return {**named, "grouper": spec.grouper.__qualname__, "policy": settings}


def _task(view: ClusterView, record: TaskRecord) -> dict[str, Any]:
    job = view.jobs.get(record.task.job)
    processor = view.processor_of(record.task)
    model = job.model.processors.get(processor) if job is not None and processor is not None else None
    copies = sorted({*(model.copies if model is not None else ()), *record.placed})
    return {
        "task": {"job": record.task.job, "stage": record.task.stage, "partition": record.task.partition},
        "epoch": record.epoch,
        "active": record.active,
        "in_sync": list(record.in_sync),
        "claimed": record.claimed,
        "is_chosen": record.is_chosen,
        "processor": processor.number if processor is not None else None,
        "displaced": record.displaced,
        "moving": {str(copy): container for copy, container in record.moving.items()},
        "failures": (
            {
                "offset": record.failures.offset,
                "count": record.failures.count,
                "reason": record.failures.reason,
            }
            if record.failures is not None
            else None
        ),
        "replicas": [_replica(view, record, copy) for copy in copies],
    }


def _replica(view: ClusterView, record: TaskRecord, copy: int) -> dict[str, Any]:
    container = view.containers.get(record.placed.get(copy, ""))
    role = Role.ACTIVE if record.active == copy else Role.STANDBY
    replica = ReplicaId(record.task, copy)
    known = container.statuses.get(replica) if container is not None else None
    # A copy that was not reported yet has nothing to show.
    status = known or ReplicaStatus(replica, role, Phase.CLOSED, record.epoch)
    return {
        "copy": copy,
        "role": role.value,
        "phase": known.phase.value if known is not None else None,
        "container": container.id if container is not None else None,
        "host": container.host if container is not None else record.hosts.get(copy),
        "pid": container.pid if container is not None else None,
        "in_sync": copy in record.in_sync and container is not None,
        "applied": status.applied,
        "end": status.end,
        "changelog_lag_records": status.lag_records,
        "changelog_lag_ms": status.lag_ms,
        "input_committed": status.input_committed,
        "input_end": status.input_end,
        "input_lag_records": status.input_lag,
        "input_lag_ms": status.input_lag_ms,
        "input_rate": round(status.input_rate, 1) if status.input_rate is not None else None,
        "failures": status.failures.count if status.failures is not None else 0,
        "skipped": status.skipped - status.dead_lettered,
        "dead_lettered": status.dead_lettered,
        # With several inputs the two above are sums.
        "input_offsets": dict(status.input_offsets),
        "warm": container.is_warm if container is not None else False,
        "start_ms": status.start_ms,
        "detail": status.detail,
        "traceback": status.traceback,
    }
