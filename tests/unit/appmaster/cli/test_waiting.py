"""What commands conclude from the leader's status: rolled out, handed over, still on a host."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.api.client import ClusterClient
from appmaster.api.snapshot import requested_document, snapshot
from appmaster.cli.clusters.drain import wait_empty
from appmaster.cli.jobs import command, rollout
from appmaster.cli.jobs.change import usable_hosts
from appmaster.cli.jobs.command import describe, gap_ms
from appmaster.cli.jobs.rollout import Goal, pending_moves, rollout_progress
from appmaster.cli.launch.starting import serves_job
from appmaster.cli.reading.observe import spread_in_words
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress
from appmaster.config import job_spec, planner_policy
from appmaster.eventlog.latest_failovers import LatestFailovers
from appmaster.eventlog.publish import published_document
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.view import Command, Operation
from standby.errors import StandfastError, Unavailable
from tests.fakes.clock import WaitClock
from tests.fakes.jobs import job_config
from tests.fakes.yarn import FakeCluster, deployed
from tests.scenarios.flights import until
from tests.unit.appmaster.planning.test_jobs import two


def status(cluster: FakeCluster) -> dict[str, Any]:
    return snapshot(cluster.view, "c", {"host": "h1"})


def goal(cluster: FakeCluster, revision: int = 1) -> Goal:
    job = cluster.view.jobs["job"]
    return Goal("job", revision, requested_document(job.spec, job.policy))


def test_what_is_asked_says_the_same_of_the_same_configuration() -> None:
    def requested(tasks: int = 4, **more: str) -> object:
        config = job_config(**more)
        return requested_document(job_spec(config, tasks), planner_policy(config))

    assert requested() == requested()
    assert requested() != requested(job__hotstandby__samehost__timeout__ms="1")
    assert requested() != requested(tasks=5)


def test_hosts_that_may_hold_copies_are_all_but_the_drained_ones() -> None:
    cluster = deployed()
    assert usable_hosts(status(cluster)) == {"h1", "h2", "h3"}
    cluster.drain("h3")
    assert usable_hosts(status(cluster)) == {"h1", "h2"}


def test_change_that_the_leader_has_not_heard_of_is_not_done() -> None:
    cluster = deployed()
    before = status(cluster)
    cluster.load(standbys=2)
    wanted = goal(cluster)
    assert rollout_progress(before, wanted).said == "the leader has not loaded the change yet"
    # From the event to the last standby there is no moment at which it looks done.
    seen = [rollout_progress(status(cluster), wanted).is_done]
    for _ in range(400):
        cluster.turn()
        seen.append(rollout_progress(status(cluster), wanted).is_done)
        cluster.run(20)
        if seen[-1]:
            break
    assert seen[-1]
    assert all(len(each.record.in_sync) == 3 for each in cluster.versions.values())


def test_hand_over_of_another_job_is_not_waited_for() -> None:
    cluster = two()
    asked = Command(1, Operation.HAND_OVER, next(iter(cluster.view.jobs["other"].model.processors)))
    cluster.tell(happened.Commanded(asked))
    cluster.turn()
    told = status(cluster)
    assert [each["job"] for each in told["handovers"]] == ["other"]
    assert rollout_progress(told, goal(cluster)).is_done
    assert pending_moves(told, told["jobs"][1]) == "1 actives are being handed over"
    until(cluster, lambda: bool(cluster.view.failovers))
    assert [each["job"] for each in status(cluster)["failovers"]] == ["other"]


def test_containers_of_a_job_are_those_that_hold_something_of_it_or_run_it() -> None:
    cluster = two()

    def serving(**changed: Any) -> set[str]:
        return {
            each["container"]
            for each in status(cluster)["containers"]
            if serves_job({**each, **changed}, "other")
        }

    mine = cluster.containers_of("other")
    assert mine
    assert serving() == serving(revisions={}) == mine
    assert serving(job=None) == mine, "what runs it"
    assert serving(job=None, revisions={}) == set()


def test_roll_out_that_another_change_overtook_is_reported() -> None:
    cluster = deployed()
    cluster.load(revision=3)
    assert "revision 3 was requested meanwhile" in rollout_progress(status(cluster), goal(cluster, 2)).failure


def test_roll_out_of_a_job_that_the_leader_cannot_lead_ends_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = deployed()
    led = {**status(cluster), "unreadable": {"job": "its grouper is missing"}}
    for answer in (led, {**led, "jobs": []}):
        client = cast("ClusterClient", SimpleNamespace(status=lambda answer=answer: answer))
        deadline = Deadline(600.0, WaitClock())
        with pytest.raises(StandfastError, match="its grouper is missing; correct that, then"):
            rollout.wait(client, goal(cluster, 2), deadline, Progress())
        assert deadline.left_seconds > deadline.seconds / 2
        assert "the leader cannot lead job" in capsys.readouterr().err


def test_gap_ends_with_the_first_commit_or_where_nothing_waits_with_being_active() -> None:
    assert gap_ms({"detected_ms": 100, "active_ms": 130, "first_commit_ms": 190}) == 90
    assert gap_ms({"detected_ms": 100, "active_ms": 130, "first_commit_ms": None}) == 30
    assert gap_ms({"detected_ms": 100, "active_ms": None, "first_commit_ms": None}) is None


class Leader:
    """A cluster whose leader is asked by a command, and which goes on while that waits."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster, self.clock = cluster, WaitClock(lambda: cluster.run(200))
        self.is_away = False
        self._failovers, self._heard = LatestFailovers(), 0

    def status(self) -> dict[str, Any]:
        if self.is_away:
            raise Unavailable("no leader")
        entries = self.cluster.entries
        for entry in entries[self._heard :]:
            self._failovers.note(published_document(entry, self.cluster.view))
        self._heard = len(entries)
        return {**status(self.cluster), "finished": self._failovers.latest()}

    def roll_out(self, wanted: Goal, within: float = 60.0) -> dict[str, Any]:
        return rollout.wait(cast("ClusterClient", self), wanted, Deadline(within, self.clock), Progress())

    def hand_over(self, before: dict[str, Any], within: float = 60.0) -> list[dict[str, Any]]:
        goal = command.HandOver("job", frozenset({0}), before)
        return command.wait(cast("ClusterClient", self), goal, Deadline(within, self.clock), Progress())

    def rebalance(self, within: float = 60.0, job: str = "job") -> Mapping[str, Any]:
        deadline = Deadline(within, self.clock)
        return command.wait_spread(cast("ClusterClient", self), job, deadline, Progress())

    def empty(self, host: str, within: float = 60.0) -> tuple[str, ...]:
        deadline = Deadline(within, self.clock)
        left = wait_empty(cast("ClusterClient", self), (host,), deadline, Progress())
        return tuple(map(str, left))


