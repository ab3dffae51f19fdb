"""The container's HTTP port: ``/metrics`` for Prometheus, ``/healthz`` for people and probes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from standby.adapters.processes import ProcessFigures
from standby.errors import Unavailable
from standby.metrics import Kind, Metric

#: Whether all is well, and what else is worth knowing.
Health = Callable[[], tuple[bool, Mapping[str, object]]]


def of_process(figures: ProcessFigures) -> Iterator[Metric]:
    """Yield the metrics of the process and its children, which Prometheus' own collector does not see."""
    yield Metric(
        "standfast_process_rss_bytes",
        "Resident memory: of the process itself, and of its children (the JVM, Spark's Python workers).",
        Kind.GAUGE,
        ("of",),
        ((("self",), figures.rss_bytes), (("children",), figures.children_rss_bytes)),
    )
    yield Metric(
        "standfast_process_cpu_seconds",
        "CPU time used by the process itself, and by those of its children that live now.",
        Kind.GAUGE,
        ("of",),
        ((("self",), figures.cpu_seconds), (("children",), figures.children_cpu_seconds)),
    )
    yield Metric("standfast_process_children", "Its children.", Kind.GAUGE, (), (((), figures.children),))
    yield Metric("standfast_process_threads", "Its threads.", Kind.GAUGE, (), (((), figures.threads),))
    yield Metric(
        "standfast_process_open_files", "Its open files.", Kind.GAUGE, (), (((), figures.open_files),)
    )


class Present(Collector):
    """Gives what is true at the moment of the scrape: a replica that left is not there any more."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Family]:
        """Return nothing: what there is to show is only known at a scrape."""
        return ()

    def collect(self) -> Iterable[Family]:
        """Yield every metric with its present values."""
        for metric in self._metrics():
            family: CounterMetricFamily | GaugeMetricFamily
            if metric.kind is Kind.COUNTER:
                family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            else:
                family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.values:
                family.add_metric(labels, value)
            yield family


class MetricsServer:
    """Serves on a free port of the host."""

    def __init__(self, host: str) -> None:
        try:
            self._server = _Server((host, 0), _Requests)
        except OSError as error:
            raise Unavailable(f"NM_HOST: cannot listen on {host}: {error.strerror or error}") from error
        self._thread: threading.Thread | None = None
        self.port: int = self._server.server_address[1]

    def start(self, metrics: Callable[[], Iterable[Metric]], health: Health) -> None:
        """Begin to answer; both functions are called on threads of the server."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(Present(metrics))
        self._server.registry = registry
        self._server.health = health
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: CollectorRegistry
    health: Health


class _Requests(BaseHTTPRequestHandler):
    server: _Server
    #: A client that connects and says nothing does not keep its thread.
    timeout = 10.0

    def do_GET(self) -> None:
        """Answer the two paths; anything else is not there."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept") or "")
            self._answer(HTTPStatus.OK, content_type, encode(self.server.registry))
        elif path == "/healthz":
            is_well, facts = self.server.health()
            status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, "application/json", json.dumps(facts).encode() + b"\n")
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics or /healthz\n")

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent class has it so
        """Scrapes are no event of interest."""
