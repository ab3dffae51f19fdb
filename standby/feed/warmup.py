"""Keeps a Spark feed warm with rehearsals: queries over recent rows, through the job's transform.

Measured: in a JVM without an earlier streaming query, a start takes 4 s to its first batch, due to loading some
6,500 classes, a third of them for reading from Kafka; it uses 2.5 s of processor time. The fourth start uses 0.35 s.
A later start benefits from the number of earlier *starts* more than from the number of batches. So rehearsals are
repeated until two in a row take about the same time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from standby.shared.clock import REAL

if TYPE_CHECKING:
    import pyarrow as pa

    from standby.adapters.kafka.input import InputBounds
    from standby.adapters.spark.query import OnEnded, Receive, SparkQuery
    from standby.shared.model import InputPartition

_LOG: Final = logging.getLogger(__name__)

#: Micro-batches of each query of the first warm-up.
FIRST: Final = (2, 1, 1)

#: Maximum number of its queries, while each is faster than the previous one by more than `SETTLED`: on a busy
#: machine, times vary for other reasons as well.
MOST: Final = 6

#: Times have settled when the last one is at least this fraction of the previous one.
SETTLED: Final = 0.75

#: Minimum interval of a warm feed's rehearsals, however often `run` is called. Compiled code stays compiled;
#: rehearsals keep connections open and pages in memory.
KEEP_SECONDS: Final = 28.0

#: Records per micro-batch of a rehearsal, over all partitions.
_RECORDS: Final = 500

#: Maximum number of partitions read; more would not warm anything else.
_MOST_PARTITIONS: Final = 2

#: Time limit of a rehearsal; on a machine as busy as that, continuing would only add to the load.
_REHEARSAL_SECONDS: Final = 30.0


class WarmUpFeed(Protocol):
    """What a rehearsal uses: a `standby.feed.spark.SparkFeed`."""

    def bounds(self) -> InputBounds:
        """Return what knows the bounds of the input."""
        ...

    def begin(
        self,
        positions: Mapping[InputPartition, int],
        batch_max_records: int,
        receive: Receive,
        ended: OnEnded,
    ) -> SparkQuery:
        """Return a running query from ``positions``; over synthetic rows when there are none."""
        ...


class WarmUp:
    """The rehearsals of one feed, and their progress."""

    def __init__(
        self,
        stage: WarmUpFeed,
        partitions: Iterable[InputPartition],
        clock: Callable[[], float] = REAL.monotonic,
    ) -> None:
        self._stage = stage
        self._clock = clock
        self._due_at = clock()
        self._partitions = tuple(partitions)
        self._cancelled = threading.Event()
        self._wake = threading.Event()
        self._has_run = False
        self._has_read_kafka = False
        #: Time from the start of the last rehearsal's query to its first batch.
        self._took: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether the first warm-up, or a real start, has been completed."""
        return self._has_run

    @property
    def start_seconds(self) -> float | None:
        """Time of the last rehearsal's query to its first batch; None before one has read real rows.

        Without real rows, a third of what a start needs is not loaded.
        """
        return self._took if self._has_read_kafka else None

    def count_start(self) -> None:
        """Record that a real query was started: it warms up as well, and resets an earlier `cancel`."""
        self._note(has_read_kafka=True)
        self._cancelled.clear()

    def cancel(self) -> None:
        """Make a running or the next `run` return soon. Thread-safe.

        It applies to the next one as well, because it may be called just before `run` begins, for a waiting
        promotion.
        """
        self._cancelled.set()
        self._wake.set()

    def run(self) -> None:
        """Rehearse until the times have settled, if it is the first time or the first time with real rows.

        Otherwise run a single batch. Raises like `standby.feed.spark.SparkFeed.start`. Failures of a rehearsal on
        rows are left for the real start to report.
        """
        try:
            is_due = self._clock() >= self._due_at
            # The first real rows are used at once, not at the next due time: before them, no rehearsal has read from
            # Kafka, and a start would have to load all of that.
            is_waiting_for_rows = self._has_run and not self._has_read_kafka
            if self._cancelled.is_set() or not (is_due or is_waiting_for_rows):
                return
            spans = self._recent()
            if not is_due and not spans:
                return
            is_first = not self._has_run or (bool(spans) and not self._has_read_kafka)
            plan = (*FIRST, *(1,) * (MOST - len(FIRST))) if is_first else (1,)
            for number, batches in enumerate(plan):
                before = self._took
                self._rehearse(spans, batches)
                if self._cancelled.is_set():
                    return
                if number + 1 >= len(FIRST) and self._has_settled(before):
                    break
            self._note(has_read_kafka=bool(spans))
        finally:
            self._cancelled.clear()

    def _has_settled(self, before: float | None) -> bool:
        last = self._took
        return before is None or last is None or last >= SETTLED * before

    def _note(self, *, has_read_kafka: bool) -> None:
        self._has_run = True
        self._has_read_kafka = self._has_read_kafka or has_read_kafka
        self._due_at = self._clock() + KEEP_SECONDS

    def _recent(self) -> dict[InputPartition, tuple[int, int]]:
        """Return the bounds of some partitions that have records; empty while the input is empty."""
        bounds = self._stage.bounds().ask(self._partitions)
        spans = {partition: span for partition, span in bounds.items() if span[1] > span[0]}
        return dict(list(spans.items())[:_MOST_PARTITIONS])

    def _rehearse(self, spans: Mapping[InputPartition, tuple[int, int]], batches: int) -> None:
        """Read the last records of ``spans`` in ``batches`` batches, or in fewer when there are not enough records."""
        self._wake.clear()
        received = 0
        positions = {
            partition: max(first, end - batches * _RECORDS // len(spans))
            for partition, (first, end) in spans.items()
        }

        def receive(_: pa.Table, ends: Mapping[InputPartition, int]) -> None:
            nonlocal received
            received += 1
            if received == 1:
                self._took = self._clock() - began
            is_at_end = bool(ends) and all(ends[each] >= spans[each][1] for each in ends)
            if received >= batches or is_at_end:
                self._wake.set()

        def ended(failure: BaseException | None) -> None:
            if failure is not None:
                _LOG.info("a rehearsal ended early: %r", failure)
            self._wake.set()

        began = self._clock()
        query = self._stage.begin(positions, _RECORDS, receive, ended)
        try:
            if not self._cancelled.is_set():
                self._wake.wait(_REHEARSAL_SECONDS)
        finally:
            query.stop()
