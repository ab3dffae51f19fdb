"""Runs the plan of a transform in threads of its own, without a Spark job.

Planning, scheduling and reporting a job takes ten times as long as the rows of a small batch. A plan that treats rows
one by one, in Spark's own expressions and in functions in Python, needs nothing of that: here the JVM's thread behind
one of this process does what a task of the job would do, with a copy of the plan, and in an environment like that of a
task. It reads the rows from a file in memory, for which a job needs Python workers.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from standby.adapters.spark.exchange import RowExchange
from standby.adapters.spark.session import CALL_SECONDS, FAILURES, is_fatal, items_of, resource_profile
from standby.errors import Transient
from standby.shared.errortext import first_line

_LOG: Final = logging.getLogger(__name__)

#: Operators that treat rows one by one, without Python and without the memory of a task; how the generated code of
#: several is joined; and the source.
_OPERATORS: Final = ("Filter", "Generate", "InputAdapter", "Project", "Scan ExistingRDD", "WholeStageCodegen")

#: Operators that give rows to Python workers, and those of them that may need tasks which start at the same time, or
#: have certain resources.
_IN_PYTHON: Final = ("ArrowEvalPython", "BatchEvalPython", "MapInArrow", "MapInPandas")
_IN_BATCHES: Final = ("MapInArrow", "MapInPandas")

#: The class in the JVM that has the values of a session's accumulators.
_ACCUMULATORS: Final = "org.apache.spark.api.python.PythonAccumulatorV2"

#: Ids of tasks, which Spark's own do not reach. A worker's end is watched for each id.
_TASKS: Final = itertools.count(1 << 40)

#: Properties of tasks: the memory of their Python workers, and among how many it is divided.
_WORKER_MEMORY: Final = "resource.pyspark.memory"
_WORKERS: Final = "resource.executor.cores"

#: Smaller sources are lists in the plan.
_LIST_BELOW: Final = "spark.sql.execution.arrow.localRelationThreshold"

#: The class of Java's exception when a file cannot be written.
_NOT_WRITTEN: Final = "java.io.IOException"

#: A result of at least so many bytes that does not fit on the disk is too much. A smaller one does not fit because the
#: disk is full of something else.
_MUCH_BYTES: Final = 16 << 20

#: How long parts have to end after an interrupt.
_END_SECONDS: Final = 0.5

#: From this size on, the rows of a batch are not left to the JVM longer than it needs them.
_LARGE_BYTES: Final = 1 << 20

_CANCELLED: Final = "the batch was cancelled"


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
    execution = frame._jdf.queryExecution()  # noqa: SLF001
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    if execution.analyzed().containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.SCALA_UDF()):
        # A function in Java may rely on being made anew for each task.
        return False
    for node in _nodes(execution):
        name = str(node.nodeName())
        if not (name.startswith(_OPERATORS) or name in _IN_PYTHON):
            return False
        if name in _IN_BATCHES and (node.isBarrier() or node.profile().isDefined()):
            return False
    return True


def _nodes(execution: Any) -> Iterator[Any]:
    """Yield the operators of an executable plan, each one's first input after it."""
    node = execution.executedPlan()
    while True:
        yield node
        inputs = node.children()
        if not inputs.size():
            return
        node = inputs.head()


