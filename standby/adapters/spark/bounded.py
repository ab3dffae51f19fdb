"""Reads the input up to given offsets, as ordinary Spark batches.

A streaming query has no end: its next micro-batch may be computed before it is stopped. Here, records after the end
must not be processed.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pyspark.sql import DataFrame

from standby.adapters.spark.query import Sink
from standby.adapters.spark.session import FAILURES, Spark
from standby.feed.rules.sizing import BatchSize
from standby.shared.model import InputPartition

#: How often a stop is repeated: a job may begin just after it was cancelled.
_CANCEL_SECONDS: Final = 0.2

_numbers: Final = itertools.count()

#: Start and end offset per Kafka partition.
Piece = tuple[Mapping[InputPartition, int], Mapping[InputPartition, int]]


class BoundedRead:
    """Reads pieces sequentially on a thread of its own, and passes each to ``receive``.

    The counterpart of `SparkQuery`.
    """

    def __init__(
        self,
        spark: Spark,
        frame_of: Callable[[Piece], DataFrame],
        pieces: Iterable[Piece],
        sink: Sink,
        size: BatchSize,
    ) -> None:
        """The sink's ``ended`` is called with None when everything was received, or it was stopped.

        A piece is determined when the previous one is done and recorded in ``size``.
        """
        self._size = size
        self._spark = spark
        self._frame_of = frame_of
        self._pieces = pieces
        self._receive = sink.receive
        self._ended = sink.ended
        self._receiving = threading.Lock()
        self._is_stopping = False
        self._group = f"standfast-bounded-{next(_numbers)}"
        self._thread = threading.Thread(target=self._run, name="spark-bounded", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, after a piece in ``receive`` has ended. ``ended`` has been called when this returns."""
        self._is_stopping = True
        with self._receiving:
            pass
        while self._thread.is_alive():
            if self._spark.process.is_alive:
                with contextlib.suppress(*FAILURES):
                    self._spark.session.sparkContext.cancelJobGroup(self._group)
            self._thread.join(_CANCEL_SECONDS)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            # The job group of this thread: its jobs in the JVM can be cancelled by this name.
            self._spark.session.sparkContext.setJobGroup(
                self._group, "a bounded read of the input", interruptOnCancel=True
            )
            for piece in self._pieces:
                began = time.monotonic()
                rows = self._frame_of(piece).toArrow()
                with self._receiving:
                    if self._is_stopping:
                        break
                    self._receive(rows, piece[1])
                records = sum(piece[1].values()) - sum(piece[0].values())
                self._size.note_bytes(records, rows.nbytes)
                self._size.note(records, time.monotonic() - began)
        except BaseException as error:  # noqa: BLE001 - this thread's outermost loop; the caller gets it
            failure = error
        is_called_off = self._is_stopping and isinstance(failure, FAILURES)
        self._ended(None if is_called_off else failure)


def pieces_of(
    positions: Mapping[InputPartition, int], until: Mapping[InputPartition, int], most: Callable[[], int]
) -> Iterator[Piece]:
    """Yield the ranges from ``positions`` to ``until`` in pieces, in order, each of at most ``most()`` offsets."""
    starts = dict(positions)
    while left := {each: until[each] - start for each, start in starts.items() if start < until[each]}:
        share = max(1, most() // len(left))
        ends = {each: starts[each] + min(share, left[each]) for each in left}
        yield {each: starts[each] for each in left}, ends
        starts.update(ends)
