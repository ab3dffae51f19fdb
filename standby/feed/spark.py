"""The Spark feed: the job's transform is a function DataFrame → DataFrame, in a local Spark session."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from standby.adapters.spark.direct import DirectPlan, direct_source, is_direct
from standby.adapters.spark.exchange import JobPlan, RowExchange, is_unread, sweep
from standby.adapters.spark.passing import Passing, passing_of
from standby.adapters.spark.plan import check_plan
from standby.adapters.spark.rehearsals import Note, RehearsalNotes
from standby.adapters.spark.session import (
    CALL_SECONDS,
    FAILURES,
    Spark,
    check_streaming,
    is_fatal,
    is_user_error,
    is_worker_lost,
    may_run_again,
    operators,
    too_much,
    types,
    unreturnable,
)
from standby.code.archives import import_paths
from standby.config import JobConfig
from standby.errors import BadConfiguration, StandfastError, Transient, Unavailable
from standby.feed.batches import rows_of
from standby.feed.borrowing import BorrowingTransform, decoded, encoded
from standby.feed.functions import is_interrupt, transform_of
from standby.feed.input_feed import InputFeed
from standby.feed.rules.settings import session_settings
from standby.feed.turns import Turns
from standby.feed.warmup import WarmUp
from standby.ports import FindLender, NotLent, find_nobody
from standby.shared.clock import REAL, Clock
from standby.shared.errortext import first_line, summary_of
from standby.shared.model import TaskId
from standby.shared.wire import JobDefinition

_LOG: Final = logging.getLogger(__name__)

#: Spark's type names of the reserved columns, which must not change.
_RESERVED: Final = {"_task": "int", "_offset": "bigint"}

#: The same with several inputs, which are merged by timestamp.
_RESERVED_OF_SEVERAL: Final = {**_RESERVED, "_topic": "string", "timestamp": "timestamp"}

#: A batch with at least this many rows is divided among all of the session's task slots.
_DIVIDED_ROWS: Final = 2_000

#: Time-out for Spark to make a plan, sufficient for the first one in a cold JVM on a busy machine.
_PLAN_SECONDS: Final = 120.0

#: The message after the JVM has ended for whatever reason; its own output says more.
_DIED: Final = "Spark's JVM has died"

#: Number of batches after which what Spark keeps of their sockets is dropped.
_SOCKETS: Final = 1_000

#: Number of batches after which the files of broadcast variables that are no longer used are deleted.
_BROADCASTS: Final = 100

#: A part of a batch that goes on for so long after it was interrupted computes for ever.
_ENDLESS_SECONDS: Final = 60.0

#: How long recent records are not read again after a process has ended over all of them.
_PASSED_SECONDS: Final = 60.0

_groups: Final = itertools.count()

#: ``group``: that of the thread's Spark jobs.
_JOINED: Final = threading.local()

#: Held while a transform is planned: those of one session may use the same names of temporary views.
_PLANNING: Final = threading.Lock()


_Plan = DirectPlan | JobPlan


class PythonWorkerLost(Exception):
    """The user's function has ended the Spark process that ran it, by a crash in a library, or for lack of memory."""


class SparkFeed(InputFeed):
    """A `standby.ports.Feed` whose transform runs in this process's Spark session."""

    def __init__(
        self,
        config: JobConfig,
        job: JobDefinition,
        code: Path,
        find_lender: FindLender = find_nobody,
        notes: RehearsalNotes | None = None,
    ) -> None:
        """Raises like `transform_of`."""
        self._own = SparkTransform(config, code, notes=notes)
        self._borrowing = BorrowingTransform(self._own, find_lender, starts_early=config.standby_warm)
        super().__init__(config, job, self._borrowing)

    def expect(self, tasks: Collection[TaskId]) -> None:
        """Look for a lender, if one will be needed; see `standby.ports.Feed.expect`."""
        self._borrowing.expect(tasks)

    def cancel_start(self) -> None:
        """Call off a wait for the session; see `standby.ports.Feed.cancel_start`."""
        self._borrowing.cancel_prepare()

    @property
    def has_run_in_child(self) -> bool:
        """See `standby.ports.Feed.has_run_in_child`; False while every batch was borrowed."""
        return self._borrowing.has_run_here

    @property
    def is_lending(self) -> bool:
        """See `standby.ports.Feed.is_lending`."""
        return self._own.is_warm

    def lend(self, rows: bytes) -> bytes:
        """Run the transform over rows of another container; see `standby.ports.Feed.lend`."""
        return encoded(self._own.lend(decoded(rows)))

    def _prepare(self, tasks: Collection[TaskId], *, is_range: bool) -> None:
        """Find a lender, or wait for the session. Raises like `SparkTransform.open`, too.

        What Spark refuses would be taken for a record that the transform fails on, if `run` raised it.
        """
        # A range is read when one of its records is suspected.
        self._borrowing.prepare(tuple(tasks), self._recent, may_borrow=not is_range)


