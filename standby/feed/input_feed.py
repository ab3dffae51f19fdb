"""The feed: a Kafka consumer, Arrow tables, one thread. The job's transform is run by a `RowTransform`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from standby.adapters.kafka.input import InputBounds, InputReader
from standby.config import JobConfig, kafka_settings
from standby.errors import BrokenInvariant, Transient
from standby.feed.batches import HEADERS, ROWS, rows_of, split
from standby.feed.inputs import by_partition, reached_offsets
from standby.feed.rules.sizing import BatchSize
from standby.ports import Deliver, NotLent, UnreadableRecord
from standby.shared.clock import REAL, Clock
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition

_LOG: Final = logging.getLogger(__name__)

#: How long a read of the input waits for a first record; a stop waits at most as long.
_POLL_SECONDS = 0.05

#: How long a stop waits for a running transform before it interrupts it, and how often it does so.
_FINISH_SECONDS: Final = 0.5
_CANCEL_SECONDS: Final = 0.2

#: The latest time of a record, in Unix milliseconds, that can be expressed in microseconds.
_MOST_MILLIS = (2**63 - 1) // 1000

#: Recent records for a warm-up: how many, of how many partitions, and how long to wait for them.
_RECENT_RECORDS: Final = 500
_RECENT_PARTITIONS: Final = 2
_RECENT_SECONDS: Final = 2.0

#: Marks a block as code of the job that processes the input of these tasks, from these positions on.
Transforming = Callable[[Mapping[TaskId, Offsets]], AbstractContextManager[None]]


def mark_nothing(starts: Mapping[TaskId, Offsets]) -> AbstractContextManager[None]:
    """Return a context manager that marks nothing."""
    del starts
    return nullcontext()


class RowTransform(Protocol):
    """Runs the job's transform over the rows of a micro-batch. Used by one thread at a time, except where noted."""

    def warm(self, recent: Callable[[], pa.Table | None]) -> None:
        """Load and compile what `run` needs. ``recent`` reads recent rows of the input; None when it has none.

        Raises `Transient` when that is impossible at present, `BadConfiguration` for a transform that is refused.
        """
        ...

    def cancel_warm(self) -> None:
        """Make a running `warm` return soon. Thread-safe."""
        ...

    @property
    def is_warm(self) -> bool:
        """Whether a `run` now would not wait for class loading or compilation."""
        ...

    @property
    def run_seconds(self) -> float | None:
        """Time of a small batch, as last measured; None: not known."""
        ...

    def run(self, rows: pa.Table) -> pa.Table:
        """Return the transformed rows. Raises the error of the job's code, and `Transient` for others."""
        ...

    def cancel(self) -> None:
        """Interrupt a running `run`, if possible: it raises `Transient`. Thread-safe, and repeatable."""
        ...

    def close(self) -> None:
        """Free all resources."""
        ...

    @property
    def child_pids(self) -> tuple[int, ...]:
        """The processes that it needs."""
        ...


