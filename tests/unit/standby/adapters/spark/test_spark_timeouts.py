"""A time-out that a job gives to its own sockets, as a default of the process, ends no call into Spark's JVM."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from standby.adapters.spark.exchange import RowExchange
from standby.adapters.spark.session import Spark
from standby.feed.rules.settings import session_settings
from tests.fakes.jobs import job_config
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

#: Longer than a connection on this machine is waited for, and shorter than what is asked here.
DEFAULT_SECONDS = 4 * A_MOMENT_SECONDS
MILLIS = int(2 * DEFAULT_SECONDS * 1_000)


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Spark]:
    made = Spark(session_settings(job_config(), scratch=str(tmp_path)), log=tmp_path / "log")
    socket.setdefaulttimeout(DEFAULT_SECONDS)
    try:
        yield made
    finally:
        socket.setdefaulttimeout(None)
        made.close()


def test_calls_and_batches_are_waited_for_as_long_as_they_take(spark: Spark) -> None:
    jvm: Any = spark.session._jvm
    # Over the connection that is there, and over one of a new thread.
    jvm.java.lang.Thread.sleep(MILLIS)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            jvm.java.lang.Thread.sleep(MILLIS)
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert failed == []
    # The rows of a batch come over a connection of their own.
    exchange = RowExchange()
    seconds = 2 * DEFAULT_SECONDS

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for batch in batches:
            time.sleep(seconds)
            yield batch

    try:
        frame = exchange.frame(spark.session, "n bigint", 1).mapInArrow(slow, "n bigint")
        exchange.put(pa.table({"n": [1, 2, 3]}), 1)
        assert frame.toArrow()["n"].to_pylist() == [1, 2, 3]
    finally:
        exchange.clear()
