"""The end of a query is reported, whatever ends the wait for it. Without a JVM."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

from standby.adapters.spark.query import Sink, SparkQuery
from standby.errors import Transient
from tests.patience import PATIENCE_SECONDS


class QueryThatFails:
    """A streaming query, with the writer that starts it, whose end cannot be awaited."""

    def __init__(self, failure: BaseException) -> None:
        self._failure = failure

    @property
    def writeStream(self) -> QueryThatFails:  # noqa: N802
        return self

    def foreachBatch(self, _: object) -> QueryThatFails:  # noqa: N802
        return self

    def options(self, **_: str) -> QueryThatFails:
        return self

    def option(self, *_: str) -> QueryThatFails:
        return self

    def start(self) -> QueryThatFails:
        return self

    def awaitTermination(self) -> None:  # noqa: N802
        raise self._failure


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (StreamingQueryException("it failed"), StreamingQueryException),
        (Py4JNetworkError("it is away"), Py4JNetworkError),
        # As from a part of pyspark or py4j that meets an answer it does not expect; no code of the job's ran.
        (AttributeError("no such answer"), Transient),
        (SystemExit(1), Transient),
    ],
)
def test_any_error_that_ends_the_wait_is_reported(
    tmp_path: Path, failure: BaseException, reported: type[BaseException]
) -> None:
    ends: list[BaseException | None] = []
    has_ended = threading.Event()

    def end(error: BaseException | None) -> None:
        ends.append(error)
        has_ended.set()

    spark: Any = SimpleNamespace(count_query=lambda: None, forget_query=lambda _: None)
    frame: Any = QueryThatFails(failure)
    SparkQuery(spark, frame, tmp_path / "checkpoint", Sink(lambda *_: None, end), {})
    assert has_ended.wait(PATIENCE_SECONDS), "the query's end was never reported"
    (told,) = ends
    assert isinstance(told, reported)
    assert str(failure) in str(told)
    assert failure in (told, told.__cause__)
