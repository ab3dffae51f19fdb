"""What fails again and again on the real cluster: a record, and a container. Two jobs, one for each end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from demo.scenario import now_ms
from demo.standing import Replica, Status, what_is_missing
from embedded.cluster import LocalCluster
from tests.patience import soon
from tests.system.yarn.counting import CountingJob, some, submitted

ATTEMPTS = 2
POISON = [(b"poisoned", b"poison")]


class Jobs(NamedTuple):
    """Jobs with a standby each."""

    letters: CountingJob
    """Two processors of one task; gives failing records up as dead letters; a processor that fails twice is parked."""
    failing: CountingJob
    """One task; a failing record ends it."""


@pytest.fixture(scope="module")
def jobs(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    directory = tmp_path_factory.mktemp("retries")
    attempts = {"task.on.error.attempts": str(ATTEMPTS)}
    letters = {
        "task.on.error": "dead-letter",
        "task.dead.letter": "letters-dead",
        "job.container.count": "2",
        "cluster-manager.container.retry.count": "1",
        "cluster-manager.container.retry.exhausted": "park",
    }
    jobs = Jobs(
        CountingJob(cluster, directory / "letters", "letters", "letters", 2, **attempts, **letters),
        CountingJob(
            cluster,
            directory / "failing",
            "failing",
            "failing",
            1,
            **attempts,
            # Enough to see what a further attempt does.
            **{"yarn.am.max.attempts": "2"},
        ),
    )
    with submitted(*jobs):
        yield jobs


def places(status: Status) -> set[tuple[int, int, str | None]]:
    return {(each.partition, copy.copy, copy.container) for each in status.tasks for copy in each.replicas}


def test_failing_record_becomes_one_dead_letter_and_kills_no_replica(jobs: Jobs) -> None:
    job, begun = jobs.letters, now_ms()
    before = places(job.status)
    job.produce(0, some(100, 7))
    job.produce(0, POISON, counts=False)
    job.produce(0, some(100, 7, 100))
    job.produce(1, [(b"other", b"1")])
    job.assert_exact()
    (letter,) = job.dead_letters()
    assert [(letter.key, letter.value)] == POISON
    (told,) = job.wait_for_events(lambda each: each.kind == "record_given_up", begun, "records given up")
    data = told.data or {}
    assert (data["topic"], data["partition"], data["offset"]) == (job.topic, 0, 100)
    assert (data["how"], told.reason) == ("dead-letter", "ValueError: a poisoned record")
    shown = job.wait(
        lambda status: any(each.dead_lettered == 1 for each in status.tasks[0].replicas), "a dead letter"
    )
    assert sum(each.skipped for each in shown.tasks[0].replicas) == 0
    assert places(job.status) == before
    assert "container_lost" not in job.kinds(begun)
    assert "replica_failed" not in job.kinds(begun)


def test_processor_that_fails_too_often_is_parked_and_comes_back_when_asked(jobs: Jobs) -> None:
    job, begun = jobs.letters, now_ms()
    other = job.replica(0, active=True)
    victim = job.replica(1, active=False)
    job.send_alone(victim, signal.SIGSEGV)
    back = job.wait(
        lambda status: _container(status, 1, victim.copy) not in (None, victim.container), "a new one"
    )
    job.send_alone(_replica(back, 1, victim.copy), signal.SIGSEGV)
    parked = job.wait_for_event("processor_parked", begun)
    assert "failed 2 times within 300000 ms, 1 are allowed" in (parked.reason or "")
    waiting = some(30, 3, 500)
    job.produce(1, [(b"parked " + key, value) for key, value in waiting])
    job.wait(lambda status: status.tasks[1].active is None, "the task without an active")
    status = job.wait(lambda status: status.jobs[0].status == "incomplete", "incomplete")
    assert any("parked" in each for each in status.jobs[0].reasons), status.jobs[0].reasons
    job.produce(0, some(30, 7, 300))
    job.assert_exact({0})
    assert job.replica(0, active=True).container == other.container, "the rest of the job runs on"
    number = (parked.data or {})["processor"]
    job.client.call("unpark", job=job.name, processor=number)
    job.wait(
        lambda status: not what_is_missing(status, 2, 2) and status.jobs[0].status == "deployed", "whole"
    )
    job.assert_exact()


def test_failing_record_ends_a_job_that_must_not_go_on_and_its_standby_is_not_tried(jobs: Jobs) -> None:
    job, begun = jobs.failing, now_ms()
    job.produce(0, some(40, 3))
    job.assert_exact()
    standby = job.replica(0, active=False)
    job.produce(0, POISON, counts=False)
    failed = job.wait_for_events(
        lambda each: each.kind == "job_status" and (each.data or {})["status"] == "failed", begun, "failed"
    )[0]
    assert "poison" in (failed.reason or "")
    assert "offsets [40, 41)" in (failed.reason or "")
    assert "a poisoned record" in (failed.reason or "")
    lost = [each for each in job.events(begun) if each.kind == "container_lost"]
    assert standby.container not in {each.container for each in lost}
    assert "failover_started" not in job.kinds(begun)
    (told,) = (each for each in job.events(begun) if each.kind == "replica_failed")
    raised = (told.data or {})["traceback"]
    assert 'raise ValueError("a poisoned record")' in raised
    assert "counting_job.py" in raised
    assert "standby/" not in raised, "the job's own frames"
    assert_told_after_the_end(job, raised, told.container or "")


def assert_told_after_the_end(job: CountingJob, raised: str, container: str) -> None:
    """Wait until the job's applications have ended: nobody was elected again, and what was raised is still told."""

    def cells() -> str:
        return job.standfast("cells", job.name, "--json", status=None)

    soon(lambda: '"is_running": true' not in cells(), cells)
    assert len([each for each in job.events() if each.kind == "leader_elected"]) == 1, job.story()
    status = job.standfast("status", job.name, status=1)
    assert "failed" in status.splitlines()[0]
    assert all(line in status for line in raised.splitlines())
    assert all(line in job.standfast("events", job.name) for line in raised.splitlines())
    logs = job.standfast("logs", job.name)
    assert container in logs
    assert "the step failed on input [40, 41)" in logs
    assert "batch.py" in logs, "with every frame"
    assert all(line in logs for line in raised.splitlines())


def _replica(status: Status, partition: int, copy: int) -> Replica:
    return next(each for each in status.tasks[partition].replicas if each.copy == copy)


def _container(status: Status, partition: int, copy: int) -> str | None:
    found = _replica(status, partition, copy)
    return found.container if found.in_sync else None
