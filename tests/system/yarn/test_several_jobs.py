"""Two jobs in one cluster on a real YARN: they come, go and come again, and each counts exactly all the while."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

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


def test_one_is_killed_comes_back_and_is_deleted_while_the_other_counts_on(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    first, second = job(cluster, tmp_path, "one"), job(cluster, tmp_path, "two")
    with ExitStack() as ends, ExitStack() as end_of_second:
        ends.callback(first.close)
        started = submit(first)
        end_of_second.callback(second.close)
        joined = submit(second)
        applications = [
            line.partition("submitted as ")[2] for line in started.splitlines() if "submitted as" in line
        ]
        assert applications
        assert all(f"submitted as {each}" in joined for each in applications), joined
        for each in (first, second):
            each.produce(0, some(300, 7))
            each.assert_exact()
        before = first.epochs
        second.standfast("kill", second.name, "--cluster", CLUSTER)
        first.produce(0, some(300, 7, 300))
        second.produce(0, some(300, 7, 300))
        first.assert_exact()
        assert statuses(first) == {"one": "deployed", "two": "undeployed"}
        assert "undeployed" in second.standfast("status", second.name, "--cluster", CLUSTER, status=1)
        submit(second)
        second.assert_exact()
        assert first.epochs == before, "nobody in the other job has noticed"
        # It is deleted.
        end_of_second.close()
        assert statuses(first) == {"one": "deployed"}
        said = refused(second, "--set", "cluster-manager.container.memory.mb=300")
        assert "cluster-manager.container.memory.mb: 300, and the cluster has 256" in said
        assert "runs already in" in refused(first)
        assert first.epochs == before, "nor of the end"
        first.assert_exact()


def statuses(each: CountingJob) -> dict[str, str]:
    """Return the cluster's jobs, and how they are."""
    return {found["job"]: found["status"] for found in each.ask("jobs", "--cluster", CLUSTER)}


def refused(each: CountingJob, *more: str) -> str:
    """Return why a submit is refused."""
    command = each.submit(*more)
    said = command.communicate(timeout=PATIENCE_SECONDS)[0]
    assert command.returncode == 2, said
    return said