def test_a_roll_out_is_waited_for_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    leader = Leader(deployed())
    leader.cluster.load(revision=2)
    found = leader.roll_out(goal(leader.cluster, 2))
    assert found["jobs"][0]["revision"] == 2
    assert leader.clock.waits > 1
    said = capsys.readouterr().err
    assert "0 of 4 containers run revision 2" in said
    assert "4 of 4 containers run revision 2" in said
    assert {each.revisions["job"] for each in leader.cluster.processes.values()} == {2}


def test_a_roll_out_that_takes_longer_is_reported_with_how_far_it_is() -> None:
    leader = Leader(deployed())
    before = goal(leader.cluster, 2)
    over = r"job is not as requested after 5 s \({}\); the roll-out continues: see `standfast status job`"
    with pytest.raises(StandfastError, match=over.format("the leader has not loaded the change yet")):
        leader.roll_out(before, 5.0)
    leader.is_away = True
    with pytest.raises(StandfastError, match=over.format("the leader has not answered")):
        leader.roll_out(before, 5.0)


def test_a_roll_out_of_a_job_that_fails_ends_with_the_reason() -> None:
    leader = Leader(deployed(policy=PlannerPolicy(retry_count=0)))
    wanted = goal(leader.cluster, 2)
    leader.cluster.crash(leader.cluster.active_process(0).skein_id)
    with pytest.raises(StandfastError, match=r"job: .* are allowed"):
        leader.roll_out(wanted)


def test_a_hand_over_is_waited_for_until_it_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    leader = Leader(deployed())
    before = leader.status()
    leader.cluster.command(Operation.HAND_OVER, 0)
    (done,) = leader.hand_over(before)
    assert (done["kind"], done["processor"], done["copy"]) == ("handover_finished", 0, 1)
    assert set(done["tasks"]) == {"0", "2"}
    assert describe(done).startswith(f"processor 0 is handed over to copy 1 on {done['host']}: task 0: ")
    assert "the standby is getting ready" in capsys.readouterr().err


