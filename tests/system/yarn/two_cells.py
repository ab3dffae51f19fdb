"""Shared by tests of a job in two cells: the leader, its process, and the places of the copies."""

from __future__ import annotations

from collections.abc import Callable

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.records import CandidateRecord
from demo.standing import Status
from embedded.state import ContainerProcess
from tests.patience import soon
from tests.system.yarn.counting import CountingJob, Pair
from tests.system.yarn.running import RunningJob

#: The AM is a JVM; its candidate is a Python process of the same container.
AM, CANDIDATE = "com.anaconda.skein.ApplicationMaster", "appmaster"


def pairs(partition: int, begin: int = 0, count: int = 300) -> list[Pair]:
    """Return so many records, of keys that no other partition has."""
    return [
        (b"key %d of %d" % (each % 7, partition), b"value %d" % each) for each in range(begin, begin + count)
    ]


def master(job: RunningJob, container: str, module: str) -> ContainerProcess:
    """Return a process of a master's container: the one that runs ``module``."""
    for each in job.cluster.container_processes():
        if each.container_id == container and module in each.command:
            return each
    raise AssertionError(f"{container} has no {module}")


def leader(zookeeper: ZooKeeper) -> CandidateRecord:
    """Return the candidate that leads."""
    record = zookeeper.election.controller()
    assert record is not None
    return next(each for each in zookeeper.registry.candidates() if each.candidate == record.candidate)


def has_rejoined(zookeeper: ZooKeeper, was: CandidateRecord) -> bool:
    """Return whether a candidate that ended stands again, as another one."""
    found = {each.candidate for each in zookeeper.registry.candidates() if each.cell == was.cell}
    return bool(found) and was.candidate not in found


def cells_of_copies(job: CountingJob) -> list[set[int | None]]:
    """Return, task by task, the cells that its copies are in."""
    status = job.client.status()
    cells = {each["container"]: each["cell"] for each in status["containers"]}
    return [{cells.get(each["container"]) for each in task["replicas"]} for task in status["tasks"]]


def cells_of_actives(job: CountingJob) -> set[int]:
    """Return the cells that hold actives."""
    status = job.client.status()
    cells = {each["container"]: each["cell"] for each in status["containers"]}
    return {
        cells[each["container"]]
        for task in status["tasks"]
        for each in task["replicas"]
        if each["copy"] == task["active"]
    }


def is_whole(job: CountingJob) -> Callable[[Status], bool]:
    """Return what says that every replica is in place and settled."""
    return lambda status: (
        all(each.status == "deployed" for each in status.jobs)
        and all(each.container is not None for task in status.tasks for each in task.replicas)
    )


def whole_in_both_cells(job: CountingJob) -> None:
    """Wait until the job is deployed, each task's copies in different cells."""
    job.wait(is_whole(job), "a whole job")
    soon(lambda: all(each == {1, 2} for each in cells_of_copies(job)), "copies in both cells")
    job.wait(is_whole(job), "a whole job")
