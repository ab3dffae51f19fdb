"""Counts restores by source, and copies given to peers. Any thread may count; the metrics scrape reads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from standby.replica.store.sources import StateSource
from standby.shared.metric import Metric, MetricKind, Samples

#: Metric name → label values → count.
Counted = Mapping[str, Mapping[tuple[str, ...], float]]


def _counted(name: str, text: str, *labels: str) -> Metric[Counted]:
    return Metric(name, text, labels, lambda counted: sorted(counted[name].items()), MetricKind.COUNTER)


_OPENED: Final = _counted(
    "standfast_restores_total", "Replicas whose state was opened, by where it came from.", "job", "source"
)
_READ_BYTES: Final = _counted(
    "standfast_restore_bytes_total", "Bytes of state fetched from other replicas.", "job", "source"
)
_SECONDS: Final = _counted(
    "standfast_restore_seconds_total",
    "Seconds spent on getting state before it was open.",
    *("job", "source"),
)
_FAILED: Final = _counted(
    "standfast_restore_failures_total",
    "Sources of state that were tried and failed; the next one was taken.",
    *("job", "source"),
)
_LENT: Final = _counted(
    "standfast_snapshots_total", "Copies of state that were made for other replicas.", "job"
)
_LENT_SECONDS: Final = _counted("standfast_snapshot_seconds_total", "Seconds that making them took.", "job")
_SENT_BYTES: Final = _counted("standfast_snapshot_sent_bytes_total", "Bytes of state sent to other replicas.")

OF_RESTORES: Final = (_OPENED, _READ_BYTES, _SECONDS, _FAILED, _LENT, _LENT_SECONDS, _SENT_BYTES)


class RestoreCounters:
    """Counters of restores by source, and of lent copies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, dict[tuple[str, ...], float]] = {
            each.name: defaultdict(float) for each in OF_RESTORES
        }
        self.gave(0)

    def opened(self, job: str, source: StateSource, read_bytes: int, seconds: float) -> None:
        """Count an opened state: its source, and the bytes and time that it took to fetch."""
        self._add({_OPENED: 1, _READ_BYTES: read_bytes, _SECONDS: seconds}, job, source.value)

    def failed(self, job: str, source: StateSource) -> None:
        """Count a source that was tried and failed."""
        self._add({_FAILED: 1}, job, source.value)

    def lent(self, job: str, seconds: float) -> None:
        """Count a copy that was made for a peer."""
        self._add({_LENT: 1, _LENT_SECONDS: seconds}, job)

    def gave(self, sent_bytes: int) -> None:
        """Count bytes of state sent to peers."""
        self._add({_SENT_BYTES: sent_bytes})

    def metrics(self) -> Iterator[Samples]:
        """Yield all counters for Prometheus."""
        with self._lock:
            counted = {name: dict(each) for name, each in self._counted.items()}
        return (each.of(counted) for each in OF_RESTORES)

    def _add(self, amounts: Mapping[Metric[Counted], float], *labels: str) -> None:
        with self._lock:
            for metric, amount in amounts.items():
                self._counted[metric.name][labels] += amount
