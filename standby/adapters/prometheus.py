"""The container's HTTP port: ``/metrics`` for Prometheus, ``/healthz`` for people and probes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from standby.adapters.http_port import HttpRequest, HttpResponse, Respond
from standby.adapters.processes import ProcessFigures
from standby.shared.metric import Metric, MetricKind, Samples, single

#: Returns whether the process is healthy, and further facts.
HealthCheck = Callable[[], tuple[bool, Mapping[str, object]]]


#: Metrics of the process and its children; Prometheus' own collector does not cover children.
OF_PROCESS: Final[tuple[Metric[ProcessFigures], ...]] = (
    Metric(
        "standfast_process_rss_bytes",
        "Resident memory: of the process itself, and of its children (the JVM, Spark's Python workers).",
        ("of",),
        lambda figures: ((("self",), figures.rss_bytes), (("children",), figures.children_rss_bytes)),
    ),
    Metric(
        "standfast_process_cpu_seconds_total",
        "CPU time used by the process itself, and by its children, those included that have ended.",
        ("of",),
        lambda figures: ((("self",), figures.cpu_seconds), (("children",), figures.children_cpu_seconds)),
        MetricKind.COUNTER,
    ),
    single("standfast_process_children", "Its children.", lambda figures: figures.children),
    single("standfast_process_threads", "Its threads.", lambda figures: figures.threads),
    single("standfast_process_open_files", "Its open files.", lambda figures: figures.open_files),
)


class MetricsCollector(Collector):
    """Returns the values at the time of the scrape: a replica that left is no longer included."""

    def __init__(self, metrics: Callable[[], Iterable[Samples]]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Family]:
        """Return nothing: the metrics are only known at a scrape."""
        return ()

    def collect(self) -> Iterable[Family]:
        """Yield every metric with its current values."""
        for samples in self._metrics():
            metric = samples.metric
            make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=metric.labels)
            for labels, value in samples.values:
                family.add_metric(labels, value)
            yield family


def metrics_and_health(metrics: Callable[[], Iterable[Samples]], health: HealthCheck) -> Respond:
    """Return the function that answers with these; it calls both on the port's threads."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(MetricsCollector(metrics))

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path == "/metrics":
            encode, content_type = choose_encoder(request.accept)
            return HttpResponse(HTTPStatus.OK, content_type, encode(registry))
        if request.path == "/healthz":
            is_well, facts = health()
            status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
            return HttpResponse(status, "application/json", json.dumps(facts).encode() + b"\n")
        return HttpResponse(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics or /healthz\n")

    return answer
