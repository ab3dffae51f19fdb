"""Names and texts of every kind that Kafka allows, and jobs with next to nothing to do, on the real cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedded.cluster import LocalCluster
from tests.system.yarn.counting import CountingJob, submitted

#: Keys and values of several scripts, of no letters at all, and of none.
TEXTS = ("Zürich", "東京", "Ω≈ç√", "👩🏽‍🚀", "naïve résumé", "line\nbreak", "", "\u200b", "a\x00b", "ﷺ")

ZONES = {"127.0.0.11": "Süd", "127.0.0.12": "北", "127.0.0.13": "Süd"}


@pytest.fixture
def jobs(cluster: LocalCluster, tmp_path: Path) -> Iterator[tuple[CountingJob, CountingJob]]:
    """Return two jobs whose names differ only in dots, dashes and underscores: of one task, and of two."""
    settings: dict[str, Any] = {
        "yarn.host.attributes": [f"{host}=zone:{zone}" for host, zone in ZONES.items()],
        "job.locality.spread": "zone",
    }
    one = CountingJob(cluster, tmp_path / "one", "name_a.b-c", "in_put.a-b", 1, **settings)
    two = CountingJob(cluster, tmp_path / "two", "name.a_b-c", "in-put.a_b", 2, **settings)
    with submitted(one, two):
        yield one, two


def fail_over(job: CountingJob, task: int) -> None:
    """Kill a task's active, and wait until the standby has followed it."""
    standby = job.replica(task, active=False)
    job.send(job.replica(task, active=True), signal.SIGKILL)
    job.wait(lambda status: status.tasks[task].active == standby.copy, "the standby as active")


def test_each_job_is_placed_counts_and_fails_over_for_itself(jobs: tuple[CountingJob, CountingJob]) -> None:
    one, two = jobs
    for job in jobs:
        for task in job.status.tasks:
            assert len({ZONES[each.host or ""] for each in task.replicas}) == 2, f"{task}\n{job.story()}"
    pairs = [(key.encode(), value.encode()) for value in TEXTS for key in TEXTS]
    before = {(each.partition, each.epoch) for each in two.status.tasks}
    one.produce(0, pairs)
    one.assert_exact()
    fail_over(one, 0)
    one.produce(0, reversed(pairs))
    one.assert_exact()
    two.assert_exact()
    assert {(each.partition, each.epoch) for each in two.status.tasks} == before
    # Of a partition that has never had a record.
    fail_over(two, 1)
    two.produce(0, pairs)
    two.produce(1, [(b"zum ersten Mal", b"1")])
    two.assert_exact()
