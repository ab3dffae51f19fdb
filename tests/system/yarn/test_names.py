"""Names and texts of every kind that Kafka allows, and jobs with next to nothing to do, on the real cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from demo.standing import what_is_missing
from embedded.cluster import LocalCluster
from tests.system.yarn.counting import CountingJob, submitted

#: Keys and values of several scripts, of no letters at all, and of none.
TEXTS = ("Zürich", "東京", "Ω≈ç√", "👩🏽‍🚀", "naïve résumé", "line\nbreak", "", "\u200b", "a\x00b", "ﷺ")

ZONES = {"127.0.0.11": "Süd", "127.0.0.12": "北", "127.0.0.13": "Süd"}

Jobs = tuple[CountingJob, CountingJob]


@pytest.fixture(scope="module")
def jobs(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Return two jobs whose names differ only in dots, dashes and underscores: of one task, and of two."""
    directory = tmp_path_factory.mktemp("names")
    settings = {
        "yarn.host.attributes": [f"{host}=zone:{zone}" for host, zone in ZONES.items()],
        "job.locality.spread": "zone",
    }
    one = CountingJob(cluster, directory / "one", "name_a.b-c", "in_put.a-b", 1, **settings)
    two = CountingJob(cluster, directory / "two", "name.a_b-c", "in-put.a_b", 2, **settings)
    with submitted(one, two):
        yield one, two


def test_jobs_without_a_record_are_whole_and_have_put_out_nothing(jobs: Jobs) -> None:
    for job in jobs:
        status = job.wait(lambda status, tasks=job.partitions: not what_is_missing(status, tasks, 2), "whole")  # type: ignore[misc]
        assert status.jobs[0].status == "deployed"
        job.assert_exact()


def test_attributes_in_any_script_part_the_copies(jobs: Jobs) -> None:
    for job in jobs:
        for task in job.status.tasks:
            assert len({ZONES[each.host or ""] for each in task.replicas}) == 2, f"{task}\n{job.story()}"


def test_failover_of_one_task_with_texts_of_every_kind_leaves_the_other_job_alone(jobs: Jobs) -> None:
    one, two = jobs
    pairs = [(key.encode(), value.encode()) for value in TEXTS for key in TEXTS]
    one.produce(0, pairs)
    two.produce(0, pairs)
    one.assert_exact()
    two.assert_exact()
    before = {(each.partition, each.epoch) for each in two.status.tasks}
    standby = one.replica(0, active=False)
    one.send(one.replica(0, active=True), signal.SIGKILL)
    one.wait(lambda status: status.tasks[0].active == standby.copy, "the standby as active")
    one.produce(0, reversed(pairs))
    one.assert_exact()
    assert {(each.partition, each.epoch) for each in two.status.tasks} == before


def test_active_of_a_partition_without_records_fails_over_like_any_other(jobs: Jobs) -> None:
    _, two = jobs
    standby = two.replica(1, active=False)
    two.send(two.replica(1, active=True), signal.SIGKILL)
    two.wait(
        lambda status: not what_is_missing(status, 2, 2) and status.tasks[1].active == standby.copy,
        "whole again",
    )
    assert "failover_finished" in two.kinds()
    two.produce(0, [("später".encode(), b"1")])
    two.assert_exact()
    two.produce(1, [(b"zum ersten Mal", b"1")])
    two.assert_exact()