class InputFeed:
    """A `standby.ports.Feed` over a consumer of its own."""

    def __init__(
        self,
        config: JobConfig,
        job: JobDefinition,
        transform: RowTransform,
        transforming: Transforming = mark_nothing,
        clock: Clock = REAL,
    ) -> None:
        """``transforming`` marks what the transform is running on."""
        self._config = config
        self._transforming = transforming
        self._clock = clock
        self._inputs = config.inputs
        self._size = BatchSize(config.batch_max_records)
        self._interval_seconds = config.commit_interval_ms / 1000
        #: Number of records of the last batch that had any; None: there was none.
        self._last_records: int | None = None
        self._schema = rows_of(config.inputs, has_headers=config.input_headers)
        self._group = job.group
        self._partitions = [(topic, number) for number in range(job.tasks) for topic in config.inputs]
        self._transform = transform
        self._settings = kafka_settings(config)
        self._bounds: InputBounds | None = None
        #: A connected reader for the next start.
        self._spare: InputReader | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._ended.set()
        self._failure: BaseException | None = None

    def warm(self) -> None:
        """Connect to the brokers, and warm up the transform; see `standby.ports.Feed.warm`."""
        self._connect()
        self._transform.warm(self._recent)

    def cancel_warm(self) -> None:
        """Interrupt a running `warm`. Thread-safe."""
        self._transform.cancel_warm()

    @property
    def is_warm(self) -> bool:
        """Whether a connected reader is available or in use, and the transform is warm."""
        return self._transform.is_warm and (self._spare is not None or not self._ended.is_set())

    @property
    def start_seconds(self) -> float | None:
        """The time of a small batch, once a reader is connected: a start itself takes no measurable time."""
        return self._transform.run_seconds if self.is_warm else None

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
        ends = None if until is None else by_partition(until, self._inputs)
        reader = self._spare or self._reader()
        self._spare = None
        with _closed_on_error(reader):
            # It connects and fetches while the transform is prepared and the bounds are asked for.
            reader.assign(starts, ends)
            self._prepare(positions, is_range=until is not None)
            self._input_bounds().check(starts)
            if ends is not None:
                self._input_bounds().check(ends)
        self._failure = None
        self._stopping.clear()
        self._ended.clear()
        self._thread = threading.Thread(
            target=self._run, args=(reader, dict(positions), until, deliver), name="feed", daemon=True
        )
        self._thread.start()

    def expect(self, tasks: Collection[TaskId]) -> None:
        """Do nothing: a connected reader is available, and the transform needs nothing else. Thread-safe."""

    def cancel_start(self) -> None:
        """Do nothing: this start does not wait. Thread-safe."""

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; see `standby.ports.Feed.wait`."""
        return self._ended.wait(timeout_seconds)

    @property
    def failure(self) -> BaseException | None:
        """What ended the feed; see `standby.ports.Feed.failure`."""
        return self._failure

    def shrink(self) -> None:
        """Make the next batches smaller; see `standby.ports.Feed.shrink`."""
        self._size.shrink(self._last_records)

    def stop(self) -> None:
        """End the feed; see `standby.ports.Feed.stop`."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_FINISH_SECONDS)
            while thread.is_alive():
                self._transform.cancel()
                thread.join(_CANCEL_SECONDS)

    def close(self) -> None:
        """Stop, and close the connections."""
        self.cancel_warm()
        self.stop()
        if self._spare is not None:
            self._spare.close()
            self._spare = None
        self._transform.close()
        self._bounds = None

    @property
    def child_pids(self) -> tuple[int, ...]:
        """The processes of the transform; see `standby.ports.Feed.child_pids`."""
        return self._transform.child_pids

    @property
    def has_run_in_child(self) -> bool:
        """See `standby.ports.Feed.has_run_in_child`."""
        return bool(self.child_pids)

    @property
    def is_lending(self) -> bool:
        """False: only Spark's transform is worth borrowing; see `standby.ports.Feed.is_lending`."""
        return False

    def lend(self, rows: bytes) -> bytes:
        """Raise `NotLent`."""
        del rows
        raise NotLent("this feed's transform needs no warm-up and is not lent")

    def _prepare(self, tasks: Collection[TaskId], *, is_range: bool) -> None:
        """Make a `run` of the transform possible for a feed of these tasks, of a range if ``is_range``.

        For the subclass; raises as `standby.ports.Feed.start`.
        """

    def _connect(self) -> None:
        if self._spare is not None:
            self._spare.idle()
        self._ask_for_bounds()
        if self._spare is None:
            reader = self._reader()
            with _closed_on_error(reader):
                reader.connect(timeout_seconds=5)
            self._spare = reader

    def _ask_for_bounds(self) -> None:
        """Connect to a broker with part of the input. Raises `Transient` if none answers."""
        try:
            # Enough in most cases: this is done every few seconds, and a job may have thousands of partitions.
            self._input_bounds().ask([(topic, 0) for topic in self._inputs])
        except Transient:
            # The partitions of the standbys here may answer although the first ones have no leader.
            self._input_bounds().ask(self._partitions)

    def _recent(self) -> pa.Table | None:
        """Return some of the last records of the input, in the form of a micro-batch."""
        # Not those of `start`, which another thread may be using.
        bounds = InputBounds(self._settings, self._group).ask(self._partitions)
        spans = [(each, span) for each, span in bounds.items() if span[1] > span[0]][:_RECENT_PARTITIONS]
        if not spans:
            return None
        share = _RECENT_RECORDS // len(spans)
        ends = {each: end for each, (_, end) in spans}
        messages: list[Message] = []
        left = self._config.batch_max_bytes
        reader = self._reader()
        try:
            reader.assign({each: max(first, end - share) for each, (first, end) in spans}, ends)
            deadline = self._clock.monotonic() + _RECENT_SECONDS
            while left > 0 and reader.positions() != ends and self._clock.monotonic() < deadline:
                more = reader.read(_RECENT_RECORDS, _POLL_SECONDS, left)
                messages += more
                left -= sum(reader.sizes_of(more))
            return self._table(messages) if messages else None
        except UnreadableRecord as error:
            # It is judged when it is processed.
            _LOG.info("recent records cannot be used for a warm-up: %s", error)
            return None
        finally:
            reader.close()

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
                rows = self._table(messages)
                self._last_records = len(messages) or self._last_records
                is_cut = rows.nbytes >= self._config.batch_max_bytes
                try:
                    with self._transforming(starts):
                        rows = self._transform.run(rows)
                except Transient:
                    if self._stopping.is_set():
                        break
                    raise
                ends = reader.positions()
                spans = {
                    task: (start, reached_offsets(ends, self._inputs, task, start))
                    for task, start in starts.items()
                }
                batches = split(rows, spans, self._inputs, self._config.transform)
                if batches and not self._stopping.is_set():
                    deliver(batches)
                    starts.update((batch.task, batch.end) for batch in batches)
                is_full = is_cut or len(messages) >= self._size.records
                self._size.note(len(messages), self._clock.monotonic() - began, is_cut=is_cut)
                if messages and not is_full and until is None:
                    self._await(began + self._interval_seconds)
        except BaseException as error:  # noqa: BLE001  (this thread's outermost loop; the caller gets it as `failure`)
            self._failure = error
        finally:
            try:
                reader.close()
            finally:
                self._ended.set()

    def _await(self, due: float) -> None:
        """Wait until the next batch may begin, or until the feed is to stop."""
        while (left := due - self._clock.monotonic()) > 0:
            if self._stopping.wait(self._clock.pace(left)):
                return

    def _table(self, messages: Sequence[Message]) -> pa.Table:
        columns = [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _times(messages),
            pa.array(_numbers(Message.partition, messages, np.int32)),
            pa.array(_numbers(Message.offset, messages, np.int64)),
        ]
        if len(self._inputs) > 1:
            columns.append(pa.array(list(map(Message.topic, messages)), pa.string()))
        if self._config.input_headers:
            # The reader has decoded them, to count their bytes, and the client keeps the result in the record.
            columns.append(pa.array([each.headers() or None for each in messages], HEADERS.type))
        return pa.Table.from_arrays(columns, schema=self._schema)


