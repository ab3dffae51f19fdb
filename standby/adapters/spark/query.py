"""One streaming query of this process's Spark, its micro-batches handed over as Arrow tables."""

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

from standby.adapters.kafka.ahead import Ahead
from standby.adapters.spark.session import CALL_SECONDS, FAILURES, Spark
from standby.errors import BrokenInvariant, Transient
from standby.feed.rules.sizing import BatchSize
from standby.shared.errortext import first_line, told
from standby.shared.model import InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger(__name__)

_ASYNC_PROGRESS: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
    # Without it only sinks that Spark itself names are let through.
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}

#: For so long a stop waits for the rows of the running micro-batch, which nobody will receive.
_FINISH_SECONDS: Final = 0.5

#: Given the rows of a micro-batch, and the offset after its last record per Kafka partition.
Receive = Callable[["pa.Table", Mapping[InputPartition, int]], None]

#: Given what ended a query (what the batch raised, else the query's own failure), or None when it was stopped.
Ended = Callable[["BaseException | None"], None]


class Gate(Protocol):
    """What holds a query's micro-batches back: a `standby.feed.reading.Reading`."""

    def is_below(self, ends: Mapping[InputPartition, int]) -> bool:
        """Return whether nobody needs the rows of a micro-batch up to ``ends``; that it came is noted."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it holds nothing back any more."""
        ...

    @property
    def is_far(self) -> bool:
        """Whether nobody will wait for the query soon."""
        ...

    @property
    def has_waited(self) -> bool:
        """Whether the batch that was received last was held up by something that is no part of its work."""
        ...


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the micro-batches of a query go, and what they are bounded by."""

    receive: Receive
    """Called on a thread of py4j's."""
    ended: Ended
    """Called once, on a thread of the query's own."""
    size: BatchSize | None = None
    """With it, by which the Kafka source is bounded, each batch is as large as the ones before let it be."""
    ahead: Ahead | None = None
    """What sees the records to come; for their size."""
    gate: Gate | None = None
    """Holds batches back, and says which of them nobody needs."""


class Query:
    """A streaming query whose micro-batches go to ``sink``."""

    def __init__(
        self, spark: Spark, frame: DataFrame, checkpoint: Path, sink: Sink, options: Mapping[str, str]
    ) -> None:
        self._size = sink.size
        self._ahead = sink.ahead
        self._gate = sink.gate
        #: Most records of the next batch, where that was changed.
        self._limited: int | None = None
        #: The sum of the offsets after the last batch; None before there was one.
        self._reached: int | None = None
        self._spark = spark
        self._receive = sink.receive
        self._ended = sink.ended
        self._checkpoint = checkpoint
        self._begun = threading.Event()
        self._receiving = threading.Lock()
        #: Not set while a batch is being carried over.
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
        """Have the next batches made as large as those before let them be, whatever the query began with."""
        self._limit()

    def stop(self) -> None:
        """End the query; a batch in ``receive`` is waited for, later ones are not received any more.

        ``ended`` has been called when this returns.
        """
        self._is_stopping = True
        with self._receiving:
            pass
        # To interrupt the job of a batch costs seconds of a core: its error wraps itself on its way through
        # Python until the JVM's stack is full. One that does not end soon is interrupted all the same.
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
        """Carry one micro-batch over; called by Spark, which waits for it.

        What is raised is kept here, as it is: on its way through the JVM it would become text.
        """
        # The first batch may be ready before start() has returned the handle.
        self._begun.wait(CALL_SECONDS)
        self._is_between.clear()
        try:
            # Looked at after the clearing: who stops has either been seen here, or waits.
            if not self._is_stopping:
                self._carry_over(frame)
        finally:
            self._is_between.set()

    def _carry_over(self, frame: DataFrame) -> None:
        try:
            ends = self._ends()
            if self._gate is not None and self._gate.is_below(ends):
                # Without its rows being asked for nothing is read or computed.
                self._pass(ends)
                return
            began = time.monotonic()
            rows = frame.toArrow()
        except Exception as error:  # noqa: BLE001 - raised again, as what py4j can carry
            # A stop interrupts the job of a batch that nobody will receive.
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
        """Go on behind a batch up to ``ends`` whose rows nobody needs, and which tells nothing of their size."""
        self._reached = sum(ends.values())
        self._note_ahead(ends)
        self._limit()

    def _note_ahead(self, ends: Mapping[InputPartition, int]) -> None:
        """Take note of how large the records behind ``ends`` are, as far as that was looked at."""
        if self._ahead is None or self._size is None:
            return
        if self._gate is not None and self._gate.is_far:
            # Most of them have come while the batch was held.
            self._ahead.look(ends, self._size.reach)
        self._size.note_ahead(self._ahead.largest())

    def _is_full(self, ends: Mapping[InputPartition, int]) -> bool:
        """Return whether a batch up to ``ends`` has all that it may, so that there is more, as a rule."""
        size, before = self._size, self._reached
        return size is not None and (before is None or sum(ends.values()) - before >= 0.9 * size.records)

    def _resize(self, rows: pa.Table, ends: Mapping[InputPartition, int], seconds: float) -> None:
        """Have the next batch made as large as fits, after one up to ``ends`` that took so long."""
        before, self._reached = self._reached, sum(ends.values())
        if self._size is None:
            return
        # Of the first batch it is not known where it began; and a query's start is part of what it took.
        self._size.note_bytes(rows.num_rows if before is None else self._reached - before, rows.nbytes)
        self._note_ahead(ends)
        # One that waited at a gate took what nobody can learn from.
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
            # What is set here is internal to Spark: a release without it works, in batches of one size.
            _LOG.warning("Spark does not let the size of its batches be changed: %s", first_line(error))
            self._size = None

    def _ends(self) -> dict[InputPartition, int]:
        """Return the end of the running micro-batch; the rows cannot tell, a filter may have dropped them."""
        offsets = self._handle._jsq.streamingQuery().availableOffsets().values()  # noqa: SLF001
        if offsets.size() != 1:
            raise BrokenInvariant(f"a query with {offsets.size()} sources")
        by_topic = json.loads(offsets.head().json())
        # Kafka's source says {topic: {partition: offset}}; of the synthetic one nothing needs to be known.
        return {
            (topic, int(partition)): offset
            for topic, by_partition in by_topic.items()
            if isinstance(by_partition, dict)
            for partition, offset in by_partition.items()
        }


def _for_py4j(error: BaseException) -> RuntimeError:
    """Return what is raised in place of an error, which is kept as it is.

    py4j carries an `Exception` over, as text that it can encode; with anything else its thread would end without an
    answer.
    """
    return RuntimeError(told(error))


def begin(spark: Spark, frame: DataFrame, checkpoint: Path, sink: Sink) -> Query:
    """Return a running query that gives each micro-batch of ``frame`` to ``sink``, but for those below its gate.

    Raises one of `FAILURES` when Spark refuses the query.
    """
    spark.remove_discarded()
    if spark.has_async_progress:
        try:
            return Query(spark, frame, checkpoint, sink, _ASYNC_PROGRESS)
        except PySparkException as error:
            refused = error
        # The option for our kind of sink is internal to Spark: a release without it works, only slower.
        query = Query(spark, frame, checkpoint, sink, {})
        _LOG.warning("Spark refuses asynchronous progress tracking: %s", first_line(refused))
        spark.has_async_progress = False
        return query
    return Query(spark, frame, checkpoint, sink, {})
