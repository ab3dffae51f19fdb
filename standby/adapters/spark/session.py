"""Spark in this process: one JVM and one session; `standby.adapters.spark.query` has its queries.

The JVM may die or hang at any call. When it dies, its sockets close and the call raises; a call that it
does not answer in time is ended by killing it (`Spark.deadline`). Both arrive as `Transient`, and the
JVM's pid being gone is what tells the container to end.
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

#: What a call into the JVM raises, whether Spark refuses it or the JVM is gone.
FAILURES: Final = (PySparkException, Py4JError, OSError)

#: What every transform is given, from a source with the columns of Spark's Kafka source.
_COLUMNS: Final = ("key", "value", "timestamp", "partition as _task", "offset as _offset")

#: Longest time that a call into the JVM may take, other than one that runs the user's code.
CALL_SECONDS: Final = 60.0

#: Where the exceptions of Spark's Kafka source lie.
_KAFKA_SOURCE: Final = "org.apache.spark.sql.kafka010."

#: Java exceptions, by the beginning of their names, that no expression over rows raises.
_NOT_OF_THE_USER: Final = (
    "org.apache.kafka.",
    _KAFKA_SOURCE,
    "org.apache.spark.SparkInterruptedException",
    "java.io.",
    "java.lang.InterruptedException",
    # The Kafka source: no record came in time.
    "java.util.concurrent.TimeoutException",
    # How the Kafka source reports lost data can end in this one.
    "java.lang.StackOverflowError",
    "java.lang.OutOfMemoryError",
)

#: What the source's consumer raises for a record, or a batch of the log, that it has received and cannot take apart,
#: and how its message begins; topic, partition and offset follow.
_CLIENTS_ERROR: Final = "org.apache.kafka.common.KafkaException"
_CLIENTS_RECORD: Final = ("Record for partition ", "Record batch for partition ")

_MOST_CAUSES: Final = 20

#: A dying JVM closes its connections before it can be seen to have ended.
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
        """Start JVM and session, with ``flags`` for the JVM beside the usual ones; raises as `acquire`."""
        end = time.monotonic() + within_seconds
        if SparkContext._gateway is not None:  # noqa: SLF001
            raise BadConfiguration(STARTED)
        self._settings = dict(settings)
        self._classpath = frozenset(classpath)
        self._users = 1
        self.has_async_progress = True
        """Whether queries may track their progress asynchronously; unless Spark has refused that."""
        self._discarded: list[Path] = []
        self._queries = 0
        # Spark's Python workers are to be of this very interpreter.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self.process = SparkProcess(settings, classpath, flags, log, within_seconds)
        self._late_seconds: float | None = None
        """What the JVM was given to answer in, once it has not and was killed for that."""
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
        """Return this process's Spark, started when it is not running; `release` it once for each time.

        What the JVM prints goes to ``log``, by default where this process prints. JVM and session are waited for as
        long as they usually may take, and no longer than ``within_seconds``.

        A process has one JVM and one session, so who comes later must ask for the same ``settings``
        and for no other jars. Raises `BadConfiguration` otherwise, and as `SparkProcess`; `Transient` when
        the JVM of an earlier caller has died.
        """
        with cls._guard:
            if cls._shared is None:
                cls._shared = cls(settings, classpath, log=log, within_seconds=within_seconds)
                return cls._shared
            cls._shared.join(settings, classpath)
            return cls._shared

    def join(self, settings: Mapping[str, str], classpath: Sequence[Path]) -> None:
        """Count one user more, who wants ``settings`` and ``classpath``; raises as `acquire`, which calls it."""
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
        """Give it back; with the last user session and JVM end."""
        with Spark._guard:
            self._users -= 1
            if self._users == 0:
                Spark._shared = None
                self.close()

    def close(self, exit_seconds: float = 10.0) -> None:
        """End session and JVM, whoever uses them; kill the JVM when its exit takes longer."""
        if self.process.is_alive:
            with self.deadline(CALL_SECONDS), contextlib.suppress(*FAILURES):
                self.session.stop()
        _forget()
        self.process.close(exit_seconds)
        self.remove_discarded()

    def count_query(self) -> None:
        """Take note that a query is about to begin."""
        with Spark._guard:
            self._queries += 1

    def forget_query(self, callback: Callable[[DataFrame, int], None]) -> None:
        """Drop what py4j keeps of a query that has ended; ``callback`` was called with its batches.

        A container starts a query every half minute for months.
        """
        gateway: Any = self.session.sparkContext._gateway  # noqa: SLF001
        if gateway is None:
            return  # the session ended before the query was seen to
        # Spark would drop its own reference some day, and the connection to say so may be gone by then.
        callbacks = gateway.gateway_property.pool
        for key, value in list(callbacks.dict.items()):
            if getattr(value, "func", None) == callback:
                del callbacks[key]
        with Spark._guard:
            self._queries -= 1
            if self._queries or not self.process.is_alive:
                return
            # The thread that called back leaves a connection behind, on both sides, and here a thread that
            # reads it. The first round marks those without use, the second one closes them; it would close
            # the connection of a running query as well.
            with self.deadline(CALL_SECONDS), contextlib.suppress(*FAILURES):
                server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)  # noqa: SLF001
                for _ in range(2):
                    server.getCallbackClient().periodicCleanup()

    def discard(self, checkpoint: Path) -> None:
        """Remove the checkpoint of a query that has ended, now and again: its last writes come late."""
        shutil.rmtree(checkpoint, ignore_errors=True)
        self._discarded.append(checkpoint)

    def remove_discarded(self) -> None:
        """Remove again what was discarded before."""
        for checkpoint in self._discarded:
            shutil.rmtree(checkpoint, ignore_errors=True)
        # The newest may still be written to, by the threads of asynchronous progress tracking.
        self._discarded = self._discarded[-1:]

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Kill the JVM when the block takes longer: then every call in it fails instead of hanging."""
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
        """Bound a block of calls into the JVM, and judge what it raises; ``doing`` and ``what`` are for the message.

        Raises `Transient` when the JVM has not answered in time, has died or has no memory left, `BadConfiguration`
        when Spark refuses ``what``.
        """
        try:
            with self.deadline(seconds):
                yield
        except (*FAILURES, BadConfiguration) as error:
            # What the user's function raised is told as a wrong function, but the JVM's end may be what it raised.
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
        """Return whether the JVM is gone, of which ``error``, which a call raised, may be the first sign."""
        is_connection = isinstance(error, FAILURES) and not isinstance(
            error, (PySparkException, Py4JJavaError)
        )
        return self.process.ends_within(_DEATH_SECONDS if is_connection else 0)

    def kafka_rows(
        self, options: Mapping[str, str], inputs: Sequence[str], positions: Mapping[InputPartition, int]
    ) -> DataFrame:
        """Return the streaming DataFrame of partitions of ``inputs`` from ``positions`` on, with our columns."""
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
        """Return the static DataFrame of partitions of ``inputs`` from ``starts`` to ``ends``, with our columns."""
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
        """Return ``rows`` in no more Spark tasks than run at a time, each of them for several Kafka partitions.

        The source makes one for each of its ``partitions``, whose start costs more than a small batch's rows. A task
        reads its partitions one after the other, so rows of one stay in order.
        """
        at_a_time = self.session.sparkContext.defaultParallelism
        return rows.coalesce(at_a_time) if partitions > at_a_time else rows

    def limit_batches(self, query: StreamingQuery, records: int) -> None:
        """Let the next micro-batches of a running ``query`` over Kafka have so many records at most.

        ``maxOffsetsPerTrigger`` is read once, when the query begins; what it has become there is replaced. Raises one
        of `FAILURES`.
        """
        jvm: Any = self.session._jvm  # noqa: SLF001
        execution = query._jsq.streamingQuery()  # noqa: SLF001
        limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(records)
        # A plan has one source, the stream of the input (`standby.feed.rules.plan`).
        sources = execution.uniqueSources()
        getattr(execution, "uniqueSources_$eq")(sources.updated(sources.keys().head(), limit))

    def synthetic_rows(
        self, options: Mapping[str, str], inputs: Sequence[str], rows_per_batch: int
    ) -> DataFrame:
        """Return a streaming DataFrame as `kafka_rows` that needs no Kafka: null keys, empty values."""
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
    """Return what Spark's Kafka source calls an assignment: topic → its partitions."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(positions):
        partitions.setdefault(topic, []).append(partition)
    return json.dumps(partitions)


def _offsets(positions: Mapping[InputPartition, int]) -> str:
    """Return offsets as Spark's Kafka source writes them: topic → partition → offset."""
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
    """Return the columns of ``frame`` with Spark's names of their types."""
    return list(frame.dtypes)


