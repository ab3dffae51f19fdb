"""A job that runs on a real YARN is changed by command, and goes on counting exactly."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from demo.scenario import JOB, JOB_FILE, now_ms
from demo.standing import shared_hosts
from embedded.cluster import LocalCluster
from tests.exactness import INPUT_TOPIC
from tests.patience import PATIENCE_SECONDS
from tests.system.yarn.flights_job import PLAIN, FlightsJob, deployed
from tests.system.yarn.running import STEADY

#: Appended to a module: other code, that does the same.
OTHER_CODE = "\n\nCHANGED = True\n"

#: A step that no record gets past.
BROKEN_CODE = "\n\ndef totals(rows, state, out):\n    raise RuntimeError('this revision is broken')\n"


@pytest.fixture(scope="module")
def running(cluster: LocalCluster) -> Iterator[FlightsJob]:
    """Return the flights job: two processors of two tasks, each with a standby, on three hosts."""
    with deployed(cluster, **{"appmaster.cells": "1"}) as job:
        yield job


@pytest.fixture
def job(running: FlightsJob) -> FlightsJob:
    """Return the job when nothing moves any more: a copy on its way elsewhere is not what a test asks for."""
    running.wait_until_settled()
    return running


class Files:
    """The job's file and modules in a directory of their own, for somebody to change."""

    def __init__(self, job: FlightsJob, directory: Path) -> None:
        self._job = job
        self.directory = directory
        for each in ("flights.py", "flights_plain.py", JOB_FILE.name):
            shutil.copy(JOB_FILE.parent / each, directory)
        self.settings = {
            **PLAIN,
            **STEADY,
            "appmaster.cells": "1",
            "job.container.count": "2",
            "job.hotstandby.enabled": "true",
            "job.hotstandby.replicationcount": "1",
            "job.state.dir": str(job.cluster.directory / "state"),
        }

    def append(self, text: str) -> None:
        """Change the module with the job's step."""
        with (self.directory / "flights.py").open("a") as module:
            module.write(text)

    def restore(self, text: str) -> None:
        """Take a change back."""
        path = self.directory / "flights.py"
        path.write_text(path.read_text().removesuffix(text))

    def arguments(self, *more: str) -> list[str]:
        pairs = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        return ["update", str(self.directory / JOB_FILE.name), *pairs, *more]

    def update(self, *more: str) -> Any:
        """Update the job to what is here; return what the command printed as JSON."""
        return self._job.ask(*self.arguments(*more))

    def refused(self, *more: str, status: int = 2) -> str:
        return self._job.standfast(*self.arguments(*more), status=status)