@contextmanager
def _closed_on_error(reader: InputReader) -> Iterator[None]:
    """Close ``reader`` if the block fails: its client, with threads and connections, must not be left to Python."""
    try:
        yield
    except BaseException:
        reader.close()
        raise


def _times(messages: Sequence[Message]) -> pa.Array:
    """Return the records' times in microseconds, the column's unit as in Spark; Kafka's unit is milliseconds."""
    millis = np.fromiter([each for _, each in map(Message.timestamp, messages)], np.int64, len(messages))
    too_large = np.flatnonzero((millis > _MOST_MILLIS) | (millis < -_MOST_MILLIS))
    if too_large.size:
        at = int(too_large[0])
        message = messages[at]
        raise UnreadableRecord(
            f"input {message.topic()}[{message.partition()}], offset {message.offset()}: the record's time, "
            f"{millis[at]} ms, is too large for a timestamp in microseconds; was it meant as micro- or nanoseconds?"
        )
    return pa.array(millis * 1000).view(ROWS.field("timestamp").type)


def _numbers(
    get: Callable[[Message], int | None], messages: Sequence[Message], kind: type[np.integer[Any]]
) -> pa.Array:
    return pa.array(np.fromiter(map(get, messages), kind, len(messages)))


def _is_past(starts: Mapping[TaskId, Offsets], until: Mapping[TaskId, Offsets] | None) -> bool:
    return until is not None and all(start.reaches(until[task]) for task, start in starts.items())
