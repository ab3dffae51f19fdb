"""A streaming query of this process's Spark, whose micro-batches are delivered as Arrow tables."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from standby.adapters.kafka.size_lookahead import SizeLookahead
from standby.adapters.spark.session import CALL_SECONDS, FAILURES, Spark
from standby.errors import BrokenInvariant, Transient
from standby.feed.rules.sizing import BatchSize
from standby.shared.errortext import first_line, summary_of
from standby.shared.model import InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger(__name__)

_ASYNC_PROGRESS: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
    # Without this, Spark accepts only its own list of sinks.
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}

#: How long a stop waits for the rows of the running micro-batch, which are then discarded.
_FINISH_SECONDS: Final = 0.5

#: Receives the rows of a micro-batch, and the offset after its last record per Kafka partition.
Receive = Callable[["pa.Table", Mapping[InputPartition, int]], None]

#: Receives the failure that ended a query (the batch's error, otherwise the query's own), or None when it was
#: stopped.
OnEnded = Callable[["BaseException | None"], None]


class BatchGate(Protocol):
    """Holds a query's micro-batches: a `standby.feed.reading.QueryBuffer`."""

    def is_below(self, ends: Mapping[InputPartition, int]) -> bool:
        """Return whether the rows of a micro-batch up to ``ends`` are not needed; its arrival is recorded."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it no longer holds batches."""
        ...

    @property
    def is_far(self) -> bool:
        """Whether the query will not be needed soon."""
        ...

    @property
    def has_waited(self) -> bool:
        """Whether the last received batch was delayed by the gate."""
        ...


@dataclass(frozen=True, slots=True)
class Sink:
    """The receiver of a query's micro-batches, and their limits."""

    receive: Receive
    """Called on a thread of py4j."""
    ended: OnEnded
    """Called once, on the query's own thread."""
    size: BatchSize | None = None
    """Limits the batches of the Kafka source, adapting to earlier batches."""
    ahead: SizeLookahead | None = None
    """Samples the size of coming records."""
    gate: BatchGate | None = None
    """Holds batches, and determines which are not needed."""


