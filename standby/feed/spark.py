"""The Spark feed: a local Structured Streaming query over the tasks' input partitions.

The query's checkpoint is a new temporary directory at each start: the caller specifies where the query begins, and
commits its progress.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from standby.adapters.kafka.input import InputBounds
from standby.adapters.kafka.size_lookahead import SizeLookahead
from standby.adapters.spark.bounded import BoundedRead, Piece, pieces_of
from standby.adapters.spark.query import BatchGate, OnEnded, Receive, Sink, SparkQuery, begin
from standby.adapters.spark.session import (
    FAILURES,
    Spark,
    is_user_error,
    is_worker_lost,
    operators,
    types,
    unreadable,
)
from standby.config import JobConfig, kafka_settings
from standby.errors import (
    BadConfiguration,
    BrokenInvariant,
    CorruptState,
    StandfastError,
    Transient,
    Unavailable,
)
from standby.feed.checkpoints import new_checkpoint, sweep_checkpoints
from standby.feed.functions import is_interrupt, transform_of
from standby.feed.inputs import by_partition
from standby.feed.reading import QueryBuffer
from standby.feed.rules.plan import check_plan
from standby.feed.rules.settings import column_options, session_settings, source_options
from standby.feed.rules.sizing import BatchSize
from standby.feed.warmup import WarmUp
from standby.ports import Deliver, InputAway, UnreadableRecord
from standby.shared.clock import REAL
from standby.shared.errortext import first_line, summary_of
from standby.shared.model import InputPartition, Offsets, TaskId
from standby.shared.wire import JobDefinition

_LOG: Final = logging.getLogger(__name__)

#: Spark's type names of the reserved columns, which must not change.
_RESERVED: Final = {"_task": "int", "_offset": "bigint"}

#: The same with several inputs, which are merged by timestamp.
_RESERVED_OF_SEVERAL: Final = {**_RESERVED, "_topic": "string", "timestamp": "timestamp"}


class PythonWorkerLost(Exception):
    """The user's function has ended the Spark process that ran it, by a crash in a library, or for lack of memory."""


