"""Runs a job's transform for containers whose own Spark is not warm yet, on the port with mutual TLS.

``GET /transforms/<job>?run=<run>&revision=<n>`` says whether the transform is lent now, ``POST`` runs it over the rows
in the body (an Arrow IPC stream, as is the answer). Decision 48 in docs/decisions has the reasons.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

from standby.adapters.peers.lenders import IDLE
from standby.kernel.restore.snapshots import NotNow
from standby.ports import LentTransform, NotLent
from standby.shared.errortext import summary_of
from standby.shared.metric import Metric, MetricKind, Samples
from standby.shared.peers import PeerAnswer, PeerRequest, refusal

_log: Final = logging.getLogger(__name__)

#: Batches that are run or wait at once; more would delay the container's own ones.
_AT_ONCE: Final = 2

#: How long another one waits for a place.
_PLACE_SECONDS: Final = 0.5

LENT: Final[Metric[Counter[str]]] = Metric(
    "standfast_lent_batches_total",
    "Batches, or pieces of large ones, that the job's transform was run over for containers whose Spark was not warm.",
    ("job",),
    lambda counted: sorted(((job,), float(count)) for job, count in counted.items()),
    MetricKind.COUNTER,
)

#: Job, run and revision → its transform here; raises `NotNow`.
FindTransform = Callable[[str, str, int], LentTransform]


class Lending:
    """Lends transforms. `answer` is its route on the peers' port; thread-safe."""

    def __init__(self, find: FindTransform) -> None:
        self._find = find
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        self._lock = threading.Lock()
        self._lent: Counter[str] = Counter()

    def answer(self, request: PeerRequest) -> PeerAnswer:
        """Return what the job's transform makes of the rows; on the connection's thread."""
        try:
            (job,) = request.path[1:]
            run, revision = request.query["run"], int(request.query["revision"])
        except (KeyError, ValueError) as error:
            return refusal(HTTPStatus.BAD_REQUEST, f"/transforms/<job>?run=<run>&revision=<n>: {error!r}")
        if request.method not in ("GET", "POST"):
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "GET or POST")
        try:
            lent = self._find(job, run, revision)
        except NotNow as error:
            # Rows that have come have nothing to do with it.
            is_soon = error.is_soon or request.method == "POST"
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE if is_soon else HTTPStatus.CONFLICT, str(error))
        if request.method == "GET":
            return PeerAnswer(HTTPStatus.OK, json.dumps({IDLE: lent.is_idle}).encode())
        if not self._places.acquire(timeout=_PLACE_SECONDS):
            return refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{_AT_ONCE} batches of others are run here already"
            )
        try:
            rows = lent.run(request.body)
        except NotLent as error:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except Exception as error:  # noqa: BLE001 - whatever the job's code raises; it is judged where the rows are
            # The rows may be at fault also if Spark has died: the borrower must give them to nobody else.
            return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, summary_of(error))
        finally:
            self._places.release()
        with self._lock:
            self._lent[job] += 1
            if self._lent[job] == 1:
                _log.info("%s: its transform is lent", job)
        return PeerAnswer(HTTPStatus.OK, rows, "application/vnd.apache.arrow.stream")

    def metrics(self) -> Iterator[Samples]:
        """Yield the counter for Prometheus."""
        with self._lock:
            counted = Counter(self._lent)
        yield LENT.of(counted)