class SparkQuery:
    """A streaming query whose micro-batches go to ``sink``."""

    def __init__(
        self, spark: Spark, frame: DataFrame, checkpoint: Path, sink: Sink, options: Mapping[str, str]
    ) -> None:
        self._size = sink.size
        self._ahead = sink.ahead
        self._gate = sink.gate
        #: Maximum records of the next batch, if that was changed.
        self._limited: int | None = None
        #: The sum of the offsets after the last batch; None before the first.
        self._reached: int | None = None
        self._spark = spark
        self._receive = sink.receive
        self._ended = sink.ended
        self._checkpoint = checkpoint
        self._begun = threading.Event()
        self._receiving = threading.Lock()
        #: Cleared while a batch is being transferred.
        self._is_between = threading.Event()
        self._is_between.set()
        self._is_stopping = False
        self._raised: BaseException | None = None
        checkpoint.mkdir(parents=True, exist_ok=True)
        spark.count_query()
        try:
            self._handle: StreamingQuery = (
                frame.writeStream.foreachBatch(self._on_batch)
                .options(**options)
                # Hadoop's default file system may be anything.
                .option("checkpointLocation", checkpoint.as_uri())
                .start()
            )
        except BaseException:
            spark.forget_query(self._on_batch)
            spark.discard(checkpoint)
            raise
        self._begun.set()
        self._watch = threading.Thread(target=self._wait_for_the_end, name="spark-query", daemon=True)
        self._watch.start()

    def limit(self) -> None:
        """Apply the adaptive size to the next batches, whatever the query's initial limit."""
        # Spark learns of its source with the first batch, after which the size is applied in any case.
        if self._reached is not None:
            self._limit()

    def stop(self) -> None:
        """Stop the query after a batch in ``receive`` has ended; later ones are not received.

        ``ended`` has been called when this returns.
        """
        self._is_stopping = True
        with self._receiving:
            pass
        # Interrupting the job of a batch costs seconds of processor time: its error is wrapped repeatedly on its way
        # through Python until the JVM's stack overflows. A batch that does not end soon is interrupted nevertheless.
        self._is_between.wait(_FINISH_SECONDS)
        if self._spark.process.is_alive:
            with self._spark.deadline(CALL_SECONDS), contextlib.suppress(*FAILURES):
                self._handle.stop()
        self._watch.join()
        self._spark.discard(self._checkpoint)

    def _wait_for_the_end(self) -> None:
        failure: BaseException | None = None
        try:
            self._handle.awaitTermination()
        except FAILURES as error:
            failure = error
        except BaseException as error:  # noqa: BLE001 - this thread's outermost loop; the query's user gets it
            _LOG.error("waiting for the end of a streaming query failed", exc_info=error)
            failure = Transient(f"waiting for the end of the streaming query failed: {summary_of(error)}")
            failure.__cause__ = error
        if self._raised is not None:
            failure = self._raised
        elif self._is_stopping and self._spark.process.is_alive:
            failure = None
        elif failure is None:
            failure = Transient("the streaming query ended by itself")
        try:
            self._ended(failure)
        finally:
            self._spark.forget_query(self._on_batch)

    def _on_batch(self, frame: DataFrame, _: int) -> None:
        """Transfer one micro-batch; called by Spark, which waits for it.

        An error is kept here unchanged: on its way through the JVM it would become text.
        """
        # The first batch may be ready before start() has returned the handle.
        self._begun.wait(CALL_SECONDS)
        self._is_between.clear()
        try:
            # Checked after the clearing: a concurrent stop is either seen here, or waits.
            if not self._is_stopping:
                self._carry_over(frame)
        finally:
            self._is_between.set()

    def _carry_over(self, frame: DataFrame) -> None:
        try:
            ends = self._ends()
            if self._gate is not None and self._gate.is_below(ends):
                # If its rows are not requested, nothing is read or computed.
                self._pass(ends)
                return
            began = time.monotonic()
            rows = frame.toArrow()
        except Exception as error:  # noqa: BLE001 - raised again in a form that py4j can transfer
            # A stop interrupts the job of a batch that is discarded anyway.
            if not self._is_stopping:
                self._raised = error
            raise _for_py4j(error) from None
        with self._receiving:
            if self._is_stopping:
                return
            if self._ahead is not None and self._size is not None and self._is_full(ends):
                self._ahead.look(ends, self._size.reach)
            try:
                self._receive(rows, ends)
            except BaseException as error:  # noqa: BLE001 - as above
                self._raised = error
                raise _for_py4j(error) from None
        self._resize(rows, ends, time.monotonic() - began)

    def _pass(self, ends: Mapping[InputPartition, int]) -> None:
        """Skip a batch up to ``ends`` whose rows are not needed, so their size is not known."""
        self._reached = sum(ends.values())
        self._note_ahead(ends)
        self._limit()

    def _note_ahead(self, ends: Mapping[InputPartition, int]) -> None:
        """Record the size of the records after ``ends``, as far as it was sampled."""
        if self._ahead is None or self._size is None:
            return
        if self._gate is not None and self._gate.is_far:
            # Most of them have arrived while the batch was held.
            self._ahead.look(ends, self._size.reach)
        self._size.note_ahead(self._ahead.largest())

    def _is_full(self, ends: Mapping[InputPartition, int]) -> bool:
        """Return whether a batch up to ``ends`` is full, so that there is probably more input."""
        size, before = self._size, self._reached
        return size is not None and (before is None or sum(ends.values()) - before >= 0.9 * size.records)

    def _resize(self, rows: pa.Table, ends: Mapping[InputPartition, int], seconds: float) -> None:
        """Adapt the size of the next batch, after one up to ``ends`` that took ``seconds``."""
        before, self._reached = self._reached, sum(ends.values())
        if self._size is None:
            return
        # The start of the first batch is not known, and its duration includes the query's start.
        self._size.note_bytes(rows.num_rows if before is None else self._reached - before, rows.nbytes)
        self._note_ahead(ends)
        # The duration of a batch that was held at a gate is meaningless.
        if before is not None and (self._gate is None or not self._gate.has_waited):
            self._size.note(self._reached - before, seconds)
        self._limit()

    def _limit(self) -> None:
        if self._size is None:
            return
        is_held = self._gate is not None and not self._gate.is_open
        records = self._size.held if is_held else self._size.records
        if records == self._limited:
            return
        self._limited = records
        try:
            self._spark.limit_batches(self._handle, records)
        except FAILURES as error:
            # This is internal to Spark: a release without it works with batches of constant size.
            _LOG.warning("Spark does not allow changing the size of its batches: %s", first_line(error))
            self._size = None

    def _ends(self) -> dict[InputPartition, int]:
        """Return the end of the running micro-batch; its rows may have been dropped by a filter."""
        offsets = self._handle._jsq.streamingQuery().availableOffsets().values()  # noqa: SLF001
        if offsets.size() != 1:
            raise BrokenInvariant(f"a query with {offsets.size()} sources")
        by_topic = json.loads(offsets.head().json())
        # The Kafka source reports {topic: {partition: offset}}; the synthetic one is ignored.
        return {
            (topic, int(partition)): offset
            for topic, by_partition in by_topic.items()
            if isinstance(by_partition, dict)
            for partition, offset in by_partition.items()
        }


def _for_py4j(error: BaseException) -> RuntimeError:
    """Return the error to raise in place of ``error``, which is kept unchanged.

    py4j transfers an `Exception` as text that it can encode; with anything else its thread would end without an
    answer.
    """
    return RuntimeError(summary_of(error))


def begin(spark: Spark, frame: DataFrame, checkpoint: Path, sink: Sink) -> SparkQuery:
    """Return a running query that passes each micro-batch of ``frame`` to ``sink``, except those below its gate.

    Raises one of `FAILURES` when Spark refuses the query.
    """
    spark.remove_discarded()
    if spark.has_async_progress:
        try:
            return SparkQuery(spark, frame, checkpoint, sink, _ASYNC_PROGRESS)
        except PySparkException as error:
            refused = error
        # The option for our kind of sink is internal to Spark: a release without it works, but slower.
        query = SparkQuery(spark, frame, checkpoint, sink, {})
        _LOG.warning("Spark refuses asynchronous progress tracking: %s", first_line(refused))
        spark.has_async_progress = False
        return query
    return SparkQuery(spark, frame, checkpoint, sink, {})
