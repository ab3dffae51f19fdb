"""Spark in this process: one JVM and one session; `standby.adapters.spark.query` has its queries.

The JVM may die or hang at any call. When it dies, its sockets close and the call raises. When it does not answer in
time, it is killed (`Spark.deadline`). Both are reported as `Transient`; the container ends because the JVM's pid is
gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PythonException
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from standby.adapters.spark.jvm import SparkProcess, silence
from standby.errors import BadConfiguration, StandfastError, Transient
from standby.feed.rules.plan import Operator
from standby.feed.rules.sessionless import STARTED
from standby.feed.rules.settings import HEADERS_OPTION
from standby.shared.errortext import first_line
from standby.shared.model import InputPartition

_LOG: Final = logging.getLogger(__name__)

#: Errors of a call into the JVM, whether Spark refuses it or the JVM is gone.
FAILURES: Final = (PySparkException, Py4JError, OSError)

#: The columns that every transform gets, from those of Spark's Kafka source.
_COLUMNS: Final = ("key", "value", "timestamp", "partition as _task", "offset as _offset")

#: Time-out of a call into the JVM that does not run the user's code.
CALL_SECONDS: Final = 60.0

#: The package of the exceptions of Spark's Kafka source.
_KAFKA_SOURCE: Final = "org.apache.spark.sql.kafka010."

#: Prefixes of the names of Java exceptions that no expression over rows raises.
_NOT_OF_THE_USER: Final = (
    "org.apache.kafka.",
    _KAFKA_SOURCE,
    "org.apache.spark.SparkInterruptedException",
    "java.io.",
    "java.lang.InterruptedException",
    # The Kafka source: no record arrived in time.
    "java.util.concurrent.TimeoutException",
    # The Kafka source's report of lost data can end in this error.
    "java.lang.StackOverflowError",
    "java.lang.OutOfMemoryError",
)

#: The error of the source's consumer for a record or batch that it cannot decode, and the prefixes of its message;
#: topic, partition and offset follow.
_CLIENTS_ERROR: Final = "org.apache.kafka.common.KafkaException"
_CLIENTS_RECORD: Final = ("Record for partition ", "Record batch for partition ")

_MOST_CAUSES: Final = 20

#: A dying JVM closes its connections before its end is visible.
_DEATH_SECONDS: Final = 2.0


class Spark:
    """The JVM and session of this process, shared by all feeds in it; see `acquire`."""

    _shared: ClassVar[Spark | None] = None
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        settings: Mapping[str, str],
        classpath: Sequence[Path],
        flags: Sequence[str] = (),
        log: Path | None = None,
        within_seconds: float = math.inf,
    ) -> None:
        """Start JVM and session, with additional ``flags`` for the JVM. Raises like `acquire`."""
        end = time.monotonic() + within_seconds
        if SparkContext._gateway is not None:  # noqa: SLF001
            raise BadConfiguration(STARTED)
        self._settings = dict(settings)
        self._classpath = frozenset(classpath)
        self._users = 1
        self.has_async_progress = True
        """Whether queries may track their progress asynchronously, which Spark may have refused."""
        self._discarded: list[Path] = []
        self._queries = 0
        # Spark's Python workers must use the same interpreter.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self.process = SparkProcess(settings, classpath, flags, log, within_seconds)
        self._late_seconds: float | None = None
        """The time-out after which the JVM was killed, if it was."""
        try:
            seconds = min(CALL_SECONDS, max(0.0, end - time.monotonic()))
            with self.asking("its session was started", "its settings", seconds):
                self.session = _session(self.process, settings)
        except StandfastError:
            self.process.kill()
            _forget()
            raise

    @classmethod
    def acquire(
        cls,
        settings: Mapping[str, str],
        classpath: Sequence[Path],
        log: Path | None = None,
        within_seconds: float = math.inf,
    ) -> Spark:
        """Return this process's Spark, started if it is not running; call `release` once for each `acquire`.

        The JVM's output goes to ``log``, by default to the output of this process. JVM and session have their usual
        time-outs, limited by ``within_seconds``.

        A process has one JVM and one session, so later callers must pass the same ``settings`` and no other jars.
        Raises `BadConfiguration` otherwise, and like `SparkProcess`; `Transient` when the JVM of an earlier caller
        has died.
        """
        with cls._guard:
            if cls._shared is None:
                cls._shared = cls(settings, classpath, log=log, within_seconds=within_seconds)
                return cls._shared
            cls._shared.join(settings, classpath)
            return cls._shared

    def join(self, settings: Mapping[str, str], classpath: Sequence[Path]) -> None:
        """Add a user with ``settings`` and ``classpath``; called by `acquire`, and raises like it."""
        if not self.process.is_alive:
            raise Transient("Spark's JVM has died; this process cannot have a second one")
        different = {name for name, _ in self._settings.items() ^ dict(settings).items()} - {"spark.app.name"}
        if different:
            raise BadConfiguration(
                f"the jobs of one container need the same Spark settings; different are: {sorted(different)}"
            )
        if not self._classpath.issuperset(classpath):
            raise BadConfiguration("the jobs of one container need the same jars")
        self._users += 1

    def release(self) -> None:
        """Release it; the session and the JVM end with the last user."""
        with Spark._guard:
            self._users -= 1
            if self._users == 0:
                Spark._shared = None
                self.close()

    def close(self, exit_seconds: float = 10.0) -> None:
        """End the session and the JVM regardless of users; kill the JVM if its exit takes longer."""
        if self.process.is_alive:
            with self.deadline(CALL_SECONDS), contextlib.suppress(*FAILURES):
                self.session.stop()
        _forget()
        self.process.close(exit_seconds)
        self.remove_discarded()

    def count_query(self) -> None:
        """Count a query that is about to start."""
        with Spark._guard:
            self._queries += 1

    def forget_query(self, callback: Callable[[DataFrame, int], None]) -> None:
        """Release what py4j keeps of an ended query; ``callback`` was called with its batches.

        A container starts a query every half minute for months.
        """
        gateway: Any = self.session.sparkContext._gateway  # noqa: SLF001
        if gateway is None:
            return  # the session ended before the query's end was handled
        # Spark would release its reference at some time, but the connection for that may be gone by then.
        callbacks = gateway.gateway_property.pool
        for key, value in list(callbacks.dict.items()):
            if getattr(value, "func", None) == callback:
                del callbacks[key]
        with Spark._guard:
            self._queries -= 1
            if self._queries or not self.process.is_alive:
                return
            # The calling thread of the JVM leaves a connection on both sides, and a thread here that reads it. The
            # first round marks unused connections, and the second one closes them; it would also close the
            # connection of a running query.
            with self.deadline(CALL_SECONDS), contextlib.suppress(*FAILURES):
                server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)  # noqa: SLF001
                for _ in range(2):
                    server.getCallbackClient().periodicCleanup()

    def discard(self, checkpoint: Path) -> None:
        """Remove the checkpoint of an ended query, now and again later, because its last writes are late."""
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._discarded.append(checkpoint)

    def remove_discarded(self) -> None:
        """Remove again the checkpoints that were discarded before."""
        for checkpoint in self._discarded:
            shutil.rmtree(checkpoint, ignore_errors=True)
        # The newest may still be written to, by the threads of asynchronous progress tracking.
        self._discarded = self._discarded[-1:]

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Kill the JVM when the block takes longer, so that every call in it fails instead of hanging."""
        timer = threading.Timer(seconds, self._too_late, (seconds,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _too_late(self, seconds: float) -> None:
        self._late_seconds = seconds
        _LOG.error("Spark's JVM did not answer within %.0f s and is killed", seconds)
        self.process.kill()

    @contextlib.contextmanager
    def asking(self, doing: str, what: str, seconds: float) -> Iterator[None]:
        """Limit the time of a block of calls into the JVM, and translate its errors.

        ``doing`` and ``what`` are for messages.

        Raises `Transient` when the JVM has not answered in time, has died or is out of memory, `BadConfiguration`
        when Spark refuses ``what``.
        """
        try:
            with self.deadline(seconds):
                yield
        except (*FAILURES, BadConfiguration) as error:
            # An error of the user's function is reported as such, but it may be caused by the JVM's end.
            origin = error.__cause__ or error if isinstance(error, BadConfiguration) else error
            if self.has_died(origin):
                late = self._late_seconds
                told = silence(late, doing) if late is not None else self.process.obituary(doing)
                raise Transient(told) from error
            if isinstance(error, BadConfiguration):
                raise
            if _is_out_of_memory(error):
                raise Transient(f"Spark's JVM is out of memory while {doing}: {first_line(error)}") from error
            raise BadConfiguration(f"Spark refuses {what}: {first_line(error)}") from error

    def has_died(self, error: BaseException) -> bool:
        """Return whether the JVM is gone; ``error`` of a call may be the first sign of that."""
        is_connection = isinstance(error, FAILURES) and not isinstance(
            error, (PySparkException, Py4JJavaError)
        )
        return self.process.ends_within(_DEATH_SECONDS if is_connection else 0)

    def kafka_rows(
        self, options: Mapping[str, str], inputs: Sequence[str], positions: Mapping[InputPartition, int]
    ) -> DataFrame:
        """Return a streaming DataFrame of partitions of ``inputs`` from ``positions`` on, with our columns."""
        rows = (
            self.session.readStream.format("kafka")
            .options(**options)
            .option("assign", _assignment(positions))
            .option("startingOffsets", _offsets(positions))
            .load()
        )
        return self._gathered(rows, len(positions)).selectExpr(*_columns(inputs, options))

    def kafka_range(
        self,
        options: Mapping[str, str],
        inputs: Sequence[str],
        starts: Mapping[InputPartition, int],
        ends: Mapping[InputPartition, int],
    ) -> DataFrame:
        """Return a static DataFrame of partitions of ``inputs`` from ``starts`` to ``ends``, with our columns."""
        rows = (
            self.session.read.format("kafka")
            .options(**options)
            .option("assign", _assignment(starts))
            .option("startingOffsets", _offsets(starts))
            .option("endingOffsets", _offsets(ends))
            .load()
        )
        return self._gathered(rows, len(starts)).selectExpr(*_columns(inputs, options))

    def _gathered(self, rows: DataFrame, partitions: int) -> DataFrame:
        """Return ``rows`` in at most as many Spark tasks as run in parallel, each for several Kafka partitions.

        The source creates one task for each of its ``partitions``, whose start costs more than the rows of a small
        batch. A task reads its partitions sequentially, so the rows of each stay in order.
        """
        at_a_time = self.session.sparkContext.defaultParallelism
        return rows.coalesce(at_a_time) if partitions > at_a_time else rows

    def limit_batches(self, query: StreamingQuery, records: int) -> None:
        """Limit the next micro-batches of a running ``query`` over Kafka to ``records`` records.

        ``maxOffsetsPerTrigger`` is read once, when the query starts; this replaces the internal value. Raises one of
        `FAILURES`.
        """
        jvm: Any = self.session._jvm  # noqa: SLF001
        execution = query._jsq.streamingQuery()  # noqa: SLF001
        limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(records)
        # A plan has exactly one source, the input stream (`standby.feed.rules.plan`).
        sources = execution.uniqueSources()
        getattr(execution, "uniqueSources_$eq")(sources.updated(sources.keys().head(), limit))

    def synthetic_rows(
        self, options: Mapping[str, str], inputs: Sequence[str], rows_per_batch: int
    ) -> DataFrame:
        """Return a streaming DataFrame like `kafka_rows`, but without Kafka: null keys, empty values."""
        return (
            self.session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows_per_batch)
            .load()
            .selectExpr(
                "cast(null as binary) as key",
                "cast('' as binary) as value",
                "timestamp",
                "0 as partition",
                "value as offset",
                f"'{inputs[0]}' as topic",
                "cast(null as array<struct<key: string, value: binary>>) as headers",
            )
            .selectExpr(*_columns(inputs, options))
        )


def _columns(inputs: Sequence[str], options: Mapping[str, str]) -> tuple[str, ...]:
    several = ("topic as _topic",) if len(inputs) > 1 else ()
    return (*_COLUMNS, *several, *(("headers",) if options.get(HEADERS_OPTION) == "true" else ()))


def _assignment(positions: Mapping[InputPartition, int]) -> str:
    """Return an assignment for Spark's Kafka source: topic → its partitions."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(positions):
        partitions.setdefault(topic, []).append(partition)
    return json.dumps(partitions)


def _offsets(positions: Mapping[InputPartition, int]) -> str:
    """Return offsets in the format of Spark's Kafka source: topic → partition → offset."""
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in positions.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(offsets)


def operators(frame: DataFrame) -> list[Operator]:
    """Return every operator of the logical plan of ``frame``."""
    found = []
    waiting = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001
    while waiting:
        node = waiting.pop()
        children = node.children()
        inputs = [children.apply(index) for index in range(children.size())]
        found.append(
            Operator(
                name=node.nodeName(),
                is_streaming=node.isStreaming(),
                streaming_inputs=sum(each.isStreaming() for each in inputs),
            )
        )
        waiting += inputs
    return found


def types(frame: DataFrame) -> list[tuple[str, str]]:
    """Return the columns of ``frame`` with Spark's type names."""
    return list(frame.dtypes)


def is_user_error(error: BaseException) -> bool:
    """Return whether a micro-batch's job failed with ``error`` because of the user's expressions, not of the input.

    For example a Python function that raised, or an expression that refuses a value (such as a cast in ANSI mode).
    """
    if isinstance(error, PythonException):
        return True
    origin = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    if not isinstance(error, FAILURES) or origin is None:
        return False
    try:
        for _ in range(_MOST_CAUSES):
            if str(origin.getClass().getName()).startswith(_NOT_OF_THE_USER):
                return False
            origin = origin.getCause()
            if origin is None:
                return True
    except FAILURES:
        pass  # the JVM is gone
    return False


def unreadable(error: BaseException) -> str | None:
    """Return the message of Spark's Kafka source about an unreadable record; None: ``error`` is something else.

    Such an error names the record's topic, partition and offset: the same record fails again for every reader.
    """
    cause = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    if not isinstance(error, FAILURES):
        return None
    try:
        for _ in range(_MOST_CAUSES):
            if cause is None:
                return None
            kind, message = str(cause.getClass().getName()), str(cause.getMessage())
            if (kind.startswith(_KAFKA_SOURCE) and _names_record(cause)) or (
                kind == _CLIENTS_ERROR and message.startswith(_CLIENTS_RECORD)
            ):
                return message.partition("\n")[0]
            cause = cause.getCause()
    except FAILURES:
        pass  # the JVM is gone
    return None


def _names_record(cause: Any) -> bool:
    # Conditions about ranges of offsets, or about several partitions, have other parameters.
    parameters = cause.getMessageParameters()
    return all(parameters.containsKey(each) for each in ("topic", "partition", "offset"))


def _is_out_of_memory(error: BaseException) -> bool:
    java = getattr(error, "java_exception", None)
    try:
        return java is not None and str(java.getClass().getName()) == "java.lang.OutOfMemoryError"
    except FAILURES:
        return True  # the JVM could not even return the error's class


def is_worker_lost(error: BaseException) -> bool:
    """Return whether a Python worker of Spark ended during the user's function: it crashed, or was killed."""
    try:
        # Spark has no specific class for this error.
        return isinstance(error, FAILURES) and "Python worker exited unexpectedly" in str(error)
    except FAILURES:
        return False  # the JVM is gone, and with it the error's text


def _session(process: SparkProcess, settings: Mapping[str, str]) -> SparkSession:
    # The documented way to connect to a running JVM.
    os.environ["PYSPARK_GATEWAY_PORT"] = str(process.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = process.secret
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    _wait_for_ever(gateway)
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _wait_for_ever(gateway: Any) -> None:
    """Remove the default socket time-out, which a job may have set, from all connections of ``gateway``.

    Calls into the JVM may take any time, and waiting for a query's end takes months; `Spark.deadline` limits calls.
    """
    # Started here, because it would otherwise be started with the first query.
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    client, server = gateway._gateway_client, gateway._callback_server  # noqa: SLF001
    for connection in client.deque:
        connection.socket.settimeout(None)
    client._create_new_connection = _unbounded(client._create_new_connection)  # noqa: SLF001
    server._create_connection = _unbounded(server._create_connection)  # noqa: SLF001


def _unbounded(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*arguments: Any) -> Any:
        connection = make(*arguments)
        connection.socket.settimeout(None)
        return connection

    return made


def _forget() -> None:
    """Reset pyspark's references to a JVM, so that another one can be started in this process."""
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        with contextlib.suppress(*FAILURES):
            gateway.shutdown()
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
    SparkSession._activeSession = None  # noqa: SLF001
