"""The leader's metrics for Prometheus: counters of the event log, gauges of the view."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

import prometheus_client as client
from prometheus_client.exposition import choose_encoder

from appmaster import gauges
from appmaster.eventlog.counting import counts
from appmaster.eventlog.entries import LogEntry
from appmaster.planning.state import counters
from appmaster.planning.state.view import ClusterView
from standby.adapters.prometheus import MetricsCollector
from standby.shared.metric import Samples

#: By the library's default, the start time of each series is an additional series, which is of no use here.
client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counts entries of the event log on the leader's thread, and renders on the threads of the HTTP port."""

    def __init__(
        self,
        view: Callable[[], ClusterView],
        further: Callable[[], Iterable[Samples]] = tuple,
        has_lease: Callable[[], bool] = lambda: True,
    ) -> None:
        """``further`` returns the metrics that do not come from the view, ``has_lease`` whether a leader may decide.

        Both are called on threads of the HTTP port.
        """
        self._view = view
        self._registry = client.CollectorRegistry()
        client.ProcessCollector(registry=self._registry)
        self._registry.register(
            MetricsCollector(lambda: (*gauges.view_gauges(view(), has_lease=has_lease()), *further()))
        )
        self._counters: Final = {
            each.name: client.Counter(each.name, each.help, tuple(each.labels), registry=self._registry)
            for each in counters.COUNTERS
        }
        self._histograms: Final = {
            each.name: client.Histogram(
                each.name, each.help, tuple(each.labels), registry=self._registry, buckets=each.buckets
            )
            for each in counters.HISTOGRAMS
        }
        self._lock = threading.Lock()
        #: Jobs of which every counter is present, and others of which some may be; guarded by the lock.
        self._shown: set[str] = set()
        self._counted: set[str] = set()
        for each in counters.HISTOGRAMS:
            for labels in each.values():
                if labels:
                    self._histograms[each.name].labels(*labels)

    def count(self, entry: LogEntry) -> None:
        """Count one entry of the event log."""
        with self._lock:
            if entry.job is not None:
                self._counted.add(entry.job)
            for each in counts(entry):
                if isinstance(each.metric, counters.Counter):
                    counter = self._counters[each.metric.name]
                    (counter.labels(*each.labels) if each.labels else counter).inc(each.amount)
                else:
                    histogram = self._histograms[each.metric.name]
                    (histogram.labels(*each.labels) if each.labels else histogram).observe(each.amount)

    def turned(self, seconds: float) -> None:
        """Record the duration of one turn of the leader."""
        self._histograms[counters.TURN_SECONDS.name].observe(seconds)

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return the content type that fits the request's ``Accept`` best, and the metrics in it.

        Counters of every known job are present, with 0 before they count anything; those of a deleted one are not.
        """
        with self._lock:
            jobs = set(self._view().jobs)
            new, gone = jobs - self._shown, (self._shown | self._counted) - jobs
            self._shown, self._counted = jobs, set()
            for each in counters.COUNTERS:
                for job in gone if "job" in each.labels else ():
                    self._counters[each.name].remove_by_labels({"job": job})
                for labels in each.values(new):
                    if labels:
                        self._counters[each.name].labels(*labels)
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)
