"""What Spark's errors mean: the job's expressions, or not."""

from __future__ import annotations

from pyspark.errors import PySparkException

from standby.adapters.spark.session import is_user_error


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
]

NOT_OF_THE_USER = [
    Java("java.io.IOException", "No space left on device"),
    Java(
        "java.lang.RuntimeException", "a task failed", Java("java.lang.OutOfMemoryError", "Java heap space")
    ),
    Java("java.lang.InterruptedException", "sleep interrupted"),
    Java("java.net.SocketTimeoutException", "Accept timed out"),
    Java("org.apache.spark.SparkException", "[SPARK_JOB_CANCELLED] Job 3 cancelled part of job group"),
]


def test_expression_that_refuses_a_value_is_the_jobs_and_a_fault_of_the_machine_is_not() -> None:
    for cause in OF_THE_USER:
        assert is_user_error(raised(cause)), cause.getMessage()
    for cause in NOT_OF_THE_USER:
        assert not is_user_error(raised(cause)), cause.getMessage()
    assert not is_user_error(ValueError("no Java"))
