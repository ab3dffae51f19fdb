"""Runs the plan of a transform in the threads that ask for its result, without a Spark job.

Planning, scheduling and reporting a job takes ten times as long as the rows of a small batch. A plan that treats rows
one by one in Spark's own expressions needs nothing of that: here the JVM's thread behind the caller does what a task
of the job would do, with a copy of the plan, and in an environment like that of a task. It reads the rows from a file
in memory, for which a job needs Python workers.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from standby.adapters.spark.exchange import RowExchange
from standby.errors import Transient

#: Operators that treat rows one by one, without Python and without the memory of a task; how the generated code of
#: several is joined; and the source.
_OPERATORS: Final = ("Filter", "Generate", "InputAdapter", "Project", "Scan ExistingRDD", "WholeStageCodegen")

#: Smaller sources are lists in the plan.
_LIST_BELOW: Final = "spark.sql.execution.arrow.localRelationThreshold"

#: In the message of a Java exception.
_IS_FULL: Final = "No space left on device"


def direct_source(session: SparkSession, rows: pa.Schema, columns: str) -> DataFrame:
    """Return a frame for the transform of a `DirectPlan`: its batches have the schema ``rows``, in Spark ``columns``.

    It must not be used by several threads at once, as it changes a setting of the session for a moment.
    """
    jvm: Any = session._jvm  # noqa: SLF001
    types = jvm.org.apache.spark.sql.types.StructType.fromDDL(columns)
    batches = jvm.java.util.ArrayList()
    batches.add(bytearray(pa.RecordBatch.from_pylist([], rows).serialize()))
    converters = _single(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters")
    before = str(session.conf.get(_LIST_BELOW))
    session.conf.set(_LIST_BELOW, "0")
    try:
        frame = converters.toDataFrame(
            jvm.org.apache.spark.api.python.PythonUtils.toSeq(batches).iterator(),
            types,
            session._jsparkSession,  # noqa: SLF001
            "UTC",
            True,
            False,
        )
    finally:
        session.conf.set(_LIST_BELOW, before)
    return DataFrame(frame, session)


def is_direct(frame: DataFrame) -> bool:
    """Return whether the plan of ``frame``, made of that of `direct_source`, can be a `DirectPlan`."""
    node = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001
    while str(node.nodeName()).startswith(_OPERATORS):
        inputs = node.children()
        if not inputs.size():
            return True
        node = inputs.head()
    return False


class DirectPlan:
    """The plan of a frame over that of `direct_source`, for batches in some number of parts."""

    def __init__(self, frame: DataFrame, exchange: RowExchange, parts: int) -> None:
        session = frame.sparkSession
        jvm: Any = session._jvm  # noqa: SLF001
        self._exchange = exchange
        self._schema = to_arrow_schema(
            frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC"
        )
        #: Arguments of a writer of the result, without its file.
        self._result = (frame._jdf.schema(), session.conf.get("spark.sql.session.timeZone"), True, False)  # noqa: SLF001
        self._kind = _single(jvm.scala.reflect, "ClassTag").apply(jvm.java.lang.Class.forName("[B"))
        # Expressions read the session's settings from the properties of their task.
        properties = jvm.java.util.Properties()
        for name, value in session.conf.getAll.items():
            properties.setProperty(name, value)
        self._task = (None, properties, None, jvm.org.apache.spark.executor.TaskMetrics.empty(), 1)
        self._resources = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        # Each name that is looked up in the JVM is a call.
        self._new_context = jvm.org.apache.spark.TaskContextImpl
        self._new_partition = jvm.org.apache.spark.rdd.ParallelCollectionPartition
        self._new_file = jvm.java.io.FileOutputStream
        self._new_writer = jvm.org.apache.spark.sql.execution.arrow.ArrowBatchStreamWriter
        self._contexts = _single(jvm.org.apache.spark, "TaskContext")
        self._read = jvm.org.apache.spark.sql.api.python.PythonSQLUtils.readArrowStreamFromFile
        self._no_failure = _single(jvm.scala, "None")
        self._thread = jvm.java.lang.Thread.currentThread
        self._take_interrupt = jvm.java.lang.Thread.interrupted
        self._copies = _copies_of(frame._jdf.toArrowBatchRdd(), jvm, parts)  # noqa: SLF001
        #: Each has a connection to the JVM, and so a thread in it.
        self._threads = ThreadPoolExecutor(max(1, parts - 1), "standfast-part")
        self._guard = threading.Lock()
        # Guarded by it.
        self._group: str | None = None
        """Whose batch runs."""
        self._is_cancelled = self._is_ending = False
        """Whether the batch was cancelled; whether its parts are to end, for that or because one has failed."""
        self._running: dict[int, Any] = {}
        """Number of a part that runs → its thread in the JVM."""

    def run(self, rows: pa.Table, group: str) -> pa.Table:
        """Return the result for ``rows``, in their order. Not thread-safe.

        Raises what an expression raises, and `Transient` after a `cancel` of the ``group``, or without room for rows.
        """
        try:
            return self._run(rows, group)
        except Py4JJavaError as error:
            # A result may be many times as large as its rows.
            if _IS_FULL in str(error) and self._exchange.leave_memory():
                return self._run(rows, group)
            raise

    def cancel(self, group: str) -> None:
        """End the batch that runs, if it is one of ``group``. Thread-safe."""
        with self._guard:
            if self._group == group:
                self._is_cancelled = True
                self._interrupt()

    def _run(self, rows: pa.Table, group: str) -> pa.Table:
        self._exchange.put(rows, len(self._copies))
        results: dict[int, pa.Table] = {}
        failures: list[Exception] = []

        def run_part(number: int) -> None:
            try:
                results[number] = self._run_part(number)
            except Exception as error:  # noqa: BLE001 - the first one is raised below
                failures.append(error)
                with self._guard, contextlib.suppress(Py4JError):
                    self._interrupt()

        with self._guard:
            self._group, self._is_cancelled, self._is_ending = group, False, False
        first, *others = range(len(self._copies))
        begun = [self._threads.submit(run_part, number) for number in others]
        run_part(first)
        wait(begun)
        with self._guard:
            self._group = None
            is_cancelled = self._is_cancelled
        if failures and is_cancelled:
            raise Transient("the batch was cancelled") from failures[0]
        if failures:
            raise failures[0]
        return pa.concat_tables(results[number] for number in sorted(results)).cast(self._schema)

    def _interrupt(self) -> None:
        self._is_ending = True
        for thread in self._running.values():
            # It ends what waits, and the next write of results.
            thread.interrupt()

    def _run_part(self, number: int) -> pa.Table:
        path = str(self._exchange.path(number))
        context = self._new_context(0, 0, number, 0, 0, len(self._copies), *self._task, self._resources)
        self._begin(number, self._thread())
        try:
            self._contexts.setTaskContext(context)
            try:
                self._write(number, context, path)
            finally:
                # Frees the memory of the rows.
                context.markTaskCompleted(self._no_failure)
                self._contexts.unset()
        finally:
            if self._finish(number):
                # Otherwise the next part on this thread would end.
                self._take_interrupt()
        return pa.ipc.open_stream(Path(path).read_bytes()).read_all()

    def _begin(self, number: int, thread: Any) -> None:
        with self._guard:
            if self._is_ending:
                raise Transient("the batch has ended")
            self._running[number] = thread

    def _finish(self, number: int) -> bool:
        """Return whether the part may have been interrupted."""
        with self._guard:
            del self._running[number]
            return self._is_ending

    def _write(self, number: int, context: Any, path: str) -> None:
        """Replace the file of a part by one with its result."""
        pieces = self._read(path).toList()
        file = self._new_file(path)
        try:
            writer = self._new_writer(*self._result[:1], file, *self._result[1:])
            partition = self._new_partition(0, number, pieces, self._kind)
            writer.writeBatches(self._copies[number].compute(partition, context))
            writer.end()
        finally:
            file.close()


def _copies_of(rdd: Any, jvm: Any, count: int) -> list[Any]:
    """Return copies of an RDD, made as for tasks: some expressions keep what they work with."""
    # Dependencies are set when they are first needed, and are not in a copy otherwise.
    rdd.partitions()
    kind = _single(jvm.scala.reflect, "ClassTag").apply(rdd.getClass())
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    serializer = jvm.org.apache.spark.SparkEnv.get().closureSerializer().newInstance()
    return [serializer.deserialize(serializer.serialize(rdd, kind), loader, kind) for _ in range(count)]


def _single(package: Any, name: str) -> Any:
    """Return the instance of a Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
