"""The feed without Spark and JVM: a Kafka consumer, Arrow tables, one thread.

It gives the same guarantees as the Spark feed and passes the same contract suite. Its transform, if the job has one,
is a function pyarrow.Table → pyarrow.Table over the columns of `standby.feed.batches.rows_of`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Message

from standby.adapters.kafka.input import InputBounds, InputReader
from standby.config import JobConfig, kafka_settings
from standby.errors import BadConfiguration, BrokenInvariant
from standby.feed.batches import HEADERS, ROWS, check_schema, rows_of, split
from standby.feed.functions import is_interrupt, transform_of
from standby.feed.inputs import by_partition, reached_offsets
from standby.feed.rules.sizing import BatchSize
from standby.ports import Deliver, UnreadableRecord
from standby.shared.clock import REAL, Clock
from standby.shared.errortext import first_line, kind_of
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition

_LOG: Final = logging.getLogger(__name__)

#: How long a read of the input waits for a first record; a stop waits at most as long.
_POLL_SECONDS = 0.05

#: The latest time of a record, in Unix milliseconds, that can be expressed in microseconds.
_MOST_MILLIS = (2**63 - 1) // 1000
#: Marks a block as code of the job that processes the input of these tasks, from these positions on.
Transforming = Callable[[Mapping[TaskId, Offsets]], AbstractContextManager[None]]


def mark_nothing(starts: Mapping[TaskId, Offsets]) -> AbstractContextManager[None]:
    """Return a context manager that marks nothing."""
    del starts
    return nullcontext()


class PlainFeed:
    """A `standby.ports.Feed` over a consumer of its own."""

    def __init__(
        self,
        config: JobConfig,
        job: JobDefinition,
        transforming: Transforming = mark_nothing,
        clock: Clock = REAL,
    ) -> None:
        """``transforming`` marks what the job's transform is running on."""
        self._config = config
        self._transforming = transforming
        self._clock = clock
        self._inputs = config.inputs
        self._size = BatchSize(config.batch_max_records)
        self._schema = rows_of(config.inputs, has_headers=config.input_headers)
        self._group = job.group
        self._transform = transform_of(config)
        self._settings = kafka_settings(config)
        self._bounds: InputBounds | None = None
        #: A connected reader for the next start.
        self._spare: InputReader | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._ended.set()
        self._failure: BaseException | None = None
        self._is_prepared = False

    def warm(self) -> None:
        """Connect to the brokers; see `standby.ports.Feed.warm`. Raises `Transient`."""
        # pyarrow imports pandas, if installed, with its first array: this takes 370 ms, which would delay a
        # promotion.
        try:
            self._table([])
        except BaseException as error:
            if is_interrupt(error):
                raise
            # The job's own code has failed on empty input. A start on real input reports that, if it fails there, too.
            _LOG.debug("the transform failed while warming up", exc_info=error)
        self._input_bounds().ask([(topic, 0) for topic in self._inputs])
        if self._spare is None:
            reader = self._reader()
            reader.connect(timeout_seconds=5)
            self._spare = reader

    def cancel_warm(self) -> None:
        """Do nothing: `warm` is short."""

    @property
    def is_warm(self) -> bool:
        """Whether a connected reader is available or in use."""
        return self._spare is not None or not self._ended.is_set()

    def prepare(self, positions: Mapping[TaskId, Offsets], *, is_near: bool = True) -> bool:
        """Connect; see `standby.ports.Feed.prepare`. There is nothing else to prepare: a start is an assignment."""
        if not self._ended.is_set():
            raise BrokenInvariant("the feed was prepared while it runs")
        self._input_bounds().check(by_partition(positions, self._inputs))
        self.warm()
        del is_near
        was_prepared, self._is_prepared = self._is_prepared, True
        return not was_prepared

    @property
    def is_prepared(self) -> bool:
        """Whether `prepare` was called, and nothing was started or stopped since."""
        return self._is_prepared

    @property
    def start_seconds(self) -> float | None:
        """Zero when a reader is connected: such a start takes no measurable time."""
        return 0.0 if self.is_warm else None

    def start(
        self,
        positions: Mapping[TaskId, Offsets],
        deliver: Deliver,
        until: Mapping[TaskId, Offsets] | None = None,
    ) -> None:
        """Start reading; see `standby.ports.Feed.start`."""
        if not self._ended.is_set():
            raise BrokenInvariant("the feed was started while it runs")
        starts = by_partition(positions, self._inputs)
        self._input_bounds().check(starts)
        ends = None if until is None else by_partition(until, self._inputs)
        if ends is not None:
            self._input_bounds().check(ends)
        reader = self._spare or self._reader()
        self._spare = None
        self._is_prepared = False
        reader.assign(starts, ends)
        self._failure = None
        self._stopping.clear()
        self._ended.clear()
        self._thread = threading.Thread(
            target=self._run, args=(reader, dict(positions), until, deliver), name="plain-feed", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; see `standby.ports.Feed.wait`."""
        return self._ended.wait(timeout_seconds)

    @property
    def failure(self) -> BaseException | None:
        """What ended the feed; see `standby.ports.Feed.failure`."""
        return self._failure

    def shrink(self) -> None:
        """Make the next batches smaller; see `standby.ports.Feed.shrink`."""
        self._size.shrink()

    @property
    def may_go_deaf(self) -> bool:
        """True: after a broker was away librdkafka may never fetch from a partition again (its issue 4492)."""
        return True

    def stop(self) -> None:
        """End the feed; see `standby.ports.Feed.stop`."""
        self._is_prepared = False
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Stop, and close the connections."""
        self.stop()
        if self._spare is not None:
            self._spare.close()
            self._spare = None
        self._bounds = None

    @property
    def child_pids(self) -> tuple[int, ...]:
        """Empty: there is no child process."""
        return ()

    def _input_bounds(self) -> InputBounds:
        if self._bounds is None:
            self._bounds = InputBounds(self._settings, self._group)
        return self._bounds

    def _reader(self) -> InputReader:
        has_headers = self._config.input_headers
        return InputReader(self._settings, self._inputs, self._group, has_headers=has_headers)

    def _run(
        self,
        reader: InputReader,
        starts: dict[TaskId, Offsets],
        until: Mapping[TaskId, Offsets] | None,
        deliver: Deliver,
    ) -> None:
        try:
            while not self._stopping.is_set() and not _is_past(starts, until):
                messages = reader.read(self._size.records, _POLL_SECONDS, self._config.batch_max_bytes)
                began = self._clock.monotonic()
                with self._transforming(starts):
                    rows = self._table(messages)
                ends = reader.positions()
                spans = {
                    task: (start, reached_offsets(ends, self._inputs, task, start))
                    for task, start in starts.items()
                }
                batches = split(rows, spans, self._inputs, self._config.transform)
                if batches and not self._stopping.is_set():
                    deliver(batches)
                    starts.update((batch.task, batch.end) for batch in batches)
                self._size.note(len(messages), self._clock.monotonic() - began)
        except BaseException as error:  # noqa: BLE001  (this thread's outermost loop; the caller gets it as `failure`)
            self._failure = error
        finally:
            reader.close()
            self._ended.set()

    def _table(self, messages: Sequence[Message]) -> pa.Table:
        columns = [
            pa.array([each.key() for each in messages], pa.binary()),
            pa.array([each.value() for each in messages], pa.binary()),
            pa.array([_micros(each) for each in messages], ROWS.field("timestamp").type),
            pa.array([each.partition() for each in messages], pa.int32()),
            pa.array([each.offset() for each in messages], pa.int64()),
        ]
        if len(self._inputs) > 1:
            columns.append(pa.array([each.topic() for each in messages], pa.string()))
        if self._config.input_headers:
            columns.append(pa.array([each.headers() for each in messages], HEADERS.type))
        rows = pa.Table.from_arrays(columns, schema=self._schema)
        return rows if self._transform is None else transformed(self._transform, rows, self._config.transform)


def _micros(message: Message) -> int:
    """Return a record's time in microseconds, the column's unit as in Spark; Kafka's unit is milliseconds."""
    millis = message.timestamp()[1]
    if abs(millis) > _MOST_MILLIS:
        raise UnreadableRecord(
            f"input {message.topic()}[{message.partition()}], offset {message.offset()}: the record's time, {millis} "
            "ms, is too large for a timestamp in microseconds; was it meant as micro- or nanoseconds?"
        )
    return millis * 1000


def _is_past(starts: Mapping[TaskId, Offsets], until: Mapping[TaskId, Offsets] | None) -> bool:
    return until is not None and all(start.reaches(until[task]) for task, start in starts.items())


def transformed(transform: Callable[[Any], Any], rows: pa.Table, name: str) -> pa.Table:
    """Return the result of ``transform`` for ``rows``. Raises `BadConfiguration` when it is not a table."""
    result = transform(rows)
    if not isinstance(result, pa.Table):
        raise BadConfiguration(
            f"task.transform: {name} returned a {type(result).__name__}; with task.feed=plain it is given "
            "a pyarrow.Table and must return one"
        )
    return result


def check_plain_transform(config: JobConfig) -> None:
    """Raise `BadConfiguration` unless the job's transform keeps the reserved columns of an empty table."""
    transform = transform_of(config)
    if transform is None:
        return
    try:
        rows = rows_of(config.inputs, has_headers=config.input_headers).empty_table()
        result = transformed(transform, rows, config.transform)
    except BadConfiguration:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise BadConfiguration(
            f"task.transform: {config.transform} raised {kind_of(error)} on an empty table: {first_line(error)}"
        ) from error
    check_schema(result.schema, config.inputs, config.transform)
