from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest

from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.feed.make import check_transform, make_feed
from standby.feed.plain import PlainFeed, PlainTransform
from standby.shared.wire import JobDefinition
from tests.cases import case
from tests.fakes.jobs import job_config

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


def test_a_job_for_spark_without_a_transform_gets_this_feed() -> None:
    """A JVM would have nothing to run."""
    job = JobDefinition("plain", "r1", {}, "changelog", "group", 1)
    assert isinstance(make_feed(job_config(task__feed="spark"), job), PlainFeed)


@pytest.mark.parametrize("name", ["fail", "leave", "to_list"])
def test_a_transform_that_fails_on_no_rows_is_no_failure_of_warming_up(name: str) -> None:
    """What `warm` raises that is no error of ours ends the container, with all that it stands by for."""
    transform = PlainTransform(config(name))
    transform.warm(lambda: None)
    assert transform.is_warm