@pytest.fixture(scope="module")
def files(running: FlightsJob, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(running, tmp_path_factory.mktemp("changes"))


def actives(job: FlightsJob) -> dict[int, tuple[int, str | None, int | None]]:
    """Return task → epoch, container and pid of its active."""
    found = {}
    for task in job.status.tasks:
        active = job.replica(task.partition, active=True)
        found[task.partition] = (task.epoch, active.container, active.pid)
    return found


def containers(job: FlightsJob) -> dict[str, int | None]:
    """Return container → its pid, of all that hold a replica."""
    return {
        str(each.container): each.pid
        for task in job.status.tasks
        for each in task.replicas
        if each.container is not None
    }


def test_model_and_reasons_are_told(job: FlightsJob) -> None:
    model = job.ask("model", JOB)
    assert [each["copies"] for each in model["processors"]] == [[0, 1], [0, 1]]
    assert sorted(task["task"] for each in model["processors"] for task in each["tasks"]) == [0, 1, 2, 3]
    for each in model["processors"]:
        for task in each["tasks"]:
            active = job.replica(task["task"], active=True)
            assert (task["active"]["host"], task["active"]["container"]) == (active.host, active.container)
            assert task["standbys"][0]["host"] == job.replica(task["task"], active=False).host
    assert "CHANGELOG PARTITION" in job.standfast("model", JOB)
    assert "active processors: " in job.standfast("status", JOB)
    assert len(job.ask("tasks", JOB)) == 4
    assert len(job.ask("containers", JOB)) == 4
    explained = job.ask("explain", JOB, "2")
    assert [(each["copy"], each["role"]) for each in explained["copies"]] == [(0, "active"), (1, "standby")]
    sibling = job.replica(2, active=False).host
    assert any(line.startswith(f"{sibling}: refused") for line in explained["copies"][0]["why"]), explained
    assert "it has 0 to 3" in job.standfast("explain", JOB, "9", status=2)


def test_an_update_is_no_change_or_refused_all_in_one_message(job: FlightsJob, files: Files) -> None:
    before, first = actives(job), files.update()
    assert (first["changes"], first["is_new_code"]) == ([], False)
    said = files.refused("--set", "task.stores=other", "--set", "cluster-manager.container.memory.mb=500")
    assert "task.stores: aircraft,carriers → other" in said
    assert "standfast delete" in said
    assert "cluster-manager.container.memory.mb: 400 → 500" in said
    assert "submit --update" in said
    second = files.update()
    assert (second["changes"], second["revision"]) == ([], first["revision"])
    assert actives(job) == before


def test_more_and_fewer_standbys_leave_every_active_where_it_is(job: FlightsJob, files: Files) -> None:
    before, processes, revision = actives(job), containers(job), files.update()["revision"]
    with job.flow():
        files.settings["job.hotstandby.replicationcount"] = "2"
        checked = files.update("--check")
        assert [each["key"] for each in checked["changes"]] == ["job.hotstandby.replicationcount"]
        assert files.update()["revision"] == revision
        status = job.status
        assert [len(each.in_sync) for each in status.tasks] == [3, 3, 3, 3]
        assert shared_hosts(status) == ()
        assert processes.items() <= containers(job).items(), "every process there was is there still"
        files.settings["job.hotstandby.replicationcount"] = "3"
        said = job.told(*files.arguments("--check"))
        assert "3 standbys and their active need 4 hosts, one each, and there are 3 hosts" in said
        files.settings["job.hotstandby.replicationcount"] = "1"
        files.update()
    assert actives(job) == before
    assert {len(each.replicas) for each in job.status.tasks} == {2}
    assert processes == containers(job)


def test_failover_by_command_is_prepared_and_no_failure(job: FlightsJob) -> None:
    before, begun = actives(job), now_ms()
    standby = job.replica(0, active=False)
    with job.flow():
        done = job.ask("handover", JOB, "0")
        (handover,) = done["handovers"]
        assert handover["kind"] == "handover_finished"
        assert handover["container"] == standby.container
        assert set(handover["tasks"]) == {"0", "2"}
        for task, times in handover["tasks"].items():
            # A task with no input waiting at that moment is done when it is active.
            gap = (times["first_commit_ms"] or times["active_ms"]) - times["detected_ms"]
            steps = {step: at - times["detected_ms"] for step, at in times.items() if at is not None}
            print(f"task {task}: planned hand-over, gap {gap} ms: {steps}")
            assert gap >= 0
        assert "is active already" in job.standfast("handover", JOB, "0", "--to", str(standby.copy), status=1)
        said = job.standfast("handover", JOB, "--container", str(standby.container))
        assert "task 0: gap" in said
        assert "task 2: gap" in said
    assert {task: each[1:] for task, each in actives(job).items()} == {
        task: each[1:] for task, each in before.items()
    }, job.story(begun)
    assert not {"container_lost", "failover_started"} & job.kinds(begun)
    assert "nobody is known" in job.standfast("failover", JOB, "--container", "nobody", status=1)


def test_drained_host_is_empty_and_used_again_when_admitted(job: FlightsJob) -> None:
    begun = now_ms()
    host = str(job.replica(0, active=True).host)
    assert "not a host of this cluster" in job.standfast("drain", "nowhere", status=2)
    with job.flow():
        done = job.ask("drain", host, "--reason", "new disks")
        assert done == {"hosts": [host], "stays": []}
        assert all(each.host != host for each in job.status.containers)
        job.wait_until_nothing_runs_on(host)
    assert not {"container_lost", "failover_started"} & job.kinds(begun)
    assert job.ask("admit", host) == {"admitted": [host], "drained": {}}
    assert "was not drained" in job.standfast("admit", host)


def test_rolling_upgrade_starts_every_process_anew_and_loses_nothing(job: FlightsJob, files: Files) -> None:
    begun, old, revision = now_ms(), containers(job), files.update()["revision"]
    with job.flow():
        files.append(OTHER_CODE)
        files.settings |= {"task.batch.max.records": "5000", "task.stores.version": "2"}
        done = files.update()
        assert (done["revision"], done["former"][0], done["is_new_code"]) == (revision + 1, revision, True)
        assert {each["key"] for each in done["changes"]} == {"task.batch.max.records", "task.stores.version"}
        assert done["is_rolled_out"]
    assert not old.keys() & containers(job).keys()
    assert not {"container_lost", "failover_started"} & job.kinds(begun)
    assert "handover_finished" in job.kinds(begun)
    said = job.standfast("rollback", JOB, status=1)
    assert f"revision {revision + 1} of flights has been active" in said
    assert "task.stores.version is 2 now and was not set" in said


def test_revision_that_was_never_active_is_rolled_back(job: FlightsJob, files: Files) -> None:
    before, begun, revision = actives(job), now_ms(), files.update()["revision"]
    drained = sorted(job.cluster.hosts)[1:]
    with job.flow():
        # With standbys missing nothing is rolled out: the broken code gets no chance before it is withdrawn.
        job.standfast("drain", *drained, "--no-wait")
        job.wait(lambda status: status.jobs[0].status == "incomplete", "standbys that have nowhere to go")
        files.append(BROKEN_CODE)
        files.update("--wait", "none")
        done = job.ask("rollback", JOB, "--wait", "none")
        assert (done["revision"], done["former"][:2]) == (revision + 2, [revision + 1, revision])
        old = containers(job).keys()
        job.standfast("admit", *drained)
        job.wait(
            lambda status: (
                status.jobs[0].status == "deployed"
                and not old & {each.container for each in status.containers}
            ),
            "every process anew, with the code before",
        )
    assert {task: each[1] for task, each in actives(job).items()}.keys() == before.keys()
    assert not {"container_lost", "failover_started", "replica_failed"} & job.kinds(begun)
    files.restore(BROKEN_CODE)
    assert files.update()["changes"] == [], "it is the code and the configuration before again"


def test_partitions_added_to_the_input_are_told_of_and_adopted_when_they_may_be(
    job: FlightsJob, files: Files
) -> None:
    before, processes = actives(job), containers(job)
    bootstrap = job.cluster.kafka_bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(INPUT_TOPIC, 6)])[INPUT_TOPIC].result(PATIENCE_SECONDS)
    job.wait(
        lambda status: any("2 of them are not read" in each for each in status.jobs[0].reasons),
        "a note on the partitions that are not read",
    )
    assert len(job.status.tasks) == 4
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(INPUT_TOPIC, b"no flight", b"key", partition=5)
    assert producer.flush(PATIENCE_SECONDS) == 0
    files.settings["task.inputs.may.grow"] = "true"
    files.update()
    job.wait(
        lambda status: (
            len(status.tasks) == 6
            and all(len(each.in_sync) == 2 for each in status.tasks)
            and any(
                each.input_committed == 1
                for task in status.tasks
                if task.partition == 5
                for each in task.replicas
            )
        ),
        "two more tasks, with their standbys and what was written to them",
    )
    after = actives(job)
    assert {task: after[task] for task in before} == before
    assert containers(job) == processes, "nobody was started anew"
    assert job.status.jobs[0].reasons == ()
