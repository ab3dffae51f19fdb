"""Whatever an exception of the job's own code is: text of it can be had, encoded, and is bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from standby.errors import BadConfiguration
from standby.replica.failing import code_error
from standby.replica.outbox import Outbox
from standby.shared import errortext
from tests.fakes.errors import KINDS


def raised(act: Callable[[], object]) -> BaseException:
    """Return what ``act`` raises, with its traceback."""
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - any kind
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_any_exception_is_bounded_and_can_be_encoded(kind: str) -> None:
    def step() -> None:
        error = KINDS[kind]()
        raise error

    error = raised(step)
    found = code_error(error)
    for text, most in {
        found.kind: 500,
        found.message: 500,
        errortext.first_line(error): errortext.DETAIL_CHARACTERS,
        errortext.text_of(error): errortext.LOG_CHARACTERS,
        found.traceback: errortext.TRACEBACK_CHARACTERS,
        errortext.full_traceback(error): errortext.LOG_CHARACTERS,
        errortext.summary_of(error): 1_002,
    }.items():
        assert len(text) <= most
        text.encode()
    assert found.kind == type(error).__name__
    assert "in step" in found.traceback, "where it was raised is there"
    assert found.kind in found.traceback


def test_a_traceback_shows_where_the_jobs_code_raised_and_not_what_called_it() -> None:
    outbox = Outbox(("out",))

    def step() -> None:
        outbox.emit("no bytes", b"")  # type: ignore[arg-type]

    error = raised(step)
    text = errortext.traceback_of(error)
    assert text.startswith("Traceback (most recent call last):")
    assert 'outbox.emit("no bytes", b"")' in text
    assert "outbox.py" not in text
    assert text.splitlines()[-1] == "TypeError: an output record has bytes or None, not str and bytes"
    assert "outbox.py" in errortext.full_traceback(error)


def test_a_traceback_has_the_causes_too() -> None:
    def load() -> None:
        raise KeyError("plane")

    def step() -> None:
        try:
            load()
        except KeyError as error:
            raise BadConfiguration("importing it failed") from error

    text = errortext.traceback_of(raised(step))
    assert text.index("in load") < text.index("KeyError: 'plane'") < text.index("BadConfiguration")


def test_of_a_long_traceback_the_beginning_and_the_end_stay() -> None:
    def dive(depth: int) -> None:
        if depth:
            dive_again(depth)
        raise LookupError("at the bottom")

    def dive_again(depth: int) -> None:
        dive(depth - 1)

    text = errortext.traceback_of(raised(lambda: dive(200)))
    assert len(text) == errortext.TRACEBACK_CHARACTERS
    assert "[…]" in text
    assert text.splitlines()[-1] == "LookupError: at the bottom"
    assert "dive(200)" in text


#: As Spark 4.2 tells of an exception in a Python worker, but for the paths.
_WORKERS = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 3302, in main
    process()
  File "/yarn/container_5/code/planes.py", line 41, in clean
    raise LookupError(f"no such plane: {value}")
LookupError: no such plane: N1
"""


def test_of_an_exception_in_a_worker_of_spark_the_workers_traceback_is_shown() -> None:
    exception_of_spark = type(
        "PythonException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"}
    )
    error = exception_of_spark(
        _WORKERS + "\n\tat org.apache.spark.api.python.Base.handle(PythonRunner.scala:581)\n"
    )
    found = code_error(error)
    assert (found.kind, found.message) == ("LookupError", "no such plane: N1")
    assert errortext.summary_of(error) == "LookupError: no such plane: N1"
    assert found.traceback.splitlines() == [
        "Traceback (most recent call last):",
        '  File "/yarn/container_5/code/planes.py", line 41, in clean',
        '    raise LookupError(f"no such plane: {value}")',
        "LookupError: no such plane: N1",
    ]


_CALLING = "An error occurred while calling o286.compute"
_AWAITED = "org.apache.spark.SparkException: Exception thrown in awaitResult:"
_ABORTED = "org.apache.spark.SparkException: Job aborted due to stage failure: no space"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{_CALLING}.\n: java.lang.Error: no codec\n\tat x.Codec.get", "java.lang.Error: no codec"),
        (f"{_CALLING}. Trace:\npy4j.Py4JException: no method\n\tat y", "py4j.Py4JException: no method"),
        ("\n\nJVM stacktrace:\njava.lang.Error\n\tat x.Codec.get", "java.lang.Error"),
        (f"{_CALLING}.\n: {_AWAITED} \n\tat x\nCaused by: {_ABORTED}\n\tat y", _ABORTED),
        (_CALLING, _CALLING),
    ],
    ids=["of Java", "of py4j", "without a message", "of what was waited for", "no answer"],
)
def test_of_an_error_of_a_call_into_the_jvm_the_exception_there_is_shown(text: str, said: str) -> None:
    error = type("Py4JJavaError", (Exception,), {})(text)
    assert errortext.first_line(error) == said
    assert errortext.summary_of(error) == f"Py4JJavaError: {said}"
    assert code_error(error).message == said
