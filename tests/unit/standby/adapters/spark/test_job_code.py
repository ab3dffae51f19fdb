"""What of a job's code for Spark is refused, with what to write instead, and which of Spark's errors are its own."""

from __future__ import annotations

import dataclasses
import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from standby.adapters.spark.plan import REFUSED, Operator, check_plan
from standby.adapters.spark.session import Spark, is_user_error, too_much
from standby.adapters.spark.sessionless import type_of
from standby.config import JobConfig
from standby.errors import BadConfiguration, StandfastError, Transient
from standby.feed.functions import check_starts_no_spark, job_code, step_of
from tests.cases import case
from tests.fakes.jobs import job_config
from tests.patience import PATIENCE_SECONDS

# ---- operators of the plan ----


SOURCE = Operator("StreamingRelationV2", is_streaming=True, streaming_inputs=0)
TABLE = Operator("LocalRelation", is_streaming=False, streaming_inputs=0)


def over_stream(name: str, inputs: int = 1) -> Operator:
    return Operator(name, is_streaming=True, streaming_inputs=inputs)


def over_table(name: str) -> Operator:
    return Operator(name, is_streaming=False, streaming_inputs=0)


def test_operators_that_treat_each_row_by_itself_pass() -> None:
    check_plan(
        [over_stream(name) for name in ("Project", "Filter", "Generate", "MapInArrow")] + [SOURCE], "job:f"
    )


def test_a_join_with_a_table_passes_whatever_was_done_to_the_table() -> None:
    check_plan([over_stream("Join"), SOURCE, over_table("Aggregate"), over_table("Sort"), TABLE], "job:f")


def test_an_operator_over_many_rows_of_the_stream_is_refused_with_its_reason() -> None:
    for name, reason in REFUSED.items():
        with case(name), pytest.raises(BadConfiguration) as error:
            check_plan([over_stream("Project"), over_stream(name), SOURCE], "job:f")
        assert str(error.value) == f"task.transform: job:f contains {reason}"


def test_the_stream_may_be_read_once_only() -> None:
    for name, said in (("Join", "joins the stream with itself"), ("Union", "union of the stream")):
        with case(name), pytest.raises(BadConfiguration, match=said):
            check_plan([over_stream(name, inputs=2), SOURCE, SOURCE], "job:f")


def test_a_result_that_is_not_made_of_the_stream_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="does not come from the one it was given"):
        check_plan([over_table("Project"), TABLE], "job:f")


# ---- what needs a session at the top of a module ----


CONFIG = job_config(task__step="top_job:step")

#: Line 3 of a module, and what is said of it.
NEEDS_SESSION = {
    "udf": ("bad = F.udf(len, 'int')", r"'int': write IntegerType\(\)"),
    "decorator": ("@F.udf('binary')\ndef bad(v): return v", r"'binary': write BinaryType\(\)"),
    "pandas": (
        "@F.pandas_udf('array<double>')\ndef bad(v: 'pd.Series') -> 'pd.Series': return v",
        r"'array<double>': write ArrayType\(DoubleType\(\)\)",
    ),
    "struct": (
        "bad = T.StructType.fromDDL('a int, b string')",
        r"'a int, b string': write StructType\(\[StructField",
    ),
    "column": ("bad = F.col('a')", r"call col\(\) inside of the function that task.transform names"),
    "literal": ("bad = F.lit(1)", r"call lit\(\) inside"),
    "expression": ("bad = F.expr('a + 1')", r"call expr\(\) inside"),
    "window": ("bad = Window.partitionBy('a')", r"call partitionBy\(\) inside"),
    "session": ("bad = SparkSession.active()", r"call active\(\) inside .* rows\.sparkSession"),
}

NEEDS_NONE = (
    "@F.udf(T.StringType())\ndef good(v): return v",
    "@F.udf\ndef good(v): return v",
    "@F.pandas_udf(T.DoubleType())\ndef good(v: 'pd.Series') -> 'pd.Series': return v",
    "good = T.StructType([T.StructField('a', T.LongType())]).add('b', 'string')",
)


def find_step(directory: Path, line: str, config: JobConfig = CONFIG) -> None:
    text = (
        "from pyspark.sql import SparkSession, Window, functions as F, types as T\nimport pandas as pd\n"
        f"{line}\ndef step(rows, state, out): ...\n"
    )
    (directory / "top_job.py").write_text(text, encoding="utf-8")
    with job_code(directory, ["top_job.py"]):
        step_of(config)
        check_starts_no_spark(config)


