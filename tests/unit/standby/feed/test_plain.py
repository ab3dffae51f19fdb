from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from standby.config import JobConfig, parse
from standby.errors import BadConfiguration
from standby.feed.make import check_transform

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
