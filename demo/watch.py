"""Watches a running cluster: queries its leader for the status and Kafka for the topics' ends, twice a second."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka.admin import AdminClient

from demo.standing import Status, parse, shared_hosts
from demo.topics import QUIET, end_offsets
from examples.flights.replay import INPUT_TOPIC, OUTPUT_TOPICS
from standby.errors import StandfastError, Unavailable

#: The interval between two samples.
INTERVAL_SECONDS: Final = 0.5


class StatusSource(Protocol):
    """The source of a status: `appmaster.api.client.ClusterClient`."""

    def status(self) -> Mapping[str, Any]:
        """Return the cluster's status as the candidates' API returns it."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of the cluster."""

    at_ms: int
    """Unix milliseconds."""
    status: Status
    """The last answer of the leader."""
    is_fresh: bool
    """Whether it answered this time."""
    input_end: int
    """Records in the input topic."""
    output_end: int
    """Offsets used in the output topics: records, transaction markers, and records of aborted transactions."""


class Watch:
    """Samples the cluster on a separate thread, from `start` until `stop`, and keeps every sample.

    ``on_look`` is called on that thread after each sample.
    """

    def __init__(
        self, source: StatusSource, bootstrap: str, on_look: Callable[[], None] = lambda: None
    ) -> None:
        self._source = source
        self._admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
        self._bootstrap = bootstrap
        self._on_look = on_look
        self._samples: list[Sample] = []
        self._violations: set[str] = set()
        self._came = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling; waits for a sample in progress."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Return all samples so far."""
        with self._came:
            return tuple(self._samples)

    @property
    def latest(self) -> Sample | None:
        """Return the last sample; None before the first."""
        with self._came:
            return self._samples[-1] if self._samples else None

    @property
    def same_host_violations(self) -> frozenset[str]:
        """Return every violation of the same-host rule that any sample showed."""
        with self._came:
            return frozenset(self._violations)

    def wait_for(
        self, holds: Callable[[Status], bool], timeout_seconds: float, since_ms: int | None = None
    ) -> Sample | None:
        """Return the first *fresh* sample whose status ``holds``; None if there is none in time.

        Only samples taken after ``since_ms`` (Unix milliseconds; by default: from now on) are looked at.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._came:
            known = len(self._samples)
            if since_ms is not None:
                known = bisect_right(self._samples, since_ms, key=lambda sample: sample.at_ms)
            while True:
                for sample in self._samples[known:]:
                    if sample.is_fresh and holds(sample.status):
                        return sample
                known = len(self._samples)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._came.wait(left)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._look()
            self._on_look()
            self._stop.wait(INTERVAL_SECONDS)

    def _look(self) -> None:
        before = self.latest
        try:
            status, is_fresh = parse(self._source.status()), True
        except StandfastError:
            # The leader is busy or moving: its last answer is kept, marked as old.
            status, is_fresh = (before.status if before is not None else Status()), False
        try:
            input_end = self._end(INPUT_TOPIC)
            output_end = sum(map(self._end, OUTPUT_TOPICS))
        except Unavailable:
            input_end = before.input_end if before is not None else 0
            output_end = before.output_end if before is not None else 0
        sample = Sample(time.time_ns() // 1_000_000, status, is_fresh, input_end, output_end)
        with self._came:
            self._samples.append(sample)
            self._violations.update(shared_hosts(status))
            self._came.notify_all()

    def _end(self, topic: str) -> int:
        return sum(end_offsets(self._bootstrap, topic, self._admin).values())
