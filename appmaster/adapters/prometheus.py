"""The leader's metrics (SEP-23's and those it lacks), as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from appmaster.planning.view import ClusterView
from standby.model import ReplicaId, Role

#: What Prometheus expects of `generate_latest`.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


class _FromView(Collector):
    """Gauges read from the view at each scrape, so that nothing has to keep them up to date."""

    def __init__(self, view: Callable[[], ClusterView]) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        view = self._view()
        labels = ["job", "stage", "partition", "copy", "role"]
        records = GaugeMetricFamily(
            "standfast_replica_lag_records", "Changelog offsets not applied yet", labels=labels
        )
        seconds = GaugeMetricFamily(
            "standfast_replica_lag_seconds",
            "For how long a replica has been behind its changelog",
            labels=labels,
        )
        in_sync = GaugeMetricFamily(
            "standfast_in_sync_replicas",
            "Replicas in sync, the active included",
            labels=["job", "stage", "partition"],
        )
        epochs = GaugeMetricFamily(
            "standfast_task_epoch", "Epoch of the task", labels=["job", "stage", "partition"]
        )
        for task, recorded in view.records.items():
            name = [task.job, task.stage, str(task.partition)]
            record = recorded.record
            in_sync.add_metric(
                name, sum(record.placed.get(copy) in view.containers for copy in record.in_sync)
            )
            epochs.add_metric(name, record.epoch)
            for copy, container in record.placed.items():
                known = view.containers.get(container)
                status = known.statuses.get(ReplicaId(task, copy)) if known is not None else None
                if status is None:
                    continue
                role = Role.ACTIVE if record.active == copy else Role.STANDBY
                if status.lag_records is not None:
                    records.add_metric([*name, str(copy), role.value], status.lag_records)
                if status.lag_ms is not None:
                    seconds.add_metric([*name, str(copy), role.value], status.lag_ms / 1000)
        containers = GaugeMetricFamily("standfast_containers", "Containers by state", labels=["state"])
        states: dict[str, int] = {}
        for each in view.containers.values():
            states[each.presence.value] = states.get(each.presence.value, 0) + 1
        for state, count in states.items():
            containers.add_metric([state], count)
        jobs = GaugeMetricFamily(
            "standfast_job_status", "1 for the status that the job has", labels=["job", "status"]
        )
        for job in view.jobs.values():
            jobs.add_metric([job.name, job.state.value], 1)
        yield from (records, seconds, in_sync, epochs, containers, jobs)
        yield GaugeMetricFamily(
            "standfast_is_leader", "1 while this candidate leads", value=int(view.epoch > 0)
        )
        yield GaugeMetricFamily("standfast_controller_epoch", "Epoch of the leader", value=view.epoch)
        yield GaugeMetricFamily(
            "standfast_requests_waiting", "Container requests not granted", value=len(view.requests)
        )


class Metrics:
    """Counts what the news tell; gauges come from the view."""

    def __init__(self, view: Callable[[], ClusterView]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_FromView(view))
        self._failures = Counter(
            "standfast_container_failures_total",
            "Containers lost, by the role they had and how that was noticed",
            ["job", "role", "reason"],
            registry=self._registry,
        )
        self._failovers = Counter(
            "standfast_failovers_total", "Actives replaced", ["job", "policy"], registry=self._registry
        )
        self._without = Counter(
            "standfast_failovers_without_standby_total",
            "Actives that could not be failed over to an in-sync standby",
            ["job"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "standfast_failover_seconds",
            "Time from the detection of a loss to the end of each phase",
            ["phase"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._requests = Counter(
            "standfast_container_requests_total",
            "Requests to YARN, by kind and outcome",
            ["kind", "outcome"],
            registry=self._registry,
        )
        self._same_host = Counter(
            "standfast_same_host_refused_total",
            "Granted containers given back by the same-host check",
            registry=self._registry,
        )
        self._decisions = Counter(
            "standfast_decisions_total", "Decisions recorded, by kind", ["kind"], registry=self._registry
        )

    def count(self, entry: dict[str, Any]) -> None:
        """Count one entry of the event log."""
        kind, job, data = entry["kind"], entry["job"] or "", entry["data"]
        if kind == "container_lost":
            reason = str(entry["reason"] or "").split(":", 1)[0]
            self._failures.labels(job, data.get("role") or "none", reason).inc()
        elif kind == "failover_started":
            self._failovers.labels(job, "promote").inc()
        elif kind == "failover_without_standby":
            self._without.labels(job).inc()
        elif kind == "failover_finished":
            self._time(data["tasks"])
        elif kind == "container_requested":
            self._requests.labels("host" if entry["host"] else "any", "asked").inc()
        elif kind in ("request_refused", "request_cancelled", "launch_failed"):
            self._requests.labels("host" if entry["host"] else "any", kind.split("_")[1]).inc()
        elif kind == "same_host_refused":
            self._same_host.inc()
        elif kind.startswith("decided_"):
            self._decisions.labels(kind[len("decided_") :]).inc()

    def _time(self, tasks: dict[str, dict[str, int | None]]) -> None:
        for times in tasks.values():
            detected = times["detected_ms"]
            for phase in ("recorded", "ordered", "fenced", "drained", "active", "first_commit"):
                at = times[f"{phase}_ms"]
                if at and detected:
                    self._seconds.labels(phase).observe(max(0, at - detected) / 1000)

    def render(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self._registry)