def test_a_hand_over_that_no_leader_tells_of_is_over_too(capsys: pytest.CaptureFixture[str]) -> None:
    leader = Leader(deployed())
    before = leader.status()
    leader.cluster.command(Operation.HAND_OVER, 0)
    leader.cluster.run(10_000)
    # It knows nothing of what was reported to the one before.
    leader._heard = len(leader.cluster.entries)
    began = leader.clock.monotonic()
    assert leader.hand_over(before) == []
    assert "how long the gap was is not known" in capsys.readouterr().err
    assert leader.clock.monotonic() - began >= command._REPORT_SECONDS


def test_a_hand_over_that_comes_to_nothing_or_takes_longer_is_reported() -> None:
    leader = Leader(deployed())
    before = leader.status()
    over = "not done within 5 s; it continues: see `standfast tasks job`"
    with pytest.raises(StandfastError, match=over):
        leader.hand_over(before, 5.0)
    given_up = {"job": "job", "processor": 0, "kind": "handover_given_up", "reason": "not ready in time"}
    told = "the hand-over of processor 0 was given up: not ready in time; its active stays active"
    after = {**before, "finished": [given_up]}
    assert command.handover_progress(after, command.HandOver("job", frozenset({0}), before)).failure == told
    assert not command.handover_progress(after, command.HandOver("job", frozenset({0}), after)).failure, (
        "of an earlier one"
    )


def crowded(**policy: Any) -> FakeCluster:
    """Return a whole cluster of two hosts; commands have handed all actives over to one of them."""
    cluster = FakeCluster(tasks=2, hosts=("h1", "h2"), policy=PlannerPolicy(**policy))
    cluster.run(30_000)
    for processor in (0, 1, 1):
        cluster.command(Operation.HAND_OVER, processor)
        cluster.run(8_000)
    return cluster


def test_an_even_spread_is_waited_for_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    leader = Leader(crowded(rebalance="manual"))
    assert all(each.record.is_chosen for each in leader.cluster.versions.values()), "an operator moved them"
    (before,) = leader.status()["jobs"]
    assert spread_in_words(before["spread"]).endswith("; not even: job.locality.rebalance is manual")
    leader.cluster.command(Operation.REBALANCE, job="job")
    leader.cluster.run(100)
    spread = leader.rebalance()
    assert spread_in_words(spread) == "h1 1, h2 1"
    assert leader.clock.waits > 1
    assert "not even: waits for the end of a hand-over or failover" in capsys.readouterr().err


def test_a_spread_that_does_not_become_even_is_an_error_with_its_reason() -> None:
    leader = Leader(crowded(rebalance="manual"))
    with pytest.raises(StandfastError, match=r"not evenly spread: .*: job.locality.rebalance is manual"):
        leader.rebalance()
    leader.cluster.is_warm = False
    leader.cluster.run(1_000)
    leader.cluster.command(Operation.REBALANCE, job="job")
    leader.cluster.run(100)
    with pytest.raises(StandfastError, match="not done within 5 s; it continues: see `standfast status job`"):
        leader.rebalance(5.0)
    with pytest.raises(StandfastError, match="the leader no longer leads other"):
        leader.rebalance(job="other")


def test_a_host_is_waited_for_until_it_is_empty_and_what_stays_is_reported() -> None:
    leader = Leader(deployed())
    host = leader.cluster.active_process(0).host
    leader.cluster.drain(host)
    (left,) = leader.empty(host, 0.0)
    assert left == f"job/main:0#0 on {host} (2 actives)"
    assert leader.empty(host) == ()
    waits = leader.clock.waits
    assert waits > 1
    # What was asked of YARN for it before may still come.
    asked = {**leader.status(), "requests": [{"host": host}]}
    leader.status = lambda: asked  # type: ignore[method-assign]
    assert leader.empty(host, 1.0) == ()
    assert leader.clock.waits > waits


def test_a_host_that_no_leader_has_heard_of_is_not_taken_for_empty() -> None:
    leader = Leader(deployed())
    not_heard = "recorded, but the leader has not loaded it; see `standfast status`"
    for leader.is_away in (False, True):
        waits = leader.clock.waits
        with pytest.raises(StandfastError, match=not_heard):
            leader.empty("h9", 5.0)
        assert leader.clock.waits > waits
