"""The planner where containers see state of earlier ones on their hosts' disks: copies go where it lies."""

from __future__ import annotations

import pytest

from appmaster.api.leader_api import LeaderApi
from appmaster.effects import Replies
from appmaster.planning.placement.left_state import leftovers
from appmaster.planning.placement.turn import Turn
from appmaster.planning.state import actions as todo
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.view import RequestKind
from locality.history import StateOnDisk
from standby.shared.clock import REAL
from standby.shared.model import Leftover, ProcessorId, SlotId, TaskId
from tests.fakes.yarn import FakeCluster, Process, deployed

TASK, OTHER = TaskId("job", "main", 0), TaskId("job", "main", 1)
HOSTS = ("h1", "h2", "h3", "h4", "h5")
#: The fake cluster's leaders begin at this time.
SEEN_MS = 1_700_000_000_000


def on_four_hosts(policy: PlannerPolicy | None = None) -> FakeCluster:
    """Return a cluster of two processors of one task each, on four hosts; the fifth is empty."""
    cluster = deployed(tasks=2, containers=2, hosts=HOSTS, policy=policy or PlannerPolicy())
    assert {each.host for each in cluster.processes.values()} == set(HOSTS[:4])
    return cluster


def see(cluster: FakeCluster, *, run: str = "run1", position: int = 8) -> str:
    """Have the container with the other task's active say that it saw state of the first task; return its host."""
    process = cluster.active_process(OTHER.partition)
    seen = Leftover(TASK, run, position, cluster.view.wall(cluster.now_ms))
    cluster.leftovers[process.host] = (seen,)
    process.is_connected = False
    cluster.run(1_000)
    return process.host


def standby(cluster: FakeCluster) -> Process:
    """Return the process with the standby of the first task."""
    active = cluster.active_process(TASK.partition)
    (found,) = (
        each
        for each in cluster.processes.values()
        if each is not active and any(wanted.replica.task == TASK for wanted in each.wanted)
    )
    return found


def drain_standby(cluster: FakeCluster) -> None:
    """Have the standby leave its host, for one that never held it."""
    cluster.actions.clear()
    cluster.drain(standby(cluster).host)
    cluster.settle(20_000)


def test_a_standby_moves_to_where_its_state_was_seen() -> None:
    cluster = on_four_hosts()
    host = see(cluster)
    drain_standby(cluster)
    (asked,) = (
        each
        for each in cluster.did(todo.RequestContainer)
        if each.slot == SlotId(ProcessorId("job", "main", 0), 1)
    )
    assert (asked.host, asked.kind) == (host, RequestKind.PREFERRED)
    assert "holds its state (seen on its disk)" in asked.reason
    assert standby(cluster).host == host


def test_what_a_lost_copy_had_is_not_older_than_what_was_seen_elsewhere() -> None:
    cluster = on_four_hosts()
    assert see(cluster) != standby(cluster).host
    lost = standby(cluster)
    cluster.actions.clear()
    cluster.kill(lost.skein_id)
    cluster.settle(20_000)
    assert [each.host for each in cluster.did(todo.RequestContainer)] == [lost.host]


@pytest.mark.parametrize(
    ("run", "policy"),
    [
        pytest.param("of a former life", PlannerPolicy(), id="state of a run that was deleted"),
        pytest.param("run1", PlannerPolicy(host_affinity=False), id="a job that asks for no affinity"),
        pytest.param("run1", PlannerPolicy(locality_expiry_ms=1), id="seen too long ago"),
    ],
)
def test_state_that_does_not_count_draws_no_copy(run: str, policy: PlannerPolicy) -> None:
    cluster = on_four_hosts(policy)
    see(cluster, run=run)
    drain_standby(cluster)
    assert standby(cluster).host == "h5", "the least loaded"


def test_the_latest_sight_of_a_host_counts() -> None:
    cluster = on_four_hosts()
    host = see(cluster)
    see(cluster, position=3)
    assert leftovers(Turn(cluster.view)) == {
        TASK: (StateOnDisk(host, 3, cluster.leftovers[host][0].found_ms),)
    }


def test_what_is_explained_names_state_that_was_seen() -> None:
    cluster = on_four_hosts()
    host = see(cluster)
    answers = LeaderApi(lambda: cluster.view, dict, Replies(lambda event: None, REAL))
    told = answers({"operation": "explain", "job": "job", "partition": 0})
    lines = [line for copy in told["copies"] for line in copy["why"] if line.startswith(f"{host}:")]
    assert len(lines) == 2
    assert all("holds its state (seen on its disk)" in line for line in lines)


def test_a_mixed_job_fills_its_containers_by_the_state_and_evenly() -> None:
    tasks = [TaskId("job", "main", each) for each in range(6)]
    cluster = FakeCluster(tasks=6, containers=3, standbys=0, is_mixed=True, hosts=HOSTS[:3])
    # The wrong way round from what the names alone would give.
    state = {"h1": tasks[4:], "h2": tasks[2:4], "h3": tasks[:2]}
    for host, held in state.items():
        cluster.leftovers[host] = tuple(Leftover(each, "run1", 50, SEEN_MS) for each in held)
    cluster.settle(30_000)
    where = {each: cluster.active_process(each.partition).host for each in tasks}
    assert where == {task: host for host, held in state.items() for task in held}
