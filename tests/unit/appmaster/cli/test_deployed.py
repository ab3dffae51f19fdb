"""What a submit ends with: how its job is then, not how it was when the waiting ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.api.client import ChangeRefused, ClusterClient, StillQueued
from appmaster.api.snapshot import snapshot
from appmaster.cli.launch import starting
from appmaster.cli.launch.cells import Launching
from appmaster.cli.launch.starting import final_status
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.ended_applications import ApplicationWatch
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.undo import Undo
from appmaster.planning.state.job import PlannerPolicy
from appmaster.records import CellRecord, StatusRecord
from standby.errors import StandfastError, Unavailable
from standby.shared.wire import JobDefinition
from tests.fakes.applications import Applications
from tests.fakes.clock import WaitClock
from tests.fakes.yarn import FakeCluster, deployed


class Client:
    """A client of a cluster whose leader answers ``status``; None: there is no leader, and ``recorded`` is left."""

    def __init__(self, status: dict[str, Any] | None, recorded: StatusRecord | None = None) -> None:
        self._status = status
        self.zookeeper = SimpleNamespace(jobs=SimpleNamespace(status=lambda job: recorded))

    def status(self) -> dict[str, Any]:
        if self._status is None:
            raise Unavailable("cluster c has no leader now")
        return self._status


def status(cluster: FakeCluster) -> dict[str, Any]:
    return snapshot(cluster.view, "c", {"host": "h1"})


def end(client: Client, before: dict[str, Any]) -> tuple[dict[str, Any], str]:
    return final_status("job", before, cast("ClusterClient", client))


def test_job_that_is_still_deployed_is_reported_so_with_its_newest_status() -> None:
    cluster = deployed()
    before = status(cluster)
    cluster.run(1_000)
    assert end(Client(status(cluster)), before) == (status(cluster), "job is deployed")
    troubled = {**before["jobs"][0], "reasons": ["task 0: the job's code fails at offset 7"]}
    _, said = end(Client({**before, "jobs": [troubled]}), before)
    assert said == "job is deployed\n  task 0: the job's code fails at offset 7"


def test_job_that_has_failed_since_is_reported_as_failed_with_the_reason() -> None:
    cluster = deployed(policy=PlannerPolicy(retry_count=0))
    before = status(cluster)
    cluster.crash(cluster.active_process(0).skein_id)
    cluster.run(5_000)
    for client, told in (
        (Client(status(cluster)), r"has failed since: .* are allowed"),
        (Client(None, StatusRecord("failed", ("its code raised",))), "has failed since: its code raised"),
        (Client(None, StatusRecord("undeployed", ("killed",))), "is undeployed now: killed"),
        (Client({**before, "jobs": []}), "is gone now"),
    ):
        with pytest.raises(StandfastError, match=f"job was deployed, and {told}"):
            end(client, before)


def test_job_that_has_lost_a_container_since_is_reported_as_incomplete() -> None:
    cluster = deployed()
    before = status(cluster)
    cluster.crash(cluster.active_process(0).skein_id)
    cluster.run(100)
    now = status(cluster)
    assert now["jobs"][0]["status"] == "incomplete"
    found, said = end(Client(now), before)
    assert found == now
    assert said.startswith("job was deployed, and is incomplete now\n  ")
    assert now["jobs"][0]["reasons"][0] in said
    (lost,) = (each for each in now["tasks"][0]["replicas"] if each["container"] is None)
    nothing = dict.fromkeys(("phase", "end", "changelog_lag_ms", "input_rate"))
    assert lost.items() >= {**nothing, "failures": 0, "skipped": 0, "input_offsets": {}, "detail": ""}.items()


def test_without_a_leader_the_status_of_a_moment_ago_is_reported_as_such() -> None:
    before = status(deployed())
    for recorded in (StatusRecord("deployed"), None):
        found, said = end(Client(None, recorded), before)
        assert found == before
        assert said == "job was deployed when a leader last looked: cluster c has no leader now"


class Running(Client):
    """A cluster that goes on while its job's deployment is waited for."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(None)
        self._cluster, self.clock = cluster, WaitClock(lambda: cluster.run(200))
        self.is_away = False
        self.unreadable: dict[str, str] = {}
        self.yarn = Applications("FAILED", "queue a is full", a="RUNNING")
        self.others = ["job"]
        jobs = SimpleNamespace(load=lambda _: None, names=lambda: self.others)
        cells = {1: CellRecord("a")}
        self.zookeeper = SimpleNamespace(jobs=jobs, cells=SimpleNamespace(read_all=lambda: cells))

    def status(self) -> dict[str, Any]:
        if self.is_away:
            raise Unavailable("no leader")
        return {**status(self._cluster), "unreadable": self.unreadable}

    def wait(self, revision: int = 1, *, is_warm: bool = False) -> dict[str, Any]:
        definition = JobDefinition("job", "run", {}, "changelog", "group", 4, revision)
        awaited = starting.SubmittedJob(
            definition,
            ("a",),
            starting.BeforeSubmit({}, frozenset()),
            is_warm,
            ApplicationWatch("job", lambda _: None, lambda _: None),
        )
        return starting.wait_deployed(awaited, cast("ClusterClient", self), self.yarn, self.launch())

    def launch(self) -> Launching:
        progress = Progress()
        return Launching(Deadline(60.0, self.clock), progress, Undo(progress))


