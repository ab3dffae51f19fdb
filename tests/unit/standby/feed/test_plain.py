from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pytest

from standby.adapters.kafka.input import InputBounds, InputReader
from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.feed.make import check_transform, make_feed
from standby.feed.plain import PlainFeed
from standby.ports import UnreadableRecord
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.cases import case
from tests.fakes.jobs import job_config
from tests.patience import PATIENCE_SECONDS

CONFIG = job_config(task__feed="plain")


def keep(rows: Any) -> Any:
    return rows


def drop_offset(rows: Any) -> Any:
    return rows.drop_columns(["_offset"])


def to_list(rows: Any) -> Any:
    return rows.to_pylist()


def fail(rows: Any) -> Any:
    raise LookupError("no dictionary")


def leave(rows: Any) -> Any:
    sys.exit("nothing to do")


def config(name: str) -> JobConfig:
    return dataclasses.replace(CONFIG, transform=f"{__name__}:{name}" if name else "")


def test_a_transform_that_keeps_the_reserved_columns_passes_and_another_is_refused() -> None:
    for name in ("", "keep"):
        with case(name):
            check_transform(config(name))
    for name, said in {
        "drop_offset": "returns no column '_offset'",
        "to_list": "returned a list",
        "fail": "raised LookupError on an empty table: no dictionary",
        "absent": "has no function 'absent'",
    }.items():
        with case(name), pytest.raises(BadConfiguration, match=said):
            check_transform(config(name))


class Record:
    """A record of Kafka's with a time."""

    def __init__(self, offset: int, millis: int) -> None:
        self._offset, self._millis = offset, millis

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b""

    def timestamp(self) -> tuple[int, int]:
        return 1, self._millis

    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


def test_a_time_beyond_all_timestamps_names_the_record() -> None:
    feed = PlainFeed(CONFIG, JobDefinition(name="j", run="r", config={}, changelog="c", group="g", tasks=1))
    latest = (2**63 - 1) // 1000
    times: list[Any] = [Record(3, -1), Record(4, latest)]
    later: Any = Record(5, latest + 1)
    assert feed._table(times)["timestamp"].cast("int64").to_pylist() == [-1000, latest * 1000]
    with pytest.raises(
        UnreadableRecord, match=rf"input in\[0\], offset 5: the record's time, {latest + 1} ms"
    ):
        feed._table([*times, later])


class NoInput:
    """A reader and its bounds, of an input in which nothing comes."""

    def __init__(self) -> None:
        self.ran_at: list[str] = []

    def ask(self, partitions: Any) -> None:
        self.ran_at.append("ask")

    def check(self, starts: Any) -> None:
        self.ran_at.append("look")

    def assign(self, starts: Any, ends: Any) -> None:
        self.ran_at.append("assign")

    def read(self, *_: Any) -> list[Any]:
        self.ran_at.append("read")
        return []

    def positions(self) -> dict[Any, int]:
        raise LookupError("enough")

    def close(self) -> None:
        self.ran_at.append("close")


def test_what_a_transform_runs_on_is_known_while_it_runs_and_not_while_the_feed_reads() -> None:
    """What ends the process meanwhile is put down to it (rule `fair-blame`)."""
    source = NoInput()
    one = TaskId("plain", "main", 1)

    @contextmanager
    def transforming(starts: Mapping[TaskId, Offsets]) -> Iterator[None]:
        source.ran_at.append(f"transform {dict(starts)}")
        yield
        source.ran_at.append("transformed")

    feed = PlainFeed(config("keep"), JobDefinition("plain", "r1", {}, "changelog", "group", 1), transforming)
    feed._bounds = cast("InputBounds", source)
    feed._spare = cast("InputReader", source)
    feed.start({one: Offsets.of(7)}, lambda batches: None)
    assert feed.wait(PATIENCE_SECONDS)
    assert isinstance(feed.failure, LookupError)
    starts = {one: Offsets.of(7)}
    assert source.ran_at == ["look", "assign", "read", f"transform {starts}", "transformed", "close"]


def test_a_job_for_spark_without_a_transform_gets_this_feed() -> None:
    """A JVM would have nothing to run."""
    job = JobDefinition("plain", "r1", {}, "changelog", "group", 1)
    assert isinstance(make_feed(job_config(task__feed="spark"), job), PlainFeed)


@pytest.mark.parametrize("name", ["fail", "leave", "to_list"])
def test_a_transform_that_fails_on_no_rows_is_no_failure_of_warming_up(name: str) -> None:
    """What `warm` raises that is no error of ours ends the container, with all that it stands by for."""
    source = NoInput()
    feed = PlainFeed(config(name), JobDefinition("plain", "r1", {}, "changelog", "group", 1))
    feed._bounds = cast("InputBounds", source)
    feed._spare = cast("InputReader", source)
    feed.warm()
    assert source.ran_at == ["ask"]
    assert feed.is_warm