class SparkTransform:
    """A `standby.feed.input_feed.RowTransform` in Spark, and a `standby.feed.borrowing.OwnTransform`."""

    def __init__(
        self, config: JobConfig, code: Path, clock: Clock = REAL, notes: RehearsalNotes | None = None
    ) -> None:
        self._config = config
        self._settings = settings_of(config, code)
        self._function = transform_of(config)
        self._schema = rows_of(config.inputs, has_headers=config.input_headers)
        self._spark: Spark | None = None
        self._exchange = RowExchange()
        self._is_closed = False
        #: Number of parts of a batch → the transform's plan; empty if that must be made for each batch.
        self._plans: dict[int, _Plan] = {}
        self._is_direct = True
        """Whether its plans are direct, until one cannot be."""
        self._clock = clock
        #: Direct plans that are no longer used, of which a part may still run, and since when.
        self._left: list[tuple[DirectPlan, float]] = []
        #: What the transform passes on, if that goes around Spark; it does so only with plans that are kept.
        self._passing: Passing | None = None
        self._is_checked = False
        #: The transformed rows of an empty batch.
        self._empty: pa.Table | None = None
        self._group = f"standfast-{next(_groups)}"
        #: A batch that is run has the exchange and the plans to itself.
        self._turns = Turns(self._group, self._cancel, clock)
        self._runs = itertools.count()
        #: That of rehearsals only: what ends one that hangs ends no batch.
        self._rehearsal_group = f"{self._group}-rehearsal"
        self._warm_up = WarmUp(self._rehearse, partial(self._cancel, self._rehearsal_group), clock)
        self._has_divided = False
        self._notes = notes or RehearsalNotes()
        self._note: Note | None = None
        #: When recent rows are read again, after none of them could be rehearsed.
        self._read_again = 0.0
        sweep()

    def warm(self, recent: Callable[[], pa.Table | None]) -> None:
        """Start the JVM, if it is not running, and rehearse; see `RowTransform.warm`.

        `cancel_warm` does not interrupt the start of the JVM, because a batch would need it too.
        """
        self.open()
        try:
            self._warm_up.run(partial(self._survivable, recent))
        finally:
            note, self._note = self._note, None
            if note is not None and self._is_alive:
                note.take_back()
            elif note is not None:
                note.confirm()

    def cancel_warm(self) -> None:
        """Interrupt a running `warm`. Thread-safe."""
        self._warm_up.cancel()

    @property
    def is_warm(self) -> bool:
        """Whether the JVM is alive and a batch has run in it."""
        return self._warm_up.is_done and self._is_alive

    @property
    def _is_alive(self) -> bool:
        return self._spark is not None and self._spark.process.is_alive

    @property
    def run_seconds(self) -> float | None:
        """Time of the last rehearsal; None before it had real rows."""
        return self._warm_up.seconds if self.is_warm else None

    def open(self) -> None:
        """Start the JVM, if it is not running, and plan the transform, if that was not done before.

        Raises `BadConfiguration` for a transform or a setting that Spark refuses, `Unavailable` without a Java, and
        `Transient` when the machine cannot run the JVM now.
        """
        if self._spark is None:
            self._spark = Spark.acquire(self._settings)
        if not self._spark.process.is_alive:
            raise Transient(_DIED)
        if not self._is_checked:
            with self._planning(self._spark):
                rows = self._spark.synthetic_rows(self._config.inputs, has_headers=self._config.input_headers)
                result = apply_transform(self._function, rows, self._config, check=True)
                self._passing = passing_of(result, rows)
                self._plan(self._spark, 1)
            self._is_checked = True

    def run(self, rows: pa.Table) -> pa.Table:
        """Return the transformed rows; see `RowTransform.run`. Raises `PythonWorkerLost` as well, and like `open`."""
        if not rows.num_rows and self._empty is not None:
            return self._empty
        with self._turns.own():
            result = self._run_alone(rows, self._group)
        self._empty = result.schema.empty_table()
        if rows.num_rows:
            self._warm_up.count_batch()
        return result

    def lend(self, rows: pa.Table) -> pa.Table:
        """Return the transformed rows of another container. Thread-safe.

        It takes a limited time, and gives way to a batch of this container that waits for long. Raises `NotLent` when
        the rows are not taken, and like `run`.
        """
        if rows.schema != self._schema:
            raise NotLent("the rows have other columns than those of the job here")
        with self._turns.lent() as batch:
            if self._is_closed or not self.is_warm:
                raise NotLent("Spark is not warm here")
            try:
                return self._run_alone(rows, batch.group)
            except Transient as error:
                # The rows may be at fault if Spark has died meanwhile.
                if batch.has_given_way and self.is_warm:
                    raise NotLent("it has given way to a batch of this container") from error
                raise

    def cancel(self) -> None:
        """Cancel a running `run` or `warm`. Thread-safe."""
        for each in (self._group, self._rehearsal_group):
            self._cancel(each)

    def close(self) -> None:
        """Free the rows; the session and the JVM end with the last transform of the process."""
        self._is_closed = True
        with self._turns.own():
            self._exchange.clear()
            self._plans.clear()
            self._left.clear()
            if self._spark is not None:
                self._spark.release()
                self._spark = None

    @property
    def child_pids(self) -> tuple[int, ...]:
        """The JVM, once it has started."""
        return () if self._spark is None else (self._spark.process.pid,)

    def _survivable(self, recent: Callable[[], pa.Table | None]) -> pa.Table | None:
        """Return the recent rows that may be rehearsed; until the end of these rehearsals they are noted."""
        now = self._clock.monotonic()
        rows = recent() if now >= self._read_again else None
        if rows is None:
            return None
        found = self._notes.survivable(rows)
        if found is None:
            _LOG.warning("no recent records are rehearsed: a process of this host ended over them")
            self._read_again = now + _PASSED_SECONDS
        else:
            self._note = self._notes.leave(found)
        return found

    def _rehearse(self, rows: pa.Table | None) -> None:
        some = self._synthetic() if rows is None else rows
        try:
            self._rehearse_once(some)
            if not self._has_divided:
                # Otherwise the first large batch would wait for a plan of its own.
                self._rehearse_once(some, is_divided=True)
                self._has_divided = True
        except Exception as error:
            if not self._is_alive:
                raise
            # A start on real input reports it.
            _LOG.info("a rehearsal ended early: %s", summary_of(error))

    def _synthetic(self) -> pa.Table:
        values: dict[str, Any] = {"value": b"", "timestamp": 0, "_task": 0, "_offset": 0}
        values |= {"_topic": self._config.inputs[0]}
        return pa.table(
            {field.name: pa.array([values.get(field.name)], field.type) for field in self._schema},
            schema=self._schema,
        )

    def _rehearse_once(self, rows: pa.Table, *, is_divided: bool = False) -> None:
        with self._turns.own(is_rehearsal=True):
            self._run_alone(rows, self._rehearsal_group, is_divided=is_divided)

    def _cancel(self, group: str) -> None:
        spark = self._spark
        if spark is not None and spark.process.is_alive:
            try:
                with spark.deadline(CALL_SECONDS):
                    spark.session.sparkContext.cancelJobGroup(group)
                    for plan in tuple(self._plans.values()):
                        if isinstance(plan, DirectPlan):
                            plan.cancel(group)
            except FAILURES:
                _LOG.debug("the running batch cannot be cancelled", exc_info=True)

    def _run_alone(self, rows: pa.Table, group: str, *, is_divided: bool = False) -> pa.Table:
        self.open()
        spark = self._spark
        assert spark is not None
        try:
            is_divided = is_divided or rows.num_rows >= _DIVIDED_ROWS
            slots = spark.slots if is_divided else 1
            plan = self._plans.get(slots)
            if not isinstance(plan, DirectPlan):
                self._join_group(spark, group)
                plan = plan or self._planned(spark, slots)
                number = next(self._runs)
                if number % _SOCKETS == 0:
                    spark.forget_sockets()
                if number % _BROADCASTS == 0:
                    spark.forget_broadcasts()
            passing = self._passing
            sent = rows if passing is None else passing.sent(rows)
            self._end_endless(spark)
            try:
                result = plan.run(sent, group)
            finally:
                if isinstance(plan, DirectPlan) and not plan.is_usable:
                    # The next batch gets another one.
                    del self._plans[slots]
                    self._left.append((plan, self._clock.monotonic()))
            return result if passing is None else passing.restored(result, rows)
        except (StandfastError, MemoryError):
            # The result of fewer rows may fit.
            raise
        except Exception as error:
            judged = self._judged(spark, error)
            if judged is error:
                raise
            raise judged from error

    def _end_endless(self, spark: Spark) -> None:
        """End the JVM, and raise `Transient`, when parts that do not end have taken all its slots."""
        self._left = [(plan, since) for plan, since in self._left if plan.stuck]
        before = self._clock.monotonic() - _ENDLESS_SECONDS
        endless = sum(plan.stuck for plan, since in self._left if since <= before)
        if endless and endless >= spark.slots:
            _LOG.error("%d batches do not end, and Spark's JVM is killed", endless)
            spark.process.kill()
            raise Transient(_DIED)

    def _join_group(self, spark: Spark, group: str) -> None:
        """Make `_cancel` of the group apply to the Spark jobs of this thread."""
        if getattr(_JOINED, "group", None) != group:
            spark.session.sparkContext.setJobGroup(group, "the transform of a batch", interruptOnCancel=True)
            _JOINED.group = group

    def _planned(self, spark: Spark, slots: int) -> _Plan:
        """Return the plan of a transform that was planned before. Raises `Transient`."""
        try:
            with self._planning(spark):
                return self._plan(spark, slots)
        except BadConfiguration as error:
            # For example because a static table cannot be read now. No row is read while it is planned.
            raise Transient(str(error)) from error

    @contextlib.contextmanager
    def _planning(self, spark: Spark) -> Iterator[None]:
        with _PLANNING, spark.asking("the transform was planned", "task.transform", _PLAN_SECONDS):
            yield

    def _plan(self, spark: Spark, slots: int) -> _Plan:
        """Return the plan for batches in ``slots`` parts, and keep it if it can be run for the next ones as well."""
        plan: _Plan
        if self._is_direct:
            frame, is_kept = self._transformed(
                lambda rows: direct_source(spark.session, rows, columns_of(rows))
            )
            if is_kept and is_direct(frame):
                plan = self._plans[slots] = DirectPlan(frame, slots)
                return plan
            self._is_direct = False
        frame, is_kept = self._transformed(
            lambda rows: self._exchange.frame(spark.session, columns_of(rows), slots)
        )
        plan = JobPlan(frame, self._exchange, slots)
        if is_kept:
            self._plans[slots] = plan
        return plan

    def _transformed(self, source: Callable[[pa.Schema], Any]) -> tuple[Any, bool]:
        """Return the transform's result for the frame that is the ``source`` of rows of a schema.

        The second value is whether its plan may be run repeatedly.
        """
        passing = self._passing
        if passing is not None:
            sent = passing.sent(self._schema.empty_table()).schema
            columns = [(name, _SPARK_TYPES[name]) for name in self._schema.names]
            rows = passing.source(source(sent), columns)
            result = apply_transform(self._function, rows, self._config, check=False)
            if passing_of(result, rows) == passing and may_run_again(frame := passing.narrowed(result)):
                return frame, True
            self._passing = None
            # Those that were planned before expect other columns than they would get from now on.
            self._plans.clear()
        frame = apply_transform(self._function, source(self._schema), self._config, check=False)
        return frame, may_run_again(frame)

    def _judged(self, spark: Spark, failure: Exception) -> Exception:
        """Return the error to report for ``failure``; errors of the user's function are returned unchanged."""
        if spark.has_died(failure):
            return Transient(_DIED)
        if is_fatal(failure):
            # Other threads of the JVM may have failed as well. A task of Spark that has no memory ends the JVM, too.
            _LOG.error("Spark's JVM is killed after %s", summary_of(failure))
            spark.process.kill()
            return Transient(f"{_DIED}: it had no memory left, or could not load a class")
        if is_unread(failure):
            return Transient("a Python worker of Spark cannot read the rows of the batch")
        if (said := too_much(failure)) is not None:
            return MemoryError(f"a batch is too large for Spark: {said}")
        if is_worker_lost(failure):
            return PythonWorkerLost("a Python worker of Spark ended while it ran the job's transform")
        if is_user_error(failure):
            return failure
        return Transient(f"Spark failed: {first_line(failure)}")


