"""Spark in this process: one JVM and one session.

The JVM may die or hang at any call. When it dies, its sockets close and the call raises. When it does not answer in
time, it is killed (`Spark.deadline`). Both are reported as `Transient`; the container ends because the JVM's pid is
gone.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PythonException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from standby.adapters.spark.jvm import SOCKETS, SparkProcess, silence
from standby.adapters.spark.plan import Operator
from standby.adapters.spark.sessionless import STARTED
from standby.code.lack import is_lack, tells_of_lack
from standby.errors import BadConfiguration, Transient
from standby.shared.errortext import first_line, text_of

_LOG: Final = logging.getLogger(__name__)

#: Errors of a call into the JVM, whether Spark refuses it or the JVM is gone.
FAILURES: Final = (PySparkException, Py4JError, OSError)

#: Time-out of a call into the JVM that does not run the user's code.
CALL_SECONDS: Final = 60.0

#: The prefix of the names of Java's input and output errors, and the one of them that is about an object: a function of
#: the job that Spark cannot give to its tasks.
_OF_INPUT: Final = "java.io."
_OF_AN_OBJECT: Final = "java.io.NotSerializableException"

#: Prefixes of the names of Java exceptions that no expression over rows raises.
_NOT_OF_THE_USER: Final = (
    "org.apache.hadoop.net.ConnectTimeoutException",
    "org.apache.spark.SparkInterruptedException",
    "java.net.BindException",
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.Socket",
    "java.net.UnknownHostException",
    "java.nio.channels.",
    "java.lang.InterruptedException",
    "java.lang.OutOfMemoryError",
    "java.util.concurrent.TimeoutException",
)

#: How the messages of errors begin that have no class of their own and are not the user's: a job was cancelled, a
#: file of a static table cannot be read, or a Python worker cannot be started, for whatever reason.
_SAID_OF_NO_ROW: Final = (
    "[SPARK_JOB_CANCELLED]",
    "[FAILED_READ_FILE",
    "Error from python worker:",
    "Python daemon failed to launch worker",
    "Python failed to launch worker",
    "EOFException occurred while reading the port number",
)

#: The same for errors about the value of a row. Their cause may be an input error: the decoder of Avro, for example,
#: reads a value that is cut short to its end.
_SAID_OF_A_VALUE: Final = ("[MALFORMED_", "Malformed records are detected")

#: Prefixes of the names of Java's errors about a file that may be missing, and of those about reading and writing.
_OF_A_FILE: Final = ("java.io.FileNotFoundException", "java.nio.file.")
_OF_TRANSFER: Final = ("java.io.IOException", "java.io.InterruptedIOException")

#: All that py4j says when a connection to the JVM broke during a call.
_UNANSWERED: Final = re.compile(r"An error occurred while calling \S+")

#: The beginning of the name of the directory that pyspark puts on the import path at each start.
_FILES: Final = "userFiles-"

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
        flags: Sequence[str] = (),
        log: Path | None = None,
        within_seconds: float = math.inf,
    ) -> None:
        """Start JVM and session, with additional ``flags`` for the JVM. Raises like `acquire`."""
        end = time.monotonic() + within_seconds
        if SparkContext._gateway is not None:  # noqa: SLF001
            raise BadConfiguration(STARTED)
        self._settings = dict(settings)
        self._users = 1
        #: The files that the JVM deletes at its exit, as listed at the first `forget_sockets`.
        self._exit_files: Any = None
        # Spark's Python workers must use the same interpreter.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self.process = SparkProcess(settings, flags, log, within_seconds)
        self._late_seconds: float | None = None
        """The time-out after which the JVM was killed, if it was."""
        try:
            seconds = min(CALL_SECONDS, max(0.0, end - time.monotonic()))
            with self.asking("its session was started", "its settings", seconds):
                self.session = _session(self.process)
                self.slots = _slots(self.session)
                """How many tasks it runs at once, and into how many parts a large batch is divided."""
                #: Ids of variables that were broadcast → their files.
                self._broadcasts = _noted_broadcasts(self.session.sparkContext)
        except BaseException:
            # A later start would find a session that nobody here has made.
            self.process.kill()
            _forget()
            raise

    @classmethod
    def acquire(
        cls,
        settings: Mapping[str, str],
        log: Path | None = None,
        within_seconds: float = math.inf,
    ) -> Spark:
        """Return this process's Spark, started if it is not running; call `release` once for each `acquire`.

        The JVM's output goes to ``log``, by default to the output of this process. JVM and session have their usual
        time-outs, limited by ``within_seconds``.

        A process has one JVM and one session, so later callers must pass the same ``settings``. Raises
        `BadConfiguration` otherwise, and like `SparkProcess`; `Transient` when the JVM of an earlier caller has died.
        """
        with cls._guard:
            if cls._shared is None:
                cls._shared = cls(settings, log=log, within_seconds=within_seconds)
            else:
                cls._shared.join(settings)
            return cls._shared

    def join(self, settings: Mapping[str, str]) -> None:
        """Add a user with ``settings``; called by `acquire`, and raises like it."""
        if not self.process.is_alive:
            raise Transient("Spark's JVM has died; this process cannot have a second one")
        different = {name for name, _ in self._settings.items() ^ dict(settings).items()} - {"spark.app.name"}
        if different:
            raise BadConfiguration(
                f"the jobs of one container need the same Spark settings; different are: {sorted(different)}"
            )
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

        Raises `Transient` when the JVM has not answered in time, has died or cannot go on, or when the host or a
        service fails; `BadConfiguration` when Spark refuses ``what``.
        """
        try:
            with self.deadline(seconds):
                yield
        except (*FAILURES, RuntimeError, MemoryError, BadConfiguration) as error:
            # An error of the user's function is reported as such, but it may be caused by the JVM's end.
            origin = error.__cause__ or error if isinstance(error, BadConfiguration) else error
            if self.has_died(origin):
                late = self._late_seconds
                message = silence(late, doing) if late is not None else self.process.obituary(doing)
                raise Transient(message) from error
            if is_fatal(origin):
                # The JVM is asked for the text.
                message = first_line(origin)
                self.process.kill()
                raise Transient(f"Spark's JVM has failed while {doing}: {message}") from error
            said = outside_fault(origin, is_codes=origin is not error)
            if said is not None:
                message = f"this host, or a service that Spark uses, has failed while {doing}: {said}"
                raise Transient(message) from error
            if not isinstance(error, FAILURES):
                raise
            raise BadConfiguration(f"Spark refuses {what}: {first_line(error)}") from error

    def has_died(self, error: BaseException) -> bool:
        """Return whether the JVM is gone; ``error`` of a call may be the first sign of that."""
        is_connection = isinstance(error, FAILURES) and not isinstance(
            error, (PySparkException, Py4JJavaError)
        )
        return self.process.ends_within(_DEATH_SECONDS if is_connection else 0)

    def forget_sockets(self) -> None:
        """Drop from the JVM's list of files to delete at its exit what was added since the start of the session.

        For each result Spark makes a Unix socket, deletes it after use, and leaves its path in that list for ever. The
        list is replaced as a whole, because another thread may be adding to it.
        """
        jvm: Any = self.session._jvm  # noqa: SLF001
        with self.deadline(CALL_SECONDS), contextlib.suppress(*FAILURES):
            field = jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
            field.setAccessible(True)
            if self._exit_files is None:
                self._exit_files = jvm.java.util.ArrayList(field.get(None))
            field.set(None, jvm.java.util.LinkedHashSet(self._exit_files))

    def forget_broadcasts(self) -> None:
        """Delete the files of variables that were broadcast, where the JVM has freed the variable.

        Pyspark keeps them until the end of the session. A function in Python is broadcast, too, if it is large.
        """
        if not self._broadcasts:
            return
        jvm: Any = self.session._jvm  # noqa: SLF001
        with self.deadline(CALL_SECONDS), contextlib.suppress(*FAILURES):
            blocks = jvm.org.apache.spark.SparkEnv.get().blockManager()
            for number, path in tuple(self._broadcasts.items()):
                block = jvm.org.apache.spark.storage.BroadcastBlockId(number, "")
                if blocks.getStatus(block).isEmpty():
                    self._broadcasts.pop(number, None)
                    Path(path).unlink(missing_ok=True)

    def synthetic_rows(self, inputs: Sequence[str], *, has_headers: bool = False) -> DataFrame:
        """Return a streaming DataFrame with the columns that transforms get, to check a transform's plan with it."""
        columns = [
            "cast(null as binary) as key",
            "cast('' as binary) as value",
            "timestamp",
            "0 as _task",
            "value as _offset",
        ]
        if len(inputs) > 1:
            columns.append(f"'{inputs[0]}' as _topic")
        if has_headers:
            columns.append("cast(null as array<struct<key: string, value: binary>>) as headers")
        rows = self.session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        return rows.selectExpr(*columns)


