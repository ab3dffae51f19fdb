"""The planner on a cluster without I/O, one situation at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appmaster.planning.plan import MOST_ACTIONS, plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import JobState
from appmaster.planning.state.model import SpareSlotId
from appmaster.planning.state.view import ClusterView, Command, Operation, Presence
from standby.shared.model import Phase
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
