"""A job of two inputs on a real YARN: its restores stand still while it says so, and it is exact in both."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from demo.standing import Replica, Status, what_is_missing
from embedded.cluster import LocalCluster
from tests.system.yarn.counting import CountingJob, submitted
from tests.system.yarn.two_inputs import flow

NAME = "merged"
ALSO = "merged-also"
TASKS = 2


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingJob]:
    job = CountingJob(cluster, tmp_path_factory.mktemp("merged") / "job", NAME, NAME, TASKS, [ALSO])
    with submitted(job):
        job.wait(is_whole, "whole")
        yield job


def is_whole(status: Status) -> bool:
    return not what_is_missing(status, TASKS, 2)


def test_a_restoring_standby_stands_still_while_the_job_says_so(job: CountingJob) -> None:
    job.wait(is_whole, "whole")

    def standby_in(status: Status) -> Replica:
        (standby,) = (each for each in status.tasks[0].replicas if each.copy != status.tasks[0].active)
        return standby

    def held_back(status: Status) -> Replica | None:
        """Return the standby of task 0 if it is restoring, and said to wait."""
        standby = standby_in(status)
        waits = "job.restore.paused" in standby.detail and standby.lag_records
        return standby if standby.phase == "restoring" and waits else None

    # Input flows all the time: whatever state the new process finds or fetches, it is behind.
    with flow(job, ALSO):
        job.standfast("update", str(job.file), "--set", "job.restore.paused=all")
        victim = job.replica(0, active=False)
        job.send(victim, signal.SIGKILL)
        first = held_back(job.wait(lambda status: held_back(status) is not None, "a standby that waits"))
        assert first is not None
        assert first.container != victim.container
        lag = first.lag_records or 0
        later = held_back(
            job.wait(lambda status: ((held_back(status) or first).lag_records or 0) > lag, "more to restore")
        )
        assert later is not None
        assert (later.container, later.applied) == (first.container, first.applied)
        # Without the key it goes on, in the same process; the command waits for it.
        job.standfast("update", str(job.file))
        standby = standby_in(job.wait(is_whole, "whole again"))
        assert standby.container == first.container
        assert (standby.applied or 0) > (first.applied or 0)
        assert not standby.detail
    job.assert_exact()
    task = job.ask("status", NAME)["tasks"][0]
    (active,) = (each for each in task["replicas"] if each["copy"] == task["active"])
    assert set(active["input_offsets"]) == {NAME, ALSO}
    assert all(active["input_offsets"].values())
    assert sum(active["input_offsets"].values()) == active["input_committed"]
