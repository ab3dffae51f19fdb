"""A record that fails again and again on a real YARN: its job and cluster end, and what it failed of is still shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from tests.patience import soon
from tests.system.yarn.counting import CountingJob, some, submitted

POISON = [(b"poisoned", b"poison")]


@pytest.fixture
def job(cluster: LocalCluster, tmp_path: Path) -> Iterator[CountingJob]:
    """Return a job of one task with a standby, which a failing record ends."""
    # Enough to see what a further attempt of the application does.
    settings = {"task.on.error.attempts": "2", "yarn.am.max.attempts": "2"}
    job = CountingJob(cluster, tmp_path / "failing", "failing", "failing", 1, **settings)
    with submitted(job):
        yield job


def test_failing_record_ends_a_job_that_must_not_go_on_and_its_standby_is_not_tried(job: CountingJob) -> None:
    begun = now_ms()
    job.produce(0, some(40, 3))
    job.assert_exact()
    standby = job.replica(0, active=False)
    job.produce(0, POISON, counts=False)
    failed = job.wait_for_event("job_status", begun, status="failed")
    assert "poison" in (failed.reason or "")
    assert "offsets [40, 41)" in (failed.reason or "")
    assert "a poisoned record" in (failed.reason or "")
    lost = [each for each in job.events(begun) if each.kind == "container_lost"]
    assert standby.container not in {each.container for each in lost}
    assert "failover_started" not in job.kinds(begun)
    (failure,) = (each for each in job.events(begun) if each.kind == "replica_failed")
    raised = (failure.data or {})["traceback"]
    assert 'raise ValueError("a poisoned record")' in raised
    assert "counting_job.py" in raised
    assert "standby/" not in raised, "the job's own frames"
    assert_shown_after_the_end(job, raised, failure.container or "")


def assert_shown_after_the_end(job: CountingJob, raised: str, container: str) -> None:
    """Wait until the job's applications have ended: no leader was elected again, and what was raised is still shown."""

    def cells() -> str:
        return job.standfast("cells", job.name, "--json", status=None)

    soon(lambda: '"is_running": true' not in cells(), cells)
    assert len([each for each in job.events() if each.kind == "leader_elected"]) == 1, job.story()
    status = job.standfast("status", job.name, status=1)
    assert "failed" in status.splitlines()[0]
    assert [line for line in raised.splitlines() if line not in status] == [], status
    events = job.standfast("events", job.name)
    assert all(line in events for line in raised.splitlines())
    logs = job.standfast("logs", job.name)
    assert container in logs
    assert "the step failed on input [40, 41)" in logs
    assert "batch.py" in logs, "with every frame"
    assert all(line in logs for line in raised.splitlines())
