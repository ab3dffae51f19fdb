from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from standby.config import JobConfig, parse
from standby.errors import BadConfiguration
from standby.feed.make import check_transform
from standby.feed.plain import PlainFeed
from standby.ports import UnreadableRecord
from standby.wire import JobDefinition

CONFIG = parse(
    {
        "job.name": "plain",
        "task.inputs": "in",
        "task.step": "job:step",
        "task.feed": "plain",
        "kafka.bootstrap.servers": "nowhere:1",
        "zookeeper.connect": "nowhere:2",
    }
)


def keep(rows: Any) -> Any:
    return rows


def drop_offset(rows: Any) -> Any:
    return rows.drop_columns(["_offset"])


def to_list(rows: Any) -> Any:
    return rows.to_pylist()


def fail(rows: Any) -> Any:
    raise LookupError("no dictionary")


def config(name: str) -> JobConfig:
    return dataclasses.replace(CONFIG, transform=f"{__name__}:{name}" if name else "")


@pytest.mark.parametrize("name", ["", "keep"])
def test_a_transform_that_keeps_the_reserved_columns_passes(name: str) -> None:
    check_transform(config(name))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("drop_offset", "returns no column '_offset'"),
        ("to_list", "returned a list"),
        ("fail", "raised LookupError on an empty table: no dictionary"),
        ("absent", "has no function 'absent'"),
    ],
)
def test_a_transform_that_cannot_work_is_refused_before_it_is_deployed(name: str, said: str) -> None:
    with pytest.raises(BadConfiguration, match=said):
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