def columns_of(schema: pa.Schema) -> str:
    """Return Spark's declaration of the columns."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.name]}" for field in schema)


_SPARK_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    # Plain `timestamp` would depend on spark.sql.timestampType.
    "timestamp": "timestamp_ltz",
    "_task": "int",
    "_offset": "bigint",
    "_topic": "string",
    "headers": "array<struct<key: string, value: binary>>",
}


def settings_of(config: JobConfig, code: Path) -> dict[str, str]:
    """Return the Spark settings of a process that has the job's modules in ``code``, if it exists."""
    if not code.is_dir():
        return session_settings(config, scratch=tempfile.gettempdir())
    # The parent of the code directory is the container's working directory, which YARN always deletes in the end.
    code = code.resolve()
    return session_settings(config, os.pathsep.join(import_paths(code)), str(code.parent))


def apply_transform(transform: Any, rows: Any, config: JobConfig, *, check: bool) -> Any:
    """Return the result of the user's ``transform``, if any, for the DataFrame ``rows``.

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
    if not isinstance(frame, type(rows)):
        raise BadConfiguration(f"task.transform: {name} returned a {type(frame).__name__}, not a DataFrame")
    if check:
        _check(frame, name, _RESERVED if len(config.inputs) == 1 else _RESERVED_OF_SEVERAL)
    return frame


def _check(frame: Any, name: str, reserved_types: Mapping[str, str]) -> None:
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
    for column, why in unreturnable(frame):
        raise BadConfiguration(
            f"task.transform: {name} returns the column {column!r}, which cannot be given to the step: {why}"
        )
    check_streaming(frame)


#: How many lines of the JVM's output are shown when it does not start.
_SHOWN_LINES: Final = 10


def check_spark_transform(config: JobConfig, code: Path, within_seconds: float = math.inf) -> None:
    """Raise `BadConfiguration` unless a Spark feed could run the job's transform; needs no Kafka.

    Starts a JVM and ends it again, unless this process has one, all within ``within_seconds``. The JVM's output is
    shown only when it does not start. Raises `Transient` when the machine cannot run it now.
    """
    end = REAL.monotonic() + within_seconds
    transform = transform_of(config, within_seconds)
    with tempfile.TemporaryDirectory(prefix="standfast-") as scratch:
        log = Path(scratch) / "spark.log"
        try:
            spark = Spark.acquire(settings_of(config, code), log, within_seconds)
        except (BadConfiguration, Unavailable) as error:
            raise type(error)(f"{error}{_printed(log)}") from error
        try:
            seconds = min(_PLAN_SECONDS, max(0.0, end - REAL.monotonic()))
            with _PLANNING, spark.asking("task.transform was planned", "task.transform", seconds):
                rows = spark.synthetic_rows(config.inputs, has_headers=config.input_headers)
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