def test_deployment_is_waited_for_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(FakeCluster())
    running._cluster.load()
    assert running.wait()["jobs"][0]["status"] == "deployed"
    assert running.clock.waits > 1
    told = capsys.readouterr().err
    assert "4 of 4 containers serve it, 0 of 8 replicas restored" in told
    assert told.splitlines()[-1].endswith("all containers are warm")


def test_deployment_of_a_mixed_job_counts_the_containers_that_it_asks_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = Running(FakeCluster(containers=3, is_mixed=True))
    running._cluster.load()
    running.wait()
    assert "3 of 3 containers serve it" in capsys.readouterr().err


def test_deployment_that_takes_longer_is_reported_with_what_it_waits_for() -> None:
    running = Running(deployed())
    for is_away, state, why in (
        # Its status is of the deployment before.
        (False, "RUNNING", "a is RUNNING: queue a is full, and no leader answers"),
        (True, "ACCEPTED", "a is ACCEPTED: queue a is full, and no leader answers"),
    ):
        running.is_away, running.yarn.states["a"] = is_away, [state]
        over = rf"job is not deployed after 60 s \({why}\); it keeps trying: see `standfast status job`"
        with pytest.raises(StandfastError, match=over):
            running.wait(revision=2)


def test_a_job_that_the_leader_cannot_lead_is_reported_without_waiting_for_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = Running(deployed())
    running.unreadable = {"other": "a wrong record", "job": "its grouper is missing"}
    began = running.clock.monotonic()
    told = "^the leader cannot lead job: its grouper is missing; correct that, then `standfast update`$"
    with pytest.raises(StandfastError, match=told) as raised:
        running.wait(revision=2)
    # The application runs, so nothing that was created for it may be removed.
    assert type(raised.value) is StandfastError
    assert running.clock.monotonic() - began < running.launch().deadline.seconds / 2
    assert "the leader cannot lead job" in capsys.readouterr().err


def test_what_the_leader_said_of_the_job_before_the_change_does_not_end_the_waiting() -> None:
    cluster = FakeCluster()
    running = Running(cluster)
    running.unreadable = {"job": "its grouper is missing"}

    def read() -> None:
        if running.unreadable:
            running.unreadable = {}
            cluster.load()
        cluster.run(200)

    running.clock = WaitClock(read)
    assert running.wait()["jobs"][0]["status"] == "deployed"


def test_deployment_whose_applications_end_is_given_up_at_the_next_look_at_yarn() -> None:
    running = Running(FakeCluster())
    running.is_away = True
    running.clock = WaitClock(lambda: running.yarn.states.update(a=["FAILED"]))
    began = running.clock.monotonic()
    with pytest.raises(starting.NeverRan, match="every application of job has ended:\n  a ended on h1"):
        running.wait()
    assert running.clock.monotonic() - began < 2 * starting._LOOK_SECONDS
    # What another job's submit made is not to be removed.
    running.others = ["job", "other"]
    with pytest.raises(StandfastError) as raised:
        running.wait()
    assert type(raised.value) is StandfastError


def test_an_application_that_ends_between_two_questions_to_yarn_is_reported() -> None:
    running = Running(FakeCluster())
    running.is_away = True
    running.yarn.states["a"] = ["RUNNING", "FAILED"]
    with pytest.raises(starting.NeverRan, match="every application of job has ended:\n  a ended on h1"):
        running.wait()


def test_deployment_that_fails_ends_with_the_reason() -> None:
    cluster = deployed(policy=PlannerPolicy(retry_count=0))
    cluster.crash(cluster.active_process(0).skein_id)
    cluster.run(5_000)
    with pytest.raises(starting.NeverRan, match=r"job failed: .* are allowed"):
        Running(cluster).wait()


def test_cluster_that_is_about_to_end_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(FakeCluster())
    cluster = starting.TargetCluster(("a",), None, has_others=False, settings={})

    def make_way() -> None:
        starting.clear_former_deployment(
            "job", cluster, cast("ClusterClient", running), running.yarn, running.launch()
        )

    with pytest.raises(StandfastError, match="a run without any job and do not end"):
        make_way()
    running.clock = WaitClock(lambda: running.yarn.states.update(a=["FINISHED"]))
    make_way()
    assert "waiting until a have ended with their last job" in capsys.readouterr().err


def test_job_that_joins_is_queued_once_and_waits_for_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "deliver", lambda *_: None)
    running = Running(FakeCluster())
    start = cast(
        "starting.JobStart",
        SimpleNamespace(config=None, definition=JobDefinition("j", "r", {}, "c", "g", 1), bundle=None),
    )

    def join(*answers: StandfastError | None) -> tuple[str, ...]:
        """Submit it; all that is asked is answered in this order, and the last answer stays."""
        left, queued = iter(answers), list[str]()

        def answer() -> None:
            if (error := next(left, answers[-1])) is not None:
                raise error

        def queue(change: str, **_: Any) -> str:
            answer()
            queued.append(change)
            return "request"

        of = SimpleNamespace(queue=queue, result=lambda *_: answer(), zookeeper=running.zookeeper)
        applications = starting.join(start, cast("ClusterClient", of), running.yarn, running.launch())
        assert queued == ["submit"]
        return applications

    away, leaderless = Unavailable("no answer"), StillQueued("no leader")
    assert join(away, None, leaderless, away, None) == ("a",)
    with pytest.raises(ChangeRefused, match="no room"):
        join(None, ChangeRefused("no room"))
    with pytest.raises(StillQueued, match="no leader"):
        join(None, leaderless)
    # It ended before its leader took the job: the submit starts it anew.
    running.yarn.states["a"] = ["FINISHED"]
    assert join(None, leaderless) == ()