def items_of(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def operators(frame: DataFrame) -> list[Operator]:
    """Return every operator of the logical plan of ``frame``."""
    found = []
    waiting = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001
    while waiting:
        node = waiting.pop()
        inputs = items_of(node.children())
        found.append(
            Operator(
                name=node.nodeName(),
                is_streaming=node.isStreaming(),
                streaming_inputs=sum(each.isStreaming() for each in inputs),
            )
        )
        waiting += inputs
    return found


def check_streaming(frame: DataFrame) -> None:
    """Raise `AnalysisException` if the plan of the streaming ``frame`` has what Spark refuses for streams.

    An outer join, for example, may have rows that come from no input record.
    """
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    analyzed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    checker.checkForStreaming(analyzed, jvm.org.apache.spark.sql.streaming.OutputMode.Append())


#: Parts of a plan that are evaluated when it is made: the time, random numbers, and results of other plans.
_EVALUATED_ONCE: Final = (
    "CURRENT_LIKE",
    "EXPRESSION_WITH_RANDOM_SEED",
    "PLAN_EXPRESSION",
    "JOIN",
    "AS_OF_JOIN",
    "LATERAL_JOIN",
    "NEAREST_BY_JOIN",
)

#: Parts of an executable plan that keep the rows of their first run.
_KEEP_ROWS: Final = ("Exchange", "AdaptiveSparkPlan", "InMemoryTableScan", "AttachDistributedSequence")


def may_run_again(frame: DataFrame) -> bool:
    """Return whether the plan of ``frame`` may be run repeatedly, as if it were made anew each time."""
    execution = frame._jdf.queryExecution()  # noqa: SLF001
    plan = execution.analyzed()
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    catalyst = jvm.org.apache.spark.sql.catalyst
    patterns = catalyst.trees.TreePattern
    if any(plan.containsPattern(getattr(patterns, each)()) for each in _EVALUATED_ONCE):
        return False
    # Strings such as 'today', cast to a date.
    if not catalyst.optimizer.SpecialDatetimeValues.apply(plan).fastEquals(plan):
        return False
    executed = str(execution.executedPlan().treeString())
    return not any(each in executed for each in _KEEP_ROWS)


def types(frame: DataFrame) -> list[tuple[str, str]]:
    """Return the columns of ``frame`` with Spark's type names."""
    return list(frame.dtypes)


def unreturnable(frame: DataFrame) -> Iterator[tuple[str, str]]:
    """Yield each column of ``frame`` that Spark cannot return as one of an Arrow table, and its reason."""
    for field in frame.schema:
        try:
            to_arrow_type(field.dataType, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
        except PySparkException as error:
            yield field.name, first_line(error)


def is_user_error(error: BaseException) -> bool:
    """Return whether a batch's job failed with ``error`` because of the user's expressions.

    For example a Python function that raised, or an expression that refuses a value (such as a cast in ANSI mode).
    """
    if isinstance(error, PythonException):
        return True
    if not isinstance(error, FAILURES):
        return False
    try:
        causes = _told(error)
    except FAILURES:
        return False  # the JVM is gone
    is_of_value = False
    for name, message in causes:
        if _is_outside(name, message):
            return False
        is_of_value = is_of_value or message.startswith(_SAID_OF_A_VALUE)
        if name.startswith(_OF_INPUT) and name != _OF_AN_OBJECT and not is_of_value:
            return False
    return 0 < len(causes) <= _MOST_CAUSES


def outside_fault(error: BaseException, *, is_codes: bool) -> str | None:
    """Return what ``error`` says about the host, or a service, that failed a start of Spark or a plan; None: nothing.

    ``is_codes``: the job's code raised it. A file that does not exist is then the job's fault.
    """
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        is_outside = isinstance(error, Py4JNetworkError) or bool(_UNANSWERED.fullmatch(text_of(error)))
    else:
        is_outside = is_lack(error) or (isinstance(error, OSError) and not is_codes)
    if is_outside:
        return first_line(error)
    try:
        causes = _told(error)
    except FAILURES:
        return first_line(error)  # the JVM is gone
    for name, message in causes:
        if _is_outside(name, message) or (name.startswith(_OF_A_FILE) and tells_of_lack(message)):
            return _line(name, message)
        if "does not exist" in message:
            return None
        if name.startswith(_OF_TRANSFER):
            return _line(name, message)
    return None


def _is_outside(name: str, message: str) -> bool:
    """Return whether a Java exception with this name and message tells of the host, or of a service."""
    is_named = name.startswith(_NOT_OF_THE_USER) or message.startswith(_SAID_OF_NO_ROW)
    return is_named or (name.startswith("java.nio.file.") and tells_of_lack(message))


def _line(name: str, message: str) -> str:
    """Return a line about a Java exception."""
    first, _, _ = message.partition("\n")
    return f"{name}: {first}"


#: Ends of the names of errors that tell of a lack of memory: Java's, Arrow's and Netty's.
_NO_MEMORY: Final = (".OutOfMemoryError", ".OutOfMemoryException", ".OutOfDirectMemoryError")


#: Ends of the names of errors of what a batch needs too much of at once, after which the JVM can go on: the memory that
#: Spark gives to a task, and the bytes of one of Arrow's vectors.
_OF_TOO_MUCH: Final = (".SparkOutOfMemoryError", ".OversizedAllocationException")

#: The setting that bounds the results of a job. Spark has no class for that error.
_MOST_RESULTS: Final = "spark.driver.maxResultSize"


def too_much(error: BaseException) -> str | None:
    """Return what ``error`` says if a batch with fewer rows may succeed; None otherwise."""
    try:
        causes = _told(error)
    except FAILURES:
        return None  # the JVM is gone
    for name, message in causes:
        if name.endswith(_OF_TOO_MUCH) or _MOST_RESULTS in message:
            return _line(name, message)
    return None


def is_fatal(error: BaseException) -> bool:
    """Return whether the JVM cannot be relied on after ``error``: no memory, or a class that cannot be initialised."""
    try:
        for each in _causes(error)[:_MOST_CAUSES]:
            name = str(each.getClass().getName())
            if name.endswith(_NO_MEMORY):
                return True
            if name == "java.lang.NoClassDefFoundError" and "initialize" in str(each.getMessage()):
                return True
    except FAILURES:
        return True  # the JVM could not even return the error's class
    return False


def _causes(error: BaseException) -> list[Any]:
    """Return the Java exception of ``error``, if it has one, and its causes: `_MOST_CAUSES`, and one if there are more.

    Raises `FAILURES` when the JVM is gone.
    """
    found: list[Any] = []
    each = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while each is not None and len(found) <= _MOST_CAUSES:
        found.append(each)
        each = each.getCause()
    return found


def _told(error: BaseException) -> list[tuple[str, str]]:
    """Return class and message of each of `_causes`; raises like that."""
    return [(str(each.getClass().getName()), str(each.getMessage()).lstrip()) for each in _causes(error)]


def is_worker_lost(error: BaseException) -> bool:
    """Return whether a Python worker of Spark ended during the user's function: it crashed, or was killed."""
    try:
        # Spark has no specific class for this error.
        return isinstance(error, FAILURES) and "Python worker exited unexpectedly" in str(error)
    except FAILURES:
        return False  # the JVM is gone, and with it the error's text


def _session(process: SparkProcess) -> SparkSession:
    # The documented way to connect to a running JVM, in which each thread of this process has one of its own.
    ours = {
        "PYSPARK_GATEWAY_PORT": str(process.port),
        "PYSPARK_GATEWAY_SECRET": process.secret,
        "PYSPARK_PIN_THREAD": "true",
    }
    os.environ.update(ours)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in ours:
            del os.environ[name]
    _wait_for_ever(gateway)
    conf = SparkConf(loadDefaults=False)
    for name, value in process.settings.items():
        conf.set(name, value)
    try:
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except OSError as error:
        # It makes a socket, and does not say where. An error without a number is about a path that is too long.
        directory = process.settings[SOCKETS]
        if error.errno is None:
            raise BadConfiguration(f"{SOCKETS}: {directory}: {error}") from error
        raise OSError(error.errno, error.strerror, directory) from error


def _noted_broadcasts(context: Any) -> dict[int, str]:
    """Return the files of the variables that are broadcast from now on, by id."""
    files: dict[int, str] = {}
    make = context.broadcast

    def broadcast(value: Any) -> Any:
        made = make(value)
        files[int(made._jbroadcast.id())] = made._path  # noqa: SLF001
        return made

    context.broadcast = broadcast
    return files


def resource_profile(session: SparkSession) -> Any:
    """Return the profile of the resources that tasks of the session have, an object of the JVM."""
    return session.sparkContext._jsc.sc().resourceProfileManager().defaultResourceProfile()  # noqa: SLF001


def _slots(session: SparkSession) -> int:
    context: Any = session.sparkContext._jsc.sc()  # noqa: SLF001
    # `spark.default.parallelism` may ask for fewer, and for many more, parts.
    return int(min(context.defaultParallelism(), context.maxNumConcurrentTasks(resource_profile(session))))


def _wait_for_ever(gateway: Any) -> None:
    """Remove the default socket time-out, which a job may have set, from all connections of ``gateway``.

    A batch may take any time; `Spark.deadline` limits other calls.
    """
    client = gateway._gateway_client  # noqa: SLF001
    for connection in client.deque:
        connection.socket.settimeout(None)
    client._create_new_connection = _unbounded(client._create_new_connection)  # noqa: SLF001


def _unbounded(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*arguments: Any) -> Any:
        connection = make(*arguments)
        connection.socket.settimeout(None)
        return connection

    return made


def _forget() -> None:
    """Reset pyspark's references to a JVM, so that another one can be started in this process."""
    # Where a session would put files that are added to it. Other threads may be changing the list.
    for path in [each for each in sys.path if Path(each).name.startswith(_FILES)]:
        with contextlib.suppress(ValueError):
            sys.path.remove(path)
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        with contextlib.suppress(*FAILURES):
            gateway.shutdown()
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
    SparkSession._activeSession = None  # noqa: SLF001