class DirectPlan:
    """The plan of a frame over that of `direct_source`, for batches in some number of parts."""

    def __init__(self, frame: DataFrame, parts: int) -> None:
        """Raises `Transient` when threads cannot be started."""
        session = frame.sparkSession
        jvm: Any = session._jvm  # noqa: SLF001
        #: A part that cannot be ended may still use its file.
        self._exchange = RowExchange()
        self._schema = to_arrow_schema(
            frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC"
        )
        self._result_schema = frame._jdf.schema()  # noqa: SLF001
        self._zone = session.conf.get("spark.sql.session.timeZone")
        self._kind = _single(jvm.scala.reflect, "ClassTag").apply(jvm.java.lang.Class.forName("[B"))
        # Expressions read the session's settings from the properties of their task.
        properties = jvm.java.util.Properties()
        for name, value in session.conf.getAll.items():
            properties.setProperty(name, value)
        profile = resource_profile(session)
        for name, amount in (
            (_WORKER_MEMORY, profile.getPySparkMemory()),
            (_WORKERS, profile.getExecutorCores()),
        ):
            if amount.isDefined():
                properties.setProperty(name, str(amount.get()))
        metrics = jvm.org.apache.spark.executor.TaskMetrics.empty()
        resources = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        self._task = (properties, None, metrics, 1, resources)
        execution = frame._jdf.queryExecution()  # noqa: SLF001
        self._has_functions = any(each.nodeName() in _IN_PYTHON for each in _nodes(execution))
        environment = jvm.org.apache.spark.SparkEnv.get()
        self._memory, self._blocks = environment.memoryManager(), environment.blockManager()
        self._new_memory = jvm.org.apache.spark.memory.TaskMemoryManager
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
        loader = self._thread().getContextClassLoader()
        self._client = jvm._gateway_client  # noqa: SLF001
        #: Kept, as Spark frees what belongs to an RDD when that is gone.
        self._rdd = frame._jdf.toArrowBatchRdd()  # noqa: SLF001
        self._count = parts
        with self._environment(0):
            self._copies = _copies_of(self._rdd, jvm, loader, parts)
        #: Where functions add to the session's accumulators. A copy registers its own with the task that makes it.
        self._added = [each for each in items_of(metrics.accumulators()) if _class_of(each) == _ACCUMULATORS]
        self._sums = session.sparkContext._javaAccumulator  # noqa: SLF001
        self._threads = _threads(parts, partial(_use_loader, self._thread, loader))
        self._parts: list[Future[pa.Table]] = []
        self._guard = threading.Lock()
        # Guarded by it.
        self._group: str | None = None
        """Whose batch runs."""
        self._is_cancelled = self._is_ending = False
        """Whether the batch was cancelled; whether its parts are to end, for that or because one has failed."""
        self._finished: SimpleQueue[Future[pa.Table] | None] = SimpleQueue()
        """Gets the batch's parts as they end, and None when it is cancelled."""
        self._running: dict[int, tuple[Any, Any]] = {}
        """Number of a part that runs → its thread in the JVM, and its context."""
        self._is_lost = False

    @property
    def stuck(self) -> int:
        """Return how many parts of the last batch go on although they were interrupted. Nothing ends what computes."""
        return sum(not part.done() for part in self._parts)

    @property
    def is_usable(self) -> bool:
        """Whether nothing else uses its copies of the plan."""
        return not (self.stuck or self._is_lost)

    def run(self, rows: pa.Table, group: str) -> pa.Table:
        """Return the result for ``rows``, in their order. Not thread-safe.

        Raises what an expression raises, `MemoryError` for a result that is too large, and `Transient` after a `cancel`
        of the ``group``, or without room for rows.
        """
        with self._guard:
            self._group, self._is_cancelled = group, False
        try:
            return self._run(rows)
        except Py4JJavaError as error:
            if not (self.is_usable and _is_not_written(error)):
                raise
            # A result may be many times as large as its rows.
            _LOG.info("the result of a batch does not fit into memory: %s", first_line(error))
            return self._run_on_disk(rows)
        finally:
            with self._guard:
                self._group = None
            self._exchange.clear()

    def cancel(self, group: str) -> None:
        """End the batch that runs, if it is one of ``group``. Thread-safe."""
        with self._guard:
            if self._group == group:
                self._is_cancelled = True
                self._finished.put(None)

    def _run(self, rows: pa.Table, *, on_disk: bool = False) -> pa.Table:
        numbers = range(self._count)
        self._exchange.put(rows, len(numbers), on_disk=on_disk)
        with self._guard:
            if self._is_cancelled:
                raise Transient(_CANCELLED)
            self._is_ending = False
            finished = self._finished = SimpleQueue()
        is_large = rows.nbytes > _LARGE_BYTES
        parts = self._parts = [self._threads.submit(self._run_part, each, is_large) for each in numbers]
        for part in parts:
            part.add_done_callback(finished.put)
        for _ in parts:
            ended = finished.get()
            failure = Transient(_CANCELLED) if ended is None else ended.exception()
            if failure is not None:
                self._interrupt()
                failures = [part.exception() for part in wait(parts, _END_SECONDS).done]
                raise next((each for each in failures if each is not None and is_fatal(each)), failure)
        self._parts = []
        for each in self._added:
            if not each.isZero():
                self._sums.merge(each)
                each.reset()
        return pa.concat_tables(part.result() for part in parts).cast(self._schema)

    def _run_on_disk(self, rows: pa.Table) -> pa.Table:
        try:
            return self._run(rows, on_disk=True)
        except Py4JJavaError as error:
            if _is_not_written(error) and self._exchange.has_filled_disk(_MUCH_BYTES):
                # With fewer rows it may fit.
                why = error.java_exception.getMessage()
                raise MemoryError(
                    f"the result of a batch fits neither into memory nor on the disk: {why}"
                ) from error
            raise

    def _interrupt(self) -> None:
        with self._guard:
            self._is_ending = True
            for thread, context in self._running.values():
                # It ends what waits, the next write of results, and within some seconds a function in Python.
                with contextlib.suppress(*FAILURES):
                    context.markInterrupted(_CANCELLED)
                    thread.interrupt()

    def _run_part(self, number: int, is_large: bool) -> pa.Table:
        path = str(self._exchange.path(number))
        connection = self._client.get_thread_connection()
        with self._environment(number) as context:
            self._begin(number, self._thread(), context)
            try:
                self._write(number, context, path, is_large=is_large)
            finally:
                if self._finish(number):
                    # Otherwise the next part on this thread would end.
                    self._take_interrupt()
        if self._client.get_thread_connection() is not connection:
            # The client makes a call again, over a new connection, when it gets no answer. Rows would be missing.
            self._is_lost = True
            raise Transient("the connection to Spark's JVM was lost while a batch was running")
        return pa.ipc.open_stream(Path(path).read_bytes()).read_all()

    @contextlib.contextmanager
    def _environment(self, number: int) -> Iterator[Any]:
        """Do in the block what a task would do; yields its context."""
        task = next(_TASKS)
        memory = None
        if self._has_functions:
            memory = self._new_memory(self._memory, task)
            self._blocks.registerTask(task)
        context = self._new_context(0, 0, number, task, 0, self._count, memory, *self._task)
        self._contexts.setTaskContext(context)
        try:
            yield context
            # Frees the memory of the rows.
            context.markTaskCompleted(self._no_failure)
        except Exception:
            # After a failure this may fail as well.
            with contextlib.suppress(*FAILURES):
                context.markTaskCompleted(self._no_failure)
            raise
        finally:
            self._contexts.unset()
            if memory is not None:
                memory.cleanUpAllAllocatedMemory()
                self._blocks.releaseAllLocksForTask(task)

    def _begin(self, number: int, thread: Any, context: Any) -> None:
        with self._guard:
            if self._is_ending:
                raise Transient(_CANCELLED)
            self._running[number] = thread, context

    def _finish(self, number: int) -> bool:
        """Return whether the part may have been interrupted."""
        with self._guard:
            del self._running[number]
            return self._is_ending

    def _write(self, number: int, context: Any, path: str, *, is_large: bool) -> None:
        """Replace the file of a part by one with its result."""
        batches = self._read(path)
        pieces = batches.toList()
        partition = self._new_partition(0, number, pieces, self._kind)
        file = self._new_file(path)
        try:
            writer = self._new_writer(self._result_schema, file, self._zone, True, False)
            writer.writeBatches(self._copies[number].compute(partition, context))
            writer.end()
        finally:
            file.close()
        if is_large:
            # The client tells the JVM of what is no longer used up to a second later.
            for each in (batches, pieces, partition):
                self._client.garbage_collect_object(each._target_id, enqueue=False)  # noqa: SLF001