class SparkFeed:
    """A `standby.ports.Feed` on a streaming query in this process's Spark session."""

    def __init__(self, config: JobConfig, job: JobDefinition, classpath: Sequence[Path], code: Path) -> None:
        self._config = config
        self._inputs = config.inputs
        self._classpath = tuple(path.resolve() for path in classpath)
        self._session_settings = settings_of(config, code)
        self._options = source_options(config, job.group, _text_of)
        # A static read does not support this option.
        self._range_options = {
            name: value for name, value in self._options.items() if name != "maxOffsetsPerTrigger"
        }
        self._transform = transform_of(config)
        self._is_checked = False
        self._size = BatchSize(config.batch_max_records, config.batch_max_bytes)
        self._group = job.group
        self._ahead = SizeLookahead(kafka_settings(config), job.group, has_headers=config.input_headers)
        self._bounds: InputBounds | None = None
        self._spark: Spark | None = None
        self._query: SparkQuery | BoundedRead | None = None
        #: The last reading that was started.
        self._running = self._reading({})
        self._running.end(None)
        #: The reading that was started ahead, and is held at its gate.
        self._prepared: QueryBuffer | None = None
        #: Whether no query was started ahead, because there is no input.
        self._has_no_input = False
        self._warm_up = WarmUp(
            self, ((topic, number) for number in range(job.tasks) for topic in config.inputs)
        )
        sweep_checkpoints()

    def warm(self) -> None:
        """Load and compile what a start needs; see `standby.ports.Feed.warm`.

        The first call starts the JVM; `cancel_warm` does not interrupt that, because a start would need it too.
        Raises `Transient` when the JVM or the input is unavailable, `BadConfiguration` for a transform or a setting
        that Spark refuses.
        """
        is_idle = self._running.has_ended and (self._prepared is None or self._prepared.has_ended)
        if is_idle and self._config.standby_query != "cold":
            self._warm_up.run()

    def cancel_warm(self) -> None:
        """Interrupt a running `warm`. Thread-safe."""
        self._warm_up.cancel()

    @property
    def is_warm(self) -> bool:
        """Whether the JVM is alive and a query has run in it."""
        return self._warm_up.is_done and self._spark is not None and self._spark.process.is_alive

    def prepare(self, positions: Mapping[TaskId, Offsets], *, is_near: bool = True) -> bool:
        """Start the query ahead; see `standby.ports.Feed.prepare`. Its first batch waits for `start`.

        The query starts a little below ``positions`` if there are records, so that a batch arrives at the gate even
        without new input. Then everything that a batch needs is loaded and connected, and the query does not poll.
        Without any records, the query is started by `start` only.
        """
        if not self._running.has_ended:
            raise BrokenInvariant("the feed was prepared while it runs")
        if self._prepared is not None and self._is_of_use(self._prepared, positions):
            self._prepared.pass_below(positions, is_near=is_near)
            return False
        has_failed = self._prepared is not None and self._prepared.failure is not None
        self.stop()
        bounds = self.bounds().check(by_partition(positions, self._inputs))
        # After a failure, start exactly at the positions: the former active may have skipped the input that failed.
        begins = dict(positions) if has_failed else self._a_little_below(positions, bounds)
        self._has_no_input = all(
            bounds[each][1] <= begin for each, begin in by_partition(begins, self._inputs).items()
        )
        if self._has_no_input:
            # The query would poll for input all the time, and there is nothing to prepare.
            return False
        reading = self._reading(begins)
        # The known record size may be outdated.
        starts = by_partition(begins, self._inputs)
        self._ahead.look(starts, self._size.held)
        self._size.note_ahead(self._ahead.largest())
        self._query = self._begin_held(reading, self._size.held)
        reading.pass_below(positions, is_near=is_near)
        self._prepared = reading
        return True

    def _a_little_below(
        self, positions: Mapping[TaskId, Offsets], bounds: Mapping[InputPartition, tuple[int, int]]
    ) -> dict[TaskId, Offsets]:
        # Half of the distance at which a prepared query is no longer usable.
        most = min(_AHEAD_RECORDS, self._config.batch_max_records // 2)
        share = most // (len(positions) * len(self._inputs)) or 1
        return {
            task: Offsets(
                tuple(
                    max(bounds[topic, task.partition][0], offset - share)
                    for topic, offset in zip(self._inputs, offsets.each, strict=True)
                )
            )
            for task, offsets in positions.items()
        }

    @property
    def is_prepared(self) -> bool:
        """Whether a query is waiting with a batch, or there was no input for one."""
        reading = self._prepared
        if reading is None:
            return self._has_no_input
        return reading.has_arrived and not reading.has_ended

    @property
    def start_seconds(self) -> float | None:
        """Estimated time of a start; see `standby.ports.Feed.start_seconds`."""
        reading = self._prepared
        if reading is not None and reading.has_arrived and not reading.has_ended:
            return reading.step_seconds
        return self._warm_up.start_seconds if self.is_warm else None

    def start(
        self,
        positions: Mapping[TaskId, Offsets],
        deliver: Deliver,
        until: Mapping[TaskId, Offsets] | None = None,
    ) -> None:
        """Begin to read; see `standby.ports.Feed.start`.

        With ``until`` the transform gets static DataFrames with the same columns. Raises `BadConfiguration` for a
        transform or a setting that Spark refuses.
        """
        if not self._running.has_ended:
            raise BrokenInvariant("the feed was started while it runs")
        starts = by_partition(positions, self._inputs)
        bounds = self.bounds().check(starts)
        reading, self._prepared = self._prepared, None
        if (
            reading is not None
            and until is None
            and self._is_of_use(reading, positions)
            and self._is_there(reading, bounds)
        ):
            _LOG.info("using a query that was started ahead, %s", reading.describe())
            reading.open(positions, deliver)
            if isinstance(self._query, SparkQuery):
                self._query.limit()
        else:
            if reading is not None:
                _LOG.info("a query that was started ahead is not usable, %s", reading.describe())
                reading.drop()
            self.stop()  # clean up after a query that ended by itself
            reading = self._reading(positions)
            reading.open(positions, deliver)
            if until is None:
                self._query = self._begin_held(reading, self._size.records)
            else:
                ends = by_partition(until, self._inputs)
                self.bounds().check(ends)
                self._query = self._begin_bounded(starts, ends, reading.receive, reading.end)
        self._running = reading

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; see `standby.ports.Feed.wait`."""
        return self._running.wait(timeout_seconds)

    @property
    def failure(self) -> BaseException | None:
        """What ended the feed; see `standby.ports.Feed.failure`."""
        return self._running.failure

    def shrink(self) -> None:
        """Have the next batches be smaller; see `standby.ports.Feed.shrink`."""
        self._size.shrink()

    @property
    def may_go_deaf(self) -> bool:
        """False: Spark's consumer has a time-out per poll, after which the query ends."""
        return False

    def stop(self) -> None:
        """End the feed; see `standby.ports.Feed.stop`."""
        self._has_no_input = False
        if self._prepared is not None:
            self._prepared.drop()
            self._prepared = None
        if self._query is not None:
            self._query.stop()
            self._query = None

    def close(self) -> None:
        """Stop; the session and the JVM end with the last feed of the process."""
        self.cancel_warm()
        self.stop()
        self._ahead.close()
        if self._spark is not None:
            self._spark.release()
            self._spark = None
        self._bounds = None

    @property
    def child_pids(self) -> tuple[int, ...]:
        """The JVM, once it has started."""
        return () if self._spark is None else (self._spark.process.pid,)

    def bounds(self) -> InputBounds:
        """Return the access to the bounds of the input."""
        if self._bounds is None:
            self._bounds = InputBounds(kafka_settings(self._config), self._group)
        return self._bounds

    def begin(
        self,
        positions: Mapping[InputPartition, int],
        batch_max_records: int,
        receive: Receive,
        ended: OnEnded,
        size: BatchSize | None = None,
        gate: BatchGate | None = None,
    ) -> SparkQuery:
        """Return a running query of the job over the partitions in ``positions``, or over synthetic rows.

        Its first batch has at most ``batch_max_records``, or fewer if memory is limited. ``receive``, ``ended``,
        ``size`` and ``gate`` are as in `standby.adapters.spark.query.Sink`. Raises like `start`.
        """
        batch_max_records = min(batch_max_records, self._size.held)
        spark = self._acquired()
        with spark.asking("a query was begun", "the query", _BEGIN_SECONDS):
            if positions:
                options = {**self._options, "maxOffsetsPerTrigger": str(batch_max_records)}
                rows = spark.kafka_rows(options, self._inputs, positions)
            else:
                rows = spark.synthetic_rows(self._options, self._inputs, batch_max_records)
            frame = apply_transform(self._transform, rows, self._config, check=not self._is_checked)
            self._is_checked = True
            ahead = None if size is None else self._ahead
            return begin(spark, frame, new_checkpoint(), Sink(receive, ended, size, ahead, gate))

    def _reading(self, positions: Mapping[TaskId, Offsets]) -> QueryBuffer:
        return QueryBuffer(positions, self._inputs, self._config.transform, self._judged)

    def _begin_held(self, reading: QueryBuffer, records: int) -> SparkQuery:
        starts = by_partition(reading.positions, self._inputs)
        query = self.begin(starts, records, reading.receive, reading.end, self._size, reading)
        self._warm_up.count_start()
        return query

    def _is_of_use(self, reading: QueryBuffer, positions: Mapping[TaskId, Offsets]) -> bool:
        """Return whether ``reading`` reaches ``positions`` sooner than a new query would."""
        below = reading.records_below(positions)
        return below is not None and below <= self._config.batch_max_records

    def _is_there(self, reading: QueryBuffer, bounds: Mapping[InputPartition, tuple[int, int]]) -> bool:
        """Return whether the input that ``reading`` has yet to read still exists."""
        begins = by_partition(reading.positions, self._inputs)
        return all(bounds[each][0] <= begin for each, begin in begins.items())

    def _begin_bounded(
        self,
        positions: Mapping[InputPartition, int],
        until: Mapping[InputPartition, int],
        receive: Receive,
        ended: OnEnded,
    ) -> BoundedRead:
        spark = self._acquired()

        def frame_of(piece: Piece) -> Any:
            # The plan was checked when the stream was started; some operators are refused in streams only.
            rows = spark.kafka_range(self._range_options, self._inputs, *piece)
            return apply_transform(self._transform, rows, self._config, check=False)

        pieces = pieces_of(positions, until, lambda: self._size.records)
        return BoundedRead(spark, frame_of, pieces, Sink(receive, ended), self._size)

    def _acquired(self) -> Spark:
        if self._spark is None:
            self._spark = Spark.acquire(self._session_settings, self._classpath)
        return self._spark

    def _judged(self, failure: BaseException, starts: Mapping[TaskId, Offsets]) -> BaseException:
        """Return the error to report for ``failure``, with which the query ended at ``starts``.

        Errors of ``deliver`` or of the user's function are returned unchanged. Spark's other messages do not show
        reliably whether a position was outside of its partition (the error path can even end in a
        StackOverflowError), so the bounds of the partition are checked.
        """
        if is_worker_lost(failure):
            lost = PythonWorkerLost("a Python worker of Spark ended while it ran the job's transform")
            lost.__cause__ = failure
            return lost
        about = unreadable(failure)
        if about is not None:
            undecoded = UnreadableRecord(about)
            undecoded.__cause__ = failure
            return undecoded
        if not isinstance(failure, FAILURES) or is_user_error(failure):
            return failure
        if self._spark is None or self._spark.has_died(failure):
            told: StandfastError = Transient("Spark's JVM has died")
        else:
            told = Transient(f"the streaming query failed: {first_line(failure)}")
            try:
                self.bounds().check(by_partition(starts, self._inputs))
            except (CorruptState, InputAway) as error:
                told = error
            except Transient:
                _LOG.debug("the bounds of the input are not known either", exc_info=True)
        told.__cause__ = failure
        return told


#: A query that is started ahead reads this many records that are committed already, over all partitions.
_AHEAD_RECORDS: Final = 500

#: Time-out for Spark to accept a query, sufficient for the first one in a cold JVM on a busy machine.
_BEGIN_SECONDS: Final = 120.0


def settings_of(config: JobConfig, code: Path) -> dict[str, str]:
    """Return the Spark settings of a process that has the job's modules in ``code``, if it exists."""
    if not code.is_dir():
        return session_settings(config, scratch=tempfile.gettempdir())
    # The parent of the code directory is the container's working directory, which YARN always deletes in the end.
    return session_settings(config, str(code.resolve()), str(code.resolve().parent))


def apply_transform(transform: Any, rows: Any, config: JobConfig, *, check: bool) -> Any:
    """Return the result of the user's ``transform``, if any, for the streaming DataFrame ``rows``.

    Raises `BadConfiguration` when it raises, and if ``check`` also when a feed cannot run its result: it must keep
    the reserved columns, and process each row by itself.
    """
    if transform is None:
        return rows
    name = config.transform
    try:
        frame = transform(rows)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise BadConfiguration(f"task.transform: {name} raised {summary_of(error)}") from error
    if check:
        _check(rows, frame, name, _RESERVED if len(config.inputs) == 1 else _RESERVED_OF_SEVERAL)
    return frame


def _check(rows: Any, frame: Any, name: str, reserved_types: Mapping[str, str]) -> None:
    if not isinstance(frame, type(rows)):
        raise BadConfiguration(f"task.transform: {name} returned a {type(frame).__name__}, not a DataFrame")
    check_plan(operators(frame), name)
    columns = types(frame)
    for reserved, expected in reserved_types.items():
        found = [kind for column, kind in columns if column == reserved]
        if not found:
            raise BadConfiguration(
                f"task.transform: {name} returns no column {reserved!r}; it must be kept as it is, the result "
                f"has {', '.join(column for column, _ in columns)}"
            )
        if found != [expected]:
            raise BadConfiguration(
                f"task.transform: {name} returns {reserved!r} as {' and '.join(found)}; it must stay {expected}"
            )


#: How many lines of the JVM's output are shown when it does not start.
_SHOWN_LINES: Final = 10


def check_spark_transform(config: JobConfig, code: Path, within_seconds: float = math.inf) -> None:
    """Raise `BadConfiguration` unless a Spark feed could run the job's transform; needs no Kafka.

    Starts a JVM and ends it again, unless this process has one, all within ``within_seconds``. The JVM's output is
    shown only when it does not start. Raises `Transient` when the machine cannot run it now.
    """
    transform = transform_of(config)
    end = REAL.monotonic() + within_seconds
    with tempfile.TemporaryDirectory(prefix="standfast-") as scratch:
        log = Path(scratch) / "spark.log"
        try:
            spark = Spark.acquire(settings_of(config, code), (), log, within_seconds)
        except (BadConfiguration, Unavailable) as error:
            raise type(error)(f"{error}{_printed(log)}") from error
        try:
            seconds = min(_BEGIN_SECONDS, max(0.0, end - REAL.monotonic()))
            with spark.asking("task.transform was planned", "the query", seconds):
                rows = spark.synthetic_rows(column_options(config), config.inputs, 1)
                apply_transform(transform, rows, config, check=True)
        finally:
            spark.release()


def _printed(log: Path) -> str:
    """Return the last lines of a JVM's output, to be appended to an error message."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines[-_SHOWN_LINES:])


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise BadConfiguration(f"kafka: {path} cannot be read as a PEM file: {error}") from error
