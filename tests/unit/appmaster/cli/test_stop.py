"""What `kill` and `delete` say of a job that does not end."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.api.client import ClusterClient, StillQueued
from appmaster.changes.cluster_info import info
from appmaster.cli.launch.undeploy import UndeployOptions, blocked_by, undeploy
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress
from appmaster.records import CellRecord, JobRecord, StatusRecord, encode
from standby.errors import StandfastError, Unavailable
from standby.shared.wire import JobDefinition
from tests.fakes.applications import Applications
from tests.fakes.clock import WaitClock

WHY = "its tasks cannot be fenced: kafka.sasl.password: refused; this is tried again"


def client(change: Callable[..., object] = lambda *_, **__: None, **mine: Any) -> ClusterClient:
    """Return a client of a cluster in which the job stands as ``mine`` says, and another one runs."""
    job = {"job": "j", "is_wanted": False, "reasons": [], "is_unfenceable": False, **mine}
    other = {"job": "other", "is_wanted": True, "status": "deployed"}
    record = SimpleNamespace(is_wanted=True)
    asked: list[str] = []
    jobs = SimpleNamespace(
        names=lambda: ["j", "other"],
        read=lambda _: record,
        ask=lambda job, **_: asked.append(job),
        asked=asked,
    )
    cells = SimpleNamespace(read_all=lambda: {1: CellRecord("application_1")})
    cells.read_each = cells.read_all
    cells.drop = lambda _: None
    found = SimpleNamespace(
        cluster="shared",
        change=change,
        info=lambda: {"jobs": [job, other]},
        status=dict,
        zookeeper=SimpleNamespace(jobs=jobs, cells=cells),
    )
    return cast("ClusterClient", found)


def end(
    of: ClusterClient, deadline: Deadline, driver: Any = None, *, is_unfenced: bool = True, tasks: int = 4
) -> bool:
    """End the job in a cluster; on a pool there is no driver of YARN."""
    how = UndeployOptions(purge=True, is_unfenced=is_unfenced, tasks=tasks)
    return undeploy("j", of, driver, how, progress=Progress(is_quiet=True), deadline=deadline)


RUNS, ENDED = Applications(application_1="RUNNING"), Applications(application_1="FINISHED")


@pytest.mark.parametrize(
    ("seconds", "tasks", "waited"),
    [(30.0, 10_000, 30), (math.inf, 999, 60), (math.inf, 10_000, 360)],
)
def test_job_that_does_not_end_is_reported_with_what_its_end_waits_for(
    seconds: float, tasks: int, waited: int
) -> None:
    for mine, told in (
        ({"status": "undeploying", "reasons": [WHY]}, f"{WHY}. The leader continues"),
        ({"status": "deployed", "is_wanted": True}, "no leader has loaded it. The leader continues"),
    ):
        with pytest.raises(StandfastError) as raised:
            end(client(**mine), Deadline(seconds, WaitClock()), RUNS, tasks=tasks)
        # Without an end of the command's own, that of an orderly end.
        assert f"j has not ended within {waited} s: {told}" in str(raised.value)
        assert "`standfast status j --cluster shared`" in str(raised.value)


def test_job_that_ends_in_time_leaves_the_cluster_to_the_others() -> None:
    clock = WaitClock()
    assert end(client(status="undeployed"), Deadline(math.inf, clock), RUNS)
    assert clock.waits == 0


def test_end_is_asked_for_again_until_somebody_takes_it() -> None:
    answers = [Unavailable("no answer"), Unavailable("no answer"), StillQueued("no leader")]

    def change(*_: Any, **__: Any) -> None:
        raise answers.pop(0)

    clock = WaitClock()
    assert end(client(change, status="undeployed"), Deadline(math.inf, clock), RUNS)
    assert (answers, clock.waits) == ([], 2)


def test_job_of_which_nothing_runs_is_withdrawn_by_the_command_itself() -> None:
    def change(*_: Any, **__: Any) -> None:
        raise Unavailable("no answer")

    clock, of = WaitClock(), client(change)
    assert not end(of, Deadline(math.inf, clock), ENDED)
    assert (cast("Any", of.zookeeper.jobs).asked, clock.waits) == (["j"], 0)


def on_pool(of: ClusterClient, **mine: Any) -> Any:
    """Return a cluster that is a pool, in which the job stands as ``mine`` says, and no other one runs."""
    found = cast("Any", of)
    found.info = lambda: {"jobs": [{"job": "j", "reasons": [], **mine}]}
    found.zookeeper.cells.read_all = lambda: {1: CellRecord("", is_pool=True)}
    found.zookeeper.jobs.names = lambda: ["j"]
    return found


def test_job_on_a_pool_ends_through_a_leader_alone_and_leaves_the_pool() -> None:
    """Its processes serve without any master, so nothing may be fenced or withdrawn behind their backs."""
    clock, led = WaitClock(), on_pool(client(), is_wanted=False, status="undeployed")
    assert end(led, Deadline(math.inf, clock), is_unfenced=False), "the cluster goes on without any job"
    assert clock.waits == 0

    def away(*_: Any, **__: Any) -> None:
        raise Unavailable("no answer")

    leaderless = on_pool(client(away))
    leaderless.info = away
    with pytest.raises(StandfastError, match=r"not ended within 30 s: no master .*`standfast master`"):
        end(leaderless, Deadline(29.7321, clock), is_unfenced=False)
    assert led.zookeeper.jobs.asked == leaderless.zookeeper.jobs.asked == []


def test_job_on_a_pool_that_its_leader_cannot_lead_ends_unfenced_without_being_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    of = on_pool(client(), is_wanted=True, status="deployed")
    of.status = lambda: {"unreadable": {"j": "an invalid record"}}
    assert end(of, Deadline(math.inf, WaitClock()))
    # Also where progress is not shown, as with --json.
    assert capsys.readouterr().err.startswith("warning: the leader cannot lead j (an invalid record)")
    with pytest.raises(StandfastError, match=r"an invalid record.*`standfast kill j --unfenced`"):
        end(of, Deadline(math.inf, WaitClock()), is_unfenced=False)


def ending(*reasons: str, is_unfenceable: bool) -> dict[str, Any]:
    """Return a job that is to end in the cluster's info, with the status that its leader has recorded."""
    job = JobRecord(JobDefinition("flights", "run1", {}, "changelog", "group", 4), is_wanted=False)
    status = StatusRecord("undeploying", reasons, is_unfenceable=is_unfenceable)
    nodes = {"jobs/flights": encode(job), "jobs/flights/status": encode(status)}
    (found,) = info("shared", nodes, 0)["jobs"]
    return cast("dict[str, Any]", found)


def test_why_a_job_does_not_end_is_reported_with_what_to_do() -> None:
    # Whatever the words are.
    said = blocked_by("flights", "shared", ending("because", is_unfenceable=True), "")
    assert said.startswith("because. ")
    assert "If that is not possible, make sure" in said
    assert "`standfast kill flights --unfenced`" in said
    assert "--unfenced" not in blocked_by("flights", "shared", ending(WHY, is_unfenceable=False), "")
    said = blocked_by("flights", "shared", {}, "unexpected error: KeyError: 'x'")
    assert "the leader cannot lead it (unexpected error: KeyError: 'x')" in said
    # Why a job that is to run does not is no reason why it does not end.
    for mine in ({"is_wanted": True, "reasons": ["waiting for a container"]}, {}):
        assert blocked_by("flights", "shared", mine, "").startswith("no leader has loaded it. ")
