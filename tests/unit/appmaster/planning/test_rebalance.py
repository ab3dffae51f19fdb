"""Actives are spread over hosts again: when, between which copies, one at a time, and what `status` says about it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from appmaster.planning.jobs.spreading import spread_of
from appmaster.planning.placement.spread import Stand, next_steps
from appmaster.planning.placement.turn import Turn
from appmaster.planning.plan import plan
from appmaster.planning.rules.deploy import writes
from appmaster.planning.state import actions as todo
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import JobModel, Processor
from appmaster.planning.state.reasons import HandoverMotive
from appmaster.planning.state.view import Operation, Rebalancing
from standby.shared.model import ProcessorId
from tests.fakes.yarn import FakeCluster
from tests.scenarios.flights import until

PAUSE_MS = PlannerPolicy().rebalance_pause_ms


def evenly_spread(**more: object) -> FakeCluster:
    """Return a whole cluster with an even spread; earlier actions and entries are cleared."""
    cluster = FakeCluster(**{"hosts": ("h1", "h2", "h3"), "containers": 3, "tasks": 6, **more})  # type: ignore[arg-type]
    cluster.settle(60_000)
    assert plan(cluster.view) == ()
    assert not cluster.view.rebalancing or cluster.policy.rebalance == "manual"
    cluster.actions.clear()
    cluster.entries.clear()
    return cluster


def per_host(cluster: FakeCluster) -> list[int]:
    """Return how many processors are active on each host of the cluster, the fewest first."""
    actives = {
        cluster.view.processor_of(task): cluster.active_process(task.partition).host
        for task in cluster.versions
    }
    counts = Counter(dict.fromkeys(cluster.hosts, 0))
    counts.update(actives.values())
    return sorted(counts.values())


def crowded(**more: object) -> FakeCluster:
    """Return a cluster that is whole again after a host with an active was lost and has returned."""
    cluster = evenly_spread(**more)
    host = cluster.active_process(0).host
    cluster.lose_host(host, silent=False)
    cluster.run(1_000)
    cluster.return_host(host)
    until_whole(cluster)
    return cluster


def until_whole(cluster: FakeCluster) -> None:
    """Run the cluster until nothing is unsettled."""
    until(cluster, lambda: not cluster.view.unsettled and cluster.is_whole())


def hand_over(cluster: FakeCluster, processor: int) -> None:
    """Hand an active over by command, as an operator does."""
    cluster.command(Operation.HAND_OVER, processor)
    cluster.run(2_000)
    until_whole(cluster)


def moves(cluster: FakeCluster) -> list[todo.PrepareHandover]:
    """Return the hand-overs that were begun to spread actives."""
    return [
        each for each in cluster.did(todo.PrepareHandover) if each.reason.kind is HandoverMotive.REBALANCE
    ]


def test_actives_are_spread_again_once_the_lost_copies_are_replaced() -> None:
    cluster = crowded()
    assert per_host(cluster) == [0, 1, 2]
    assert not moves(cluster)
    cluster.run(PAUSE_MS - 500)
    assert not moves(cluster), "a pause comes first"
    cluster.run(20_000)
    assert per_host(cluster) == [1, 1, 1]
    (move,) = moves(cluster)
    assert str(move.reason).startswith("rebalance: ")
    kinds = cluster.kinds()
    assert kinds.count("handover_finished") == 1
    assert kinds.count("failover_started") == 1, "a hand-over is no failover"
    assert not cluster.view.rebalancing
    assert plan(cluster.view) == ()


def test_one_hand_over_after_the_other_with_a_pause_between() -> None:
    cluster = crowded(containers=6)
    begun: list[int] = []
    at_once = 0
    while cluster.view.rebalancing:
        before = len(moves(cluster))
        cluster.run(100)
        begun += [cluster.now_ms] * (len(moves(cluster)) - before)
        under_way = [
            each for each in cluster.view.failovers.values() if each.reason is HandoverMotive.REBALANCE
        ]
        at_once = max(at_once, len(cluster.view.handovers) + len(under_way))
    assert spread_of(cluster.view, cluster.view.jobs["job"]).is_even
    assert at_once == 1
    assert len(begun) >= 2
    assert all(later - earlier > PAUSE_MS for earlier, later in itertools.pairwise(begun))


def test_manual_leaves_actives_where_they_are_until_a_command() -> None:
    cluster = crowded(policy=PlannerPolicy(rebalance="manual"))
    cluster.run(60_000)
    assert per_host(cluster) == [0, 1, 2]
    assert not moves(cluster)
    spread = spread_of(cluster.view, cluster.view.jobs["job"])
    assert (spread.is_even, spread.why) == (False, "job.locality.rebalance is manual")
    cluster.command(Operation.REBALANCE, job="job")
    cluster.run(100)
    assert len(moves(cluster)) == 1, "at once, without the pause"
    assert "spreading actives" in cluster.said[-1].said
    cluster.run(5_000)
    assert per_host(cluster) == [1, 1, 1]
    cluster.command(Operation.REBALANCE, job="job")
    cluster.run(100)
    assert cluster.said[-1].said.startswith("actives are spread evenly: h1 1")
    assert not cluster.view.rebalancing


def test_an_active_that_an_operator_moved_stays_until_it_is_lost() -> None:
    cluster = evenly_spread(containers=2, tasks=2, hosts=("h1", "h2"))
    hand_over(cluster, 0)
    where = cluster.active_process(0).host
    cluster.run(60_000)
    assert cluster.active_process(0).host == where
    assert [each.processor.number for each in moves(cluster)] == [1], "the other active moves instead"
    assert per_host(cluster) == [1, 1]
    hand_over(cluster, 1)
    cluster.run(60_000)
    assert per_host(cluster) == [0, 2]
    spread = spread_of(cluster.view, cluster.view.jobs["job"])
    assert not spread.is_even
    assert spread.why == "actives stay where `standfast handover` moved them"
    cluster.elect(2)
    cluster.run(60_000)
    assert per_host(cluster) == [0, 2], "the next leader does not move them either"
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.run(60_000)
    assert per_host(cluster) == [1, 1]


def test_nothing_moves_to_a_copy_that_is_not_in_sync_or_not_warm() -> None:
    cluster = crowded()
    cluster.lag_ms = cluster.policy.lag_time_ms + 1
    cluster.run(60_000)
    assert not moves(cluster)
    cluster.lag_ms = 0
    cluster.is_warm = False
    cluster.run(60_000)
    assert not moves(cluster)
    assert "in sync and warm" in spread_of(cluster.view, cluster.view.jobs["job"]).why
    cluster.is_warm = True
    cluster.run(10_000)
    assert per_host(cluster) == [1, 1, 1]


def test_a_job_whose_standbys_are_never_warm_does_not_wait_for_it() -> None:
    cluster = crowded(policy=PlannerPolicy(has_warm_standbys=False))
    cluster.is_warm = False
    cluster.never_prepares.update(each.container for each in cluster.processes.values())
    cluster.run(PAUSE_MS + cluster.policy.prepare_timeout_ms + 5_000)
    assert per_host(cluster) == [1, 1, 1]


def test_a_copy_that_does_not_get_ready_is_given_up_and_tried_again_later_each_time() -> None:
    cluster = crowded()
    cluster.never_prepares.update(each.container for each in cluster.processes.values())
    begun: list[int] = []
    while len(begun) < 3:
        before = len(moves(cluster))
        cluster.run(100)
        begun += [cluster.now_ms] * (len(moves(cluster)) - before)
        assert cluster.now_ms < 400_000
    assert "decided_handover" not in cluster.kinds()
    assert cluster.kinds().count("handover_given_up") == 2
    assert begun[2] - begun[1] > begun[1] - begun[0]
    cluster.never_prepares.clear()
    cluster.run(20_000)
    assert per_host(cluster) == [1, 1, 1]


def test_a_command_takes_the_place_of_a_move_that_is_being_prepared() -> None:
    """It was refused until that had ended: for up to twice `prepare_timeout_ms`."""
    cluster = crowded()
    cluster.never_prepares.update(each.container for each in cluster.processes.values())
    until(cluster, lambda: bool(cluster.view.handovers))
    (processor,) = cluster.view.handovers
    for is_refused in (False, True):
        cluster.command(Operation.HAND_OVER, processor.number)
        cluster.turn()
        assert cluster.said[-1].is_refused is is_refused
        assert cluster.view.handovers[processor].reason.kind is HandoverMotive.ASKED
    asked = cluster.view.handovers[processor].to
    cluster.never_prepares.clear()
    cluster.run(60_000)
    (task, *_) = cluster.view.job_tasks(processor)
    record = cluster.view.records[task].record
    assert (record.placed[record.active or 0], record.is_chosen) == (asked, True)


def use_hand_overs_up(cluster: FakeCluster) -> None:
    spent = replace(cluster.view.rebalancing["job"], moves=6)
    cluster.view = replace(cluster.view, rebalancing={"job": spent})


def lose_a_standby(cluster: FakeCluster) -> None:
    serving = {cluster.active_process(each).container for each in range(cluster.tasks)}
    idle = next(each for each in cluster.processes.values() if each.container not in serving)
    cluster.kill(idle.skein_id)


def test_after_the_most_hand_overs_actives_stay_until_a_container_is_lost() -> None:
    cluster = crowded()
    use_hand_overs_up(cluster)
    cluster.run(60_000)
    assert not moves(cluster)
    assert "no more until a container is lost" in spread_of(cluster.view, cluster.view.jobs["job"]).why
    lose_a_standby(cluster)
    cluster.run(60_000)
    assert spread_of(cluster.view, cluster.view.jobs["job"]).is_even


def test_drained_hosts_get_no_actives() -> None:
    cluster = evenly_spread(hosts=("h1", "h2", "h3", "h4"))
    cluster.drain("h1")
    cluster.run(90_000)
    assert cluster.is_whole()
    assert not [each for each in cluster.processes.values() if each.host == "h1" and each.wanted]
    assert spread_of(cluster.view, cluster.view.jobs["job"]).is_even
    assert per_host(cluster) == [0, 1, 1, 1]


def test_policy_restart_spreads_as_well() -> None:
    cluster = evenly_spread(policy=PlannerPolicy(restarts=True))
    host = cluster.active_process(0).host
    cluster.lose_host(host, silent=False)
    cluster.run(30_000)
    cluster.return_host(host)
    cluster.run(60_000)
    assert cluster.is_whole()
    assert spread_of(cluster.view, cluster.view.jobs["job"]).is_even


def test_other_jobs_decide_between_equal_choices_alone() -> None:
    stands = [
        Stand(ProcessorId("job", "main", number), "h1", {host: 1})
        for number, host in enumerate(("h2", "h3", "h2"))
    ]
    assert next_steps(stands)[0].target == "h2"
    assert next_steps(stands, {"h2": 4, "h3": 1})[0].target == "h3"
    assert next_steps(stands[:1], {"h1": 9}) == [], "only its own actives count"


@pytest.mark.parametrize("is_mixed", [False, True])
def test_no_active_is_handed_back_to_an_older_revision_during_an_upgrade(is_mixed: bool) -> None:
    cluster = evenly_spread(
        policy=PlannerPolicy(rebalance="manual"), is_mixed=is_mixed, containers=6, tasks=6
    )
    cluster.load(revision=2)
    older: list[todo.PrepareHandover] = []
    while cluster.view.unsettled:
        if not cluster.now_ms % 1_000:
            cluster.command(Operation.REBALANCE, job="job")
        seen = len(moves(cluster))
        cluster.run(100)
        begun = ((each, cluster.view.containers[each.container]) for each in moves(cluster)[seen:])
        older += [each for each, container in begun if container.revisions.get("job") != 2]
        assert cluster.now_ms < 180_000, cluster.view.unsettled
    assert not older
    assert {each.revisions["job"] for each in cluster.processes.values()} == {2}


def test_a_host_that_is_drained_while_its_copy_gets_ready_gets_no_active() -> None:
    cluster = crowded()
    cluster.never_prepares.update(each.container for each in cluster.processes.values())
    cluster.run(PAUSE_MS + 1_000)
    ((processor, handover),) = cluster.view.handovers.items()
    cluster.drain(cluster.view.containers[handover.to].host)
    cluster.never_prepares.clear()
    cluster.run(1_000)
    assert processor not in cluster.view.handovers
    assert "decided_handover" not in cluster.kinds()


def test_the_command_waits_for_copies_that_are_being_restored() -> None:
    cluster = evenly_spread(
        policy=PlannerPolicy(rebalance="manual"), hosts=("h1", "h2"), containers=2, tasks=2
    )
    host = cluster.active_process(0).host
    cluster.lose_host(host, silent=False)
    cluster.run(3_000)
    cluster.restore_ms, usual_ms = 20_000, cluster.restore_ms
    cluster.return_host(host)
    cluster.run(8_000)
    cluster.restore_ms = usual_ms
    assert not cluster.view.failovers
    assert [sorted(each.record.placed) for each in cluster.versions.values()] == [[0, 1], [0, 1]]
    assert [len(each.record.in_sync) for each in cluster.versions.values()] == [1, 1]
    cluster.command(Operation.REBALANCE, job="job")
    cluster.run(100)
    assert "spreading actives" in cluster.said[-1].said
    cluster.run(30_000)
    assert per_host(cluster) == [1, 1]
    assert not spread_of(cluster.view, cluster.view.jobs["job"]).is_asked


def test_a_command_ends_when_its_hand_overs_are_used_up() -> None:
    cluster = crowded(policy=PlannerPolicy(rebalance="manual"))
    cluster.is_warm = False
    cluster.run(1_000)
    cluster.command(Operation.REBALANCE, job="job")
    cluster.run(100)
    use_hand_overs_up(cluster)
    cluster.is_warm = True
    lose_a_standby(cluster)
    cluster.run(60_000)
    assert per_host(cluster) == [0, 1, 2]
    assert not moves(cluster), "the key says manual, and the command is over"


def test_job_that_is_spread_evenly_keeps_no_other_from_being_checked() -> None:
    view = evenly_spread().view
    model = JobModel("other", {ProcessorId("other", "main", 0): Processor((), (0,))})
    jobs = {**view.jobs, "other": replace(view.jobs["job"], name="other", model=model)}
    view = replace(view, jobs=jobs, rebalancing=dict.fromkeys(jobs, Rebalancing(is_asked=True)))
    assert list(writes(Turn(view))) == [todo.RestRebalancing(each) for each in ("job", "other")]