def test_what_needs_a_session_is_refused_with_what_to_write(tmp_path: Path) -> None:
    for kind, (line, said) in NEEDS_SESSION.items():
        with case(kind), pytest.raises(BadConfiguration, match=said) as refused:
            find_step(tmp_path, line)
        assert "no Spark session while a module is imported" in str(refused.value), kind
        assert "(top_job.py, line 3)" in str(refused.value), kind


def test_what_needs_no_session_works_and_other_errors_are_reported_as_they_are(tmp_path: Path) -> None:
    for line in NEEDS_NONE:
        with case(line):
            find_step(tmp_path, line)
    for line in ("None._jvm", "raise AssertionError('mine')", "F.udf(1)"):
        with case(line), pytest.raises(BadConfiguration, match=r"raised \w+") as refused:
            find_step(tmp_path, line)
        assert "session" not in str(refused.value), line


def test_spark_that_was_started_by_the_import_is_refused_before_the_feed_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    started = "from types import SimpleNamespace; F.SparkContext = None\nimport pyspark\n"
    started += "pyspark.SparkContext._gateway = SimpleNamespace()"
    with pytest.raises(BadConfiguration, match=r"has started Spark itself .* rows\.sparkSession"):
        find_step(tmp_path, started)
    # The plain feed has no Spark that it could collide with.
    SparkContext._gateway = SimpleNamespace()
    find_step(tmp_path, "", dataclasses.replace(CONFIG, feed="plain"))


def test_a_type_is_written_as_an_object() -> None:
    for text, written in {
        " String ": "StringType()",
        "bigint": "LongType()",
        "decimal(10, 2)": "DecimalType(10, 2)",
        "decimal(10)": "DecimalType(10, 0)",
        "array<array<int>>": "ArrayType(ArrayType(IntegerType()))",
        "map<string, array<double>>": "MapType(StringType(), ArrayType(DoubleType()))",
        "a: int": "StructType([StructField(name, type), ...])",
    }.items():
        assert type_of(text) == written


# ---- errors of the job's expressions ----


