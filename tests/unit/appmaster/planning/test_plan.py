"""The planner on a cluster without I/O, one situation at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from appmaster.eventlog.entries import LogEntry, LostData
from appmaster.planning.plan import MOST_ACTIONS, plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import JobState
from appmaster.planning.state.model import SpareSlotId
from appmaster.planning.state.reasons import Loss, Reason
from appmaster.planning.state.view import ClusterView, Command, Operation, Presence
from standby.shared.model import Phase, Role
from tests.fakes.yarn import FakeCluster, deployed
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    PROCESSOR,
    SECOND,
    changed,
    free,
    holder_of,
    of_records,
    of_view,
    turned,
    without_container,
)


@pytest.fixture
def cluster() -> FakeCluster:
    """Return four tasks on two processors with a standby each, deployed on three hosts."""
    return deployed()


def test_undeploy_takes_the_active_away_then_fences_then_stops(cluster: FakeCluster) -> None:
    job = cluster.view.jobs["job"]
    cluster.tell(happened.JobLoaded("job", "run1", job.spec, job.model, job.policy, is_wanted=False))
    cluster.run(3_000)
    order = [type(each).__name__ for each in cluster.actions]
    assert order.index("WriteRecords") < order.index("FenceTasks") < order.index("SendExit")
    assert not cluster.processes
    assert cluster.view.jobs["job"].state is JobState.UNDEPLOYED
    assert all(each.record.active is None for each in cluster.versions.values())


def test_standby_that_lags_leaves_the_in_sync_set_and_returns(cluster: FakeCluster) -> None:
    record = cluster.record(0)
    container = record.placed[1]
    process = cluster.process(container)
    process.report(lag_ms=30_000, applied=5)
    cluster.run(1_000)
    assert cluster.record(0).in_sync == (0,)
    assert cluster.view.jobs["job"].state is JobState.INCOMPLETE
    process.report(lag_ms=None, end=None)
    cluster.run(1_000)
    assert cluster.record(0).in_sync == (0,), "frozen while unknown"
    process.report(lag_ms=0, end=cluster.applied)
    cluster.run(1_000)
    assert cluster.record(0).in_sync == (0, 1)


def test_failed_replica_costs_its_container_and_fails_over(cluster: FakeCluster) -> None:
    cluster.active_process(0).report(phase=Phase.FAILED, detail="step raised ValueError")
    cluster.settle(5_000)
    assert cluster.record(0).active == 1
    assert "step raised ValueError" in str(cluster.news("container_lost")[0].reason)


def test_refused_write_is_read_back_before_anything_else_touches_those_tasks(cluster: FakeCluster) -> None:
    cluster.refuses_writes = 1
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.settle(5_000)
    assert "decision_refused" in cluster.kinds()


@pytest.mark.parametrize("order", [*permutations(("h1", "h2", "h3"))], ids="-".join)
def test_two_standbys_carry_a_job_through_the_loss_of_its_hosts_in_any_order(order: tuple[str, ...]) -> None:
    cluster = deployed(tasks=1, containers=1, standbys=2)
    for lost, host in enumerate(order[:2], 1):
        cluster.lose_host(host, silent=False)
        cluster.run(2_000)
        assert cluster.active_process(0).host not in order[:lost]
        assert len(cluster.record(0).in_sync) == 3 - lost
    assert all(each.data["to_in_sync"] for each in cluster.news("failover_started"))
    cluster.lose_host(order[2], silent=False)
    cluster.run(2_000)
    assert not cluster.processes
    for host in order:
        cluster.return_host(host)
        cluster.run(2_000)
    cluster.settle(60_000)


# ---- single rules ----


def much_to_do() -> ClusterView:
    """Return a view with a lost standby, a spare container, a task of which a higher epoch was seen, and a command."""
    view = deployed().view
    return turned(
        view,
        of_view(unsettled=frozenset({PROCESSOR, ANOTHER.processor})),
        without_container(1),
        of_records(*view.job_tasks(PROCESSOR), placed={0: holder_of(view, 0).id}, in_sync=(0,)),
        of_view(ahead={SECOND: 9}),
        free("c8", "h4", SpareSlotId("job", 0)),
        of_view(commands=(Command(1, Operation.HAND_OVER, PROCESSOR),)),
    ).view


def test_what_the_leader_notes_comes_first_then_what_must_last_and_answers_at_the_end() -> None:
    """The slot that takes the spare container needs no other one."""
    assert [type(each) for each in plan(much_to_do())] == [
        *(todo.TakeSpare, todo.WriteRecords, todo.WriteStatus),
        *(todo.SendAssignment, todo.ProbePort, todo.Answer),
    ]


def test_one_that_does_not_lead_does_nothing() -> None:
    assert plan(replace(much_to_do(), epoch=0)) == ()


def test_a_turn_leaves_what_is_less_urgent_to_the_next_ones() -> None:
    view = changed(much_to_do(), free("c9", "h4", None, presence=Presence.ORPHAN))
    unknown = {each: replace(view.containers["c9"], id=each) for each in map(str, range(MOST_ACTIONS))}
    actions = plan(replace(view, containers={**view.containers, **unknown}))
    assert len(actions) == MOST_ACTIONS
    assert [type(each) for each in actions[:3]] == [todo.TakeSpare, todo.WriteRecords, todo.WriteStatus]


def test_a_process_that_stood_still_for_less_than_a_second_is_not_lost(cluster: FakeCluster) -> None:
    """Also if it is not heard for a while after that: what it was seen to do counts, not only its silence."""
    frozen = cluster.active_process(0)
    for before, still, after in (
        *[(100, 700, each) for each in range(0, 200, 50)],
        (700, 700, 0),
        (0, 600, 1_000),
    ):
        frozen.is_frozen = True
        cluster.run(before)
        frozen.is_still = True
        cluster.run(still)
        frozen.is_still = False
        cluster.run(after)
        frozen.is_frozen = False
        cluster.run(1_000)
        assert "container_lost" not in cluster.kinds()


def test_a_live_container_whose_port_refuses_is_dead_before_its_stream_breaks(cluster: FakeCluster) -> None:
    process = cluster.active_process(0)
    process.is_frozen = True
    cluster.run(500)
    cluster.tell(happened.PortProbed(process.container, process.incarnation, False, cluster.now_ms))
    lost = cluster.news("container_lost")[0]
    assert str(lost.reason) == "port-refused"


def test_a_lost_container_of_a_mixed_job_had_the_roles_of_all_its_copies() -> None:
    """Each has the actives of two tasks and the standbys of two others."""
    cluster = deployed(tasks=6, containers=3, is_mixed=True, hosts=("h1", "h2", "h3", "h4"))
    first = cluster.active_process(0)
    held = [each.role for each in first.replicas.values()]
    assert sorted(held) == [Role.ACTIVE] * 2 + [Role.STANDBY] * 2
    cluster.kill(first.skein_id)
    cluster.settle(10_000)
    cluster.kill(cluster.active_process(1).skein_id)
    # Its loss is noticed by the next leader, which knows only the records.
    cluster.elect(2)
    cluster.settle(10_000)
    lost = cluster.news("container_lost")
    assert [(each.reason.kind, roles_of(each)) for each in lost if isinstance(each.reason, Reason)] == [
        (Loss.PORT_REFUSED, ("mixed", 2, 4)),
        (Loss.GONE_BEFORE_TAKEOVER, ("mixed", 3, 4)),
    ]


def roles_of(entry: LogEntry) -> tuple[str | None, int, int]:
    assert isinstance(entry.details, LostData)
    return entry.details.role, entry.details.actives, entry.details.replicas


def look_in_vain(cluster: FakeCluster) -> None:
    """Have every look at a port that the leader wants come to its end without an answer of the host."""
    looks = [each for each in plan(cluster.view) if isinstance(each, todo.ProbePort)]
    assert looks
    for each in looks:
        cluster.tell(happened.Started(each, cluster.now_ms))
        cluster.tell(
            happened.PortProbed(
                each.container,
                each.incarnation,
                True,
                cluster.now_ms,
                None,
                is_answered=False,
                is_running=False,
            )
        )


def test_leader_suspects_itself_first_when_most_fall_silent_at_once(cluster: FakeCluster) -> None:
    cluster.now_ms += 2_600
    cluster.tell(happened.Ticked(cluster.now_ms))
    look_in_vain(cluster)
    assert [type(each) for each in plan(cluster.view)] == [todo.DoubtSelf]
    cluster.run(5_000)
    assert "container_lost" not in cluster.kinds()


def test_container_that_no_leader_requested_is_told_to_exit(cluster: FakeCluster) -> None:
    cluster.tell(happened.ContainerRegistered("orphan", "s_98", 98, "h1", 1, 0, (), (), cluster.now_ms))
    assert any(isinstance(each, todo.SendExit) and each.container == "orphan" for each in plan(cluster.view))


def test_process_that_speaks_although_yarn_has_ended_it_is_told_to_exit(cluster: FakeCluster) -> None:
    # Its NodeManager was lost: it runs on, its stream stands, and its stores are open.
    orphan = cluster.active_process(0)
    spoke = happened.HeartbeatReceived(orphan.container, orphan.incarnation, cluster.now_ms)
    cluster.tell(
        happened.ContainerCompleted(orphan.skein_id, "Container released on a *lost* node", cluster.now_ms)
    )
    assert orphan.container not in cluster.view.containers
    cluster.tell(spoke)
    cluster.turn()
    told = [each.container for each in cluster.did(todo.SendExit)]
    assert told == [orphan.container]
    cluster.tell(happened.ContainerStreamBroken(orphan.container, orphan.incarnation, cluster.now_ms))
    assert orphan.container not in cluster.view.containers
