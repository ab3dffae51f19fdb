"""Counts where states came from and what was given to others; any thread counts, the scrape reads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator

from standby.replica.store.sources import Source
from standby.shared.metric import Kind, Metric


class RestoreCounters:
    """What was restored, from where, and what was lent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # (job, source) → times, bytes, seconds
        self._opened: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0.0])
        self._failed: dict[tuple[str, str], int] = defaultdict(int)
        self._lent: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        self._given_bytes = 0

    def opened(self, job: str, source: Source, read_bytes: int, seconds: float) -> None:
        """Count a state that is open: where it came from, and what fetching it took."""
        with self._lock:
            entry = self._opened[job, source.value]
            entry[0] += 1
            entry[1] += read_bytes
            entry[2] += seconds

    def failed(self, job: str, source: Source) -> None:
        """Count a source that was tried and did not do."""
        with self._lock:
            self._failed[job, source.value] += 1

    def lent(self, job: str, seconds: float) -> None:
        """Count a copy that was made for a peer."""
        with self._lock:
            self._lent[job][0] += 1
            self._lent[job][1] += seconds

    def gave(self, sent_bytes: int) -> None:
        """Count bytes of state sent to peers."""
        with self._lock:
            self._given_bytes += sent_bytes

    def metrics(self) -> Iterator[Metric]:
        """Yield it all for Prometheus."""
        with self._lock:
            opened = {key: tuple(each) for key, each in self._opened.items()}
            failed, lent = dict(self._failed), {key: tuple(each) for key, each in self._lent.items()}
            given = self._given_bytes
        of_source = ("job", "source")
        for number, name, text in (
            (0, "restores_total", "Replicas whose state was opened, by where it came from."),
            (1, "restore_bytes_total", "Bytes of state fetched from other replicas."),
            (2, "restore_seconds_total", "Seconds spent on getting state before it was open."),
        ):
            values = tuple((key, float(each[number])) for key, each in sorted(opened.items()))
            yield Metric(f"standfast_{name}", text, Kind.COUNTER, of_source, values)
        yield Metric(
            "standfast_restore_failures_total",
            "Sources of state that were tried and did not do; the next one was taken.",
            Kind.COUNTER,
            of_source,
            tuple((key, float(each)) for key, each in sorted(failed.items())),
        )
        for number, name, text in (
            (0, "snapshots_total", "Copies of state that were made for other replicas."),
            (1, "snapshot_seconds_total", "Seconds that making them took."),
        ):
            of_job = tuple(((job,), float(each[number])) for job, each in sorted(lent.items()))
            yield Metric(f"standfast_{name}", text, Kind.COUNTER, ("job",), of_job)
        yield Metric(
            "standfast_snapshot_sent_bytes_total",
            "Bytes of state sent to other replicas.",
            Kind.COUNTER,
            (),
            (((), float(given)),),
        )
