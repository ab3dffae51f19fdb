"""State of a deleted job where none of its containers is left: on which hosts, and that it goes there."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from skein.exceptions import DriverError

from appmaster.api.snapshot import snapshot
from appmaster.changes.compatibility import cluster_settings
from appmaster.cli.jobs import sweeping
from appmaster.cli.jobs.sweeping import hosts_of_containers, hosts_with_state
from appmaster.cli.launch import application
from appmaster.cli.shared.deadline import Deadline
from appmaster.records import CellRecord
from standby import sweep
from standby.errors import BadConfiguration
from standby.shared.model import Held, TaskId, TaskRecord
from standby.shared.naming import state_path
from standby.shared.wire import JobDefinition
from tests.fakes.applications import Applications
from tests.fakes.clock import WaitClock
from tests.fakes.jobs import JOB, job_config
from tests.fakes.yarn import deployed

TASK = TaskId("job", "main", 0)


def test_state_is_looked_for_where_copies_were_and_are_and_no_container_removes_it() -> None:
    records = [
        TaskRecord(
            TASK, 0, 1, hosts={0: "h1", 1: "h2"}, history=(Held("h3", 1), Held("h4", 2), Held("gone", 3))
        ),
        TaskRecord(TaskId("job", "main", 1), 0, 1, hosts={0: "h5"}),
    ]
    assert hosts_with_state(records, {"h1", "h2"}, {"h1", "h2", "h3", "h4", "h5"}) == ("h3", "h4", "h5")
    assert hosts_with_state(records, {"h1", "h2", "h3", "h4", "h5"}, {"h1"}) == ()


def test_host_that_a_copy_has_left_is_known_when_the_job_is_deleted() -> None:
    cluster = deployed(containers=1, hosts=("h1", "h2", "h3"))
    leaves = min(next(iter(cluster.versions.values())).record.hosts.values())
    cluster.drain(leaves)
    cluster.run(30_000)
    records = [each.record for each in cluster.versions.values()]
    purged = hosts_of_containers(snapshot(cluster.view, "c", {}), "job")
    assert leaves not in purged
    assert hosts_with_state(records, purged, cluster.hosts) == (leaves,)


def test_command_removes_the_run_s_state_on_its_own_host_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host, run in (("h1", "run"), ("h1", "other"), ("h2", "run")):
        (tmp_path / state_path("c", host, TASK, run)).mkdir(parents=True)
    wanted = sweep.Sweep((str(tmp_path), str(tmp_path / "absent")), "c", "job", "run")
    (tmp_path / sweep.FILE).write_bytes(msgspec.json.encode(wanted))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NM_HOST", "h1")
    sweep.main()
    left = {each.relative_to(tmp_path).parts[1:4] for each in tmp_path.glob("c/*/*/*")}
    assert left == {("h1", "job", "other"), ("h2", "job", "run")}


def test_sweep_that_cannot_be_composed_or_submitted_is_said_and_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the job is still to be removed."""

    def refuse(error: Exception) -> Applications:
        def submit(_: object) -> str:
            raise error

        driver = Applications()
        monkeypatch.setattr(driver, "submit", submit)
        return driver

    shipped = {**JOB, "job.python.archive": str(tmp_path / "gone.tar.gz")}
    queue = "application_1 submitted by user u to unknown queue: q"
    for config, driver, told in (
        (shipped, Applications(), f"job.python.archive: {tmp_path}/gone.tar.gz does not exist"),
        ({**JOB, "no.such.key": "1"}, Applications(), "no.such.key"),
        (JOB, refuse(DriverError(queue)), queue),
        (JOB, refuse(ValueError(queue)), queue),
    ):
        definition = JobDefinition("job", "run", config, "changelog", "group", 1)
        assert told in sweeping.sweep("c", definition, ["h1"], driver, Deadline(math.inf, WaitClock()))


def test_sweep_is_composed_with_the_settings_of_the_cluster() -> None:
    joined = {**JOB, "job.python": "/where/it/was/submitted/python"}
    definition = JobDefinition("job", "run", joined, "changelog", "group", 1)
    started = cluster_settings(job_config(yarn__queue="q", job__python="/opt/python"))
    cells = (BadConfiguration("an invalid record"), CellRecord("application_1", settings=started))
    driver = Applications(application_0="FINISHED")
    found = sweeping.in_cluster(definition, cells)
    assert sweeping.sweep("c", found, ["h1"], driver, Deadline(math.inf, WaitClock())) == ""
    (spec,) = driver.submitted
    assert spec.queue == "q"
    assert [each.script for each in spec.services.values()] == ["exec /opt/python -m standby.sweep"]
    assert sweeping.in_cluster(definition, ()) == definition


def test_hosts_that_are_full_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "build_sweep", lambda *_: None)
    definition = JobDefinition("job", "run", JOB, "changelog", "group", 1)
    for states, told, killed in (
        ("ACCEPTED FINISHED", "", []),
        ("ACCEPTED", "YARN gave no container on some of them within 60 s", ["application_1"]),
    ):
        driver, clock = Applications(application_1=states), WaitClock()
        assert sweeping.sweep("c", definition, ["h1"], driver, Deadline(math.inf, clock)) == told
        assert driver.killed == killed
