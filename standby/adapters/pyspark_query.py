"""One streaming query of this process's Spark, its micro-batches handed over as Arrow tables."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from standby.adapters.pyspark import CALL_SECONDS, FAILURES, Spark, first_line
from standby.errors import BrokenLaw, Transient
from standby.model import InputPartition

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


class Query:
    """A streaming query. ``receive`` is called on a thread of py4j's, ``ended`` once on one of its own."""

    def __init__(
        self,
        spark: Spark,
        frame: DataFrame,
        checkpoint: Path,
        receive: Receive,
        ended: Ended,
        options: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._receive = receive
        self._ended = ended
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
            rows = frame.toArrow()
            ends = self._ends()
        except Exception as error:
            # A stop interrupts the job of a batch that nobody will receive.
            if not self._is_stopping:
                self._raised = error
            raise
        with self._receiving:
            if self._is_stopping:
                return
            try:
                self._receive(rows, ends)
            except BaseException as error:
                self._raised = error
                if isinstance(error, Exception):
                    raise
                # py4j carries only these over; with anything else its thread would end without an answer.
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

    def _ends(self) -> dict[InputPartition, int]:
        """Return the end of the running micro-batch; the rows cannot tell, a filter may have dropped them."""
        offsets = self._handle._jsq.streamingQuery().availableOffsets().values()  # noqa: SLF001
        if offsets.size() != 1:
            raise BrokenLaw(f"a query with {offsets.size()} sources")
        by_topic = json.loads(offsets.head().json())
        # Kafka's source says {topic: {partition: offset}}; of the synthetic one nothing needs to be known.
        return {
            (topic, int(partition)): offset
            for topic, by_partition in by_topic.items()
            if isinstance(by_partition, dict)
            for partition, offset in by_partition.items()
        }


def begin(spark: Spark, frame: DataFrame, checkpoint: Path, receive: Receive, ended: Ended) -> Query:
    """Return a running query that gives each micro-batch of ``frame`` to ``receive``.

    Raises one of `FAILURES` when Spark refuses it.
    """
    spark.remove_discarded()
    if spark.has_async_progress:
        try:
            return Query(spark, frame, checkpoint, receive, ended, _ASYNC_PROGRESS)
        except PySparkException as error:
            refused = error
        # The option for our kind of sink is internal to Spark: a release without it works, only slower.
        query = Query(spark, frame, checkpoint, receive, ended, {})
        _LOG.warning("Spark refuses asynchronous progress tracking: %s", first_line(refused))
        spark.has_async_progress = False
        return query
    return Query(spark, frame, checkpoint, receive, ended, {})