class Java:
    """A Java exception as py4j shows it."""

    def __init__(self, name: str, message: str, cause: Java | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getClass(self) -> Java:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self._name

    def getMessage(self) -> str:  # noqa: N802
        return self._message

    def getCause(self) -> Java | None:  # noqa: N802
        return self._cause


class Captured(PySparkException):
    """What pyspark makes of an exception of the JVM's."""

    def __init__(self, origin: Java) -> None:
        super().__init__("Job aborted due to stage failure")
        self._origin = origin


def raised(cause: Java) -> Captured:
    return Captured(Java("org.apache.spark.SparkException", "Job aborted due to stage failure", cause))


OF_THE_USER = [
    Java("org.apache.spark.SparkNumberFormatException", "[CAST_INVALID_INPUT]"),
    Java("java.lang.ArithmeticException", "/ by zero", Java("java.lang.RuntimeException", "why")),
    # The decoders of Avro and of others end with an input error where a value is cut short.
    Java(
        "org.apache.spark.SparkException",
        "Malformed records are detected in record parsing.",
        Java("java.io.EOFException", ""),
    ),
    # A function in Java with a field that is none of Java's values.
    Java(
        "org.apache.spark.SparkException",
        "Task not serializable",
        Java("java.io.NotSerializableException", "org.example.Codec"),
    ),
]

NOT_OF_THE_USER = [
    Java("java.io.IOException", "No space left on device"),
    Java(
        "java.lang.RuntimeException", "a task failed", Java("java.lang.OutOfMemoryError", "Java heap space")
    ),
    Java("java.lang.InterruptedException", "sleep interrupted"),
    Java("java.net.SocketTimeoutException", "Accept timed out"),
    Java("org.apache.spark.SparkException", "[SPARK_JOB_CANCELLED] Job 3 cancelled part of job group"),
    # A static table that cannot be read now.
    Java("org.apache.spark.SparkException", "[FAILED_READ_FILE.NO_HINT] Error", Java("java.lang.Error", "")),
    Java("org.apache.spark.SparkException", "no table", Java("java.net.ConnectException", "refused")),
    Java("org.apache.spark.SparkException", "too late", Java("java.util.concurrent.TimeoutException", "")),
]


def test_expression_that_refuses_a_value_is_the_jobs_and_a_fault_of_the_machine_is_not() -> None:
    for cause in OF_THE_USER:
        assert is_user_error(raised(cause)), cause.getMessage()
    for cause in NOT_OF_THE_USER:
        assert not is_user_error(raised(cause)), cause.getMessage()
    assert not is_user_error(ValueError("no Java"))


def test_what_takes_too_much_at_once_may_succeed_with_fewer_rows() -> None:
    limit = "Total size of serialized results of 1 tasks (78.4 KiB) is bigger than spark.driver.maxResultSize"
    for name, message in (
        ("org.apache.spark.SparkException", limit),
        ("org.apache.spark.memory.SparkOutOfMemoryError", "[UNABLE_TO_ACQUIRE_MEMORY]\nmore"),
        (
            "org.apache.arrow.vector.util.OversizedAllocationException",
            "Memory required for vector is too large",
        ),
    ):
        first, _, _ = message.partition("\n")
        assert too_much(raised(Java(name, message))) == f"{name}: {first}"
    for cause in (*OF_THE_USER, *NOT_OF_THE_USER):
        assert too_much(raised(cause)) is None


# ---- errors of a start, and of a plan ----


def asked(error: BaseException, *, is_codes: bool = False) -> StandfastError:
    """Return what is reported when the JVM answers a call with ``error``, or the job's code has raised it."""
    spark = Spark.__new__(Spark)
    spark.process = SimpleNamespace(ends_within=lambda seconds: False)  # type: ignore[assignment]
    given = error
    if is_codes:
        given = BadConfiguration("task.transform: it raised something")
        given.__cause__ = error
    asking = spark.asking("its session was started", "its settings", PATIENCE_SECONDS)
    with pytest.raises(StandfastError) as reported, asking:
        raise given
    return reported.value


def of_the_system(number: int, path: str = "/d") -> OSError:
    return OSError(number, os.strerror(number), path)


#: An error → what is said about it, whether a call into the JVM or the job's code raised it.
OUTSIDE: list[tuple[BaseException, str]] = [
    (of_the_system(errno.EMFILE), "Too many open files: '/d'"),
    (of_the_system(errno.ENOSPC), "No space left on device"),
    (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
    (socket.gaierror(-3, "Temporary failure in name resolution"), "name resolution"),
    (MemoryError(), "MemoryError"),
    (RuntimeError("can't start new thread"), "can't start new thread"),
    (Py4JNetworkError("Answer from Java side is empty"), "Answer from Java side is empty"),
    (Py4JError("An error occurred while calling o7.select"), "o7.select"),
    *((raised(each), each.getMessage()) for each in NOT_OF_THE_USER if each.getCause() is None),
    *(
        (raised(Java(name, said)), f"{name}: {said}")
        for name, said in (
            ("java.io.FileNotFoundException", "/tmp/rows (Too many open files)"),
            ("java.nio.file.FileSystemException", "/tmp/rows: No space left on device"),
            ("java.net.BindException", "Cannot assign requested address"),
        )
    ),
]

#: The same of what is the fault of the settings, or of the transform.
INSIDE: list[BaseException] = [
    raised(Java("java.lang.IllegalArgumentException", "spark.driver.cores should be int, but was many")),
    raised(Java("java.io.FileNotFoundException", "Jar /opt/job.jar not found")),
    raised(Java("java.nio.file.NoSuchFileException", "/data/planes")),
    raised(
        Java(
            "org.apache.hadoop.mapred.InvalidInputException",
            "Input path does not exist: file:/data/planes",
            Java("java.io.IOException", "Input path does not exist: file:/data/planes"),
        )
    ),
    PySparkException("[PATH_NOT_FOUND] Path does not exist: file:/data/planes"),
    Py4JError(
        "An error occurred while calling o7.select. Trace:\npy4j.Py4JException: Method select([]) does not exist"
    ),
]


def test_what_the_host_lacks_and_who_does_not_answer_is_no_fault_of_settings_or_of_a_transform() -> None:
    for error, said in OUTSIDE:
        for is_codes in (False, True):
            with case(said, is_codes):
                reported = asked(error, is_codes=is_codes)
                assert isinstance(reported, Transient)
                assert said in str(reported)
    for error in INSIDE:
        for is_codes in (False, True):
            with case(str(error), is_codes):
                assert isinstance(asked(error, is_codes=is_codes), BadConfiguration)
    # A call into the JVM opens no file of the job, but pyspark opens its own.
    assert isinstance(asked(of_the_system(errno.ENOENT)), Transient)
    assert isinstance(asked(of_the_system(errno.ENOENT), is_codes=True), BadConfiguration)