def is_users(error: BaseException) -> bool:
    """Whether a micro-batch's job failed with ``error`` because of the user's expressions, not of the input.

    A Python function that raised, or an expression that refuses a value (a cast in ANSI mode, say).
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
    """Return what Spark's Kafka source says of a record that it cannot read or decode; None: ``error`` is none of that.

    Such an error names the record's topic, partition and offset: the same record fails again, whoever reads it.
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
        return True  # it could not even say what it is


def is_worker_lost(error: BaseException) -> bool:
    """Whether a Python worker of Spark has ended amid the user's function: a crash, or it was killed."""
    try:
        # Spark has no class of its own for it.
        return isinstance(error, FAILURES) and "Python worker exited unexpectedly" in str(error)
    except FAILURES:
        return False  # the JVM is gone, and with it the error's text


def _session(process: SparkProcess, settings: Mapping[str, str]) -> SparkSession:
    # The documented way to a JVM that runs already.
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
    """Have no connection of ``gateway`` take the process's default time-out of sockets, which a job may have set.

    Calls into the JVM take as long as they take, a query's end months; who bounds them is `Spark.deadline`.
    """
    # The callback server would be started with the first query.
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
    """Drop what pyspark keeps of a JVM, so that another one may be started in this process."""
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        with contextlib.suppress(*FAILURES):
            gateway.shutdown()
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
    SparkSession._activeSession = None  # noqa: SLF001