def _is_not_written(error: Py4JJavaError) -> bool:
    return not is_fatal(error) and bool(error.java_exception.getClass().getName() == _NOT_WRITTEN)


def _threads(count: int, prepare: Callable[[], None]) -> ThreadPoolExecutor:
    """Return that many threads, all started. Each has a connection to the JVM, and so a thread in it."""
    threads = ThreadPoolExecutor(count, "standfast-part", prepare)
    met = threading.Barrier(count)
    try:
        for each in [threads.submit(met.wait, CALL_SECONDS) for _ in range(count)]:
            each.result()
    except RuntimeError as error:
        met.abort()
        raise Transient(f"the threads for Spark cannot be started: {error}") from error
    return threads


def _use_loader(thread: Any, loader: Any) -> None:
    """Let this thread of the JVM find the classes that the one did in which the transform was planned."""
    thread().setContextClassLoader(loader)


def _copies_of(rdd: Any, jvm: Any, loader: Any, count: int) -> list[Any]:
    """Return copies of an RDD, made as for tasks: some expressions keep what they work with."""
    # Dependencies are set when they are first needed, and are not in a copy otherwise.
    rdd.partitions()
    kind = _single(jvm.scala.reflect, "ClassTag").apply(rdd.getClass())
    serializer = jvm.org.apache.spark.SparkEnv.get().closureSerializer().newInstance()
    return [serializer.deserialize(serializer.serialize(rdd, kind), loader, kind) for _ in range(count)]


def _class_of(instance: Any) -> str:
    return str(instance.getClass().getName())


def _single(package: Any, name: str) -> Any:
    """Return the instance of a Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
