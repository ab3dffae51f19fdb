"""What Spark's errors mean: the job's expressions, one record that its source cannot decode, or neither."""

from __future__ import annotations

from pyspark.errors import PySparkException

from standby.adapters.spark.session import is_user_error, unreadable


class Java:
    """A Java exception as py4j shows it."""

    def __init__(self, name: str, message: str, cause: Java | None = None, **parameters: str) -> None:
        self._name, self._message, self._cause, self._parameters = name, message, cause, parameters

    def getClass(self) -> Java:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self._name

    def getMessage(self) -> str:  # noqa: N802
        return self._message

    def getCause(self) -> Java | None:  # noqa: N802
        return self._cause

    def getMessageParameters(self) -> Java:  # noqa: N802
        return self

    def containsKey(self, name: str) -> bool:  # noqa: N802
        return name in self._parameters


class Captured(PySparkException):
    """What pyspark makes of an exception of the JVM's."""

    def __init__(self, origin: Java) -> None:
        super().__init__("[STREAM_FAILED] Query terminated with exception")
        self._origin = origin


def raised(cause: Java) -> Captured:
    job = Java("org.apache.spark.SparkException", "Job aborted due to stage failure", cause)
    query = Java("org.apache.spark.sql.streaming.StreamingQueryException", "[STREAM_FAILED]", job)
    return Captured(query)


PLACE = {"topic": "in", "partition": "0", "offset": "7"}
SOURCE = "org.apache.spark.sql.kafka010.KafkaIllegalStateException"
CLIENT = "org.apache.kafka.common.KafkaException"

ABOUT_A_RECORD = [
    # The kind of condition that names a record; its first one so far is about timestamps.
    Java(SOURCE, "[KAFKA_MALFORMED] Record at topic in partition 0 offset 7 overflows\nmore", None, **PLACE),
    # What the source's consumer raises, at once or behind records of the same fetch.
    Java(CLIENT, "Record for partition in-0 at offset 7 is invalid, cause: Record is corrupt"),
    Java(
        CLIENT,
        "Received exception when fetching the next record from in-0. If needed, please seek past the record",
        Java(CLIENT, "Record batch for partition in-0 at offset 7 is invalid, cause: Record is corrupt"),
    ),
]

ABOUT_NONE = [
    # A range that is not there, and an end that lies below a beginning.
    Java(SOURCE, "[KAFKA_DATA_LOSS] Could not read", None, topicPartition="in-0", offset="7"),
    Java(SOURCE, "[UNRESOLVED_START]", None, topic="in", partition="0", startOffset="7"),
    Java(CLIENT, "Failed to construct kafka consumer"),
    Java("java.util.concurrent.TimeoutException", "Cannot fetch record for offset 7 in 8000 milliseconds"),
]


def test_record_that_the_source_cannot_decode_is_told_in_one_line() -> None:
    for cause in ABOUT_A_RECORD:
        told = unreadable(raised(cause))
        assert told is not None, cause.getMessage()
        assert "offset 7" in told
        assert "\n" not in told
    for cause in ABOUT_NONE:
        assert unreadable(raised(cause)) is None, cause.getMessage()
    for cause in (*ABOUT_A_RECORD, *ABOUT_NONE):
        assert not is_user_error(raised(cause)), "it is none of the job's expressions"


def test_expression_that_refuses_a_value_is_the_jobs() -> None:
    error = raised(Java("org.apache.spark.SparkNumberFormatException", "[CAST_INVALID_INPUT]"))
    assert is_user_error(error)
    assert unreadable(error) is None
    assert unreadable(ValueError("no Java")) is None
