"""Two jobs in one cluster on a real YARN: they come, go and come again, and each counts exactly all the while."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS
from tests.system.yarn.counting import CountingJob, some

CLUSTER = "shared"


def job(cluster: LocalCluster, directory: Path, name: str) -> CountingJob:
    settings = {"cluster.name": CLUSTER, "job.container.count": "1"}
    return CountingJob(cluster, directory / name, name, f"shared-{name}", 1, **settings)


def submit(each: CountingJob) -> str:
    """Submit a job into its cluster; return what the command says once it is deployed."""
    command = each.submit()
    said = command.communicate(timeout=3 * PATIENCE_SECONDS)[0]
    assert command.returncode == 0, said
    return said


@pytest.fixture
def jobs(cluster: LocalCluster, tmp_path: Path) -> Iterator[tuple[CountingJob, CountingJob]]:
    """Return a job that started the cluster, and one that was submitted into it."""
    first, second = job(cluster, tmp_path, "one"), job(cluster, tmp_path, "two")
    try:
        started, joined = submit(first), submit(second)
        applications = [
            line.partition("submitted as ")[2] for line in started.splitlines() if "submitted as" in line
        ]
        assert applications
        assert all(f"submitted as {each}" in joined for each in applications), joined
        yield first, second
    finally:
        for each in (second, first):
            each.close()


def test_one_is_killed_comes_back_and_is_deleted_while_the_other_counts_on(
    jobs: tuple[CountingJob, CountingJob],
) -> None:
    first, second = jobs
    for each in jobs:
        each.produce(0, some(300, 7))
        each.assert_exact()
    before = first.epochs
    second.standfast("kill", second.name, "--cluster", CLUSTER)
    first.produce(0, some(300, 7, 300))
    second.produce(0, some(300, 7, 300))
    first.assert_exact()
    listed = {
        each["job"]: each for each in json.loads(first.standfast("jobs", "--cluster", CLUSTER, "--json"))
    }
    assert {name: each["status"] for name, each in listed.items()} == {"one": "deployed", "two": "undeployed"}
    assert "undeployed" in second.standfast("status", second.name, "--cluster", CLUSTER, status=1)
    submit(second)
    second.assert_exact()
    assert first.epochs == before, "nobody in the other job has noticed"
    second.standfast("delete", second.name, "--cluster", CLUSTER)
    assert [each["job"] for each in first.ask("jobs", "--cluster", CLUSTER)] == ["one"]
    said = refused(second, "--set", "cluster-manager.container.memory.mb=300")
    assert "cluster-manager.container.memory.mb: 300, and the cluster has 256" in said
    assert "runs already in" in refused(first)
    assert first.epochs == before, "nor of the end"
    first.assert_exact()


def refused(each: CountingJob, *more: str) -> str:
    """Return why a submit is refused."""
    command = each.submit(*more)
    said = command.communicate(timeout=PATIENCE_SECONDS)[0]
    assert command.returncode == 2, said
    return said
