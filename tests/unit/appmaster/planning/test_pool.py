"""The planner with a pool: the end of a process shows in ZooKeeper alone, and hosts are known to be full."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest

from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.view import Presence
from standby.shared.exits import ProcessEnd, Ran
from standby.shared.model import TaskId
from tests.fakes import yarn
from tests.fakes.yarn import FakeCluster
from tests.scenarios.flights import until


def deployed(hosts: int = 6, **more: Any) -> FakeCluster:
    """Return a whole cluster on a pool with one process per host: four tasks with a standby each."""
    names = tuple(f"h{each}" for each in range(1, hosts + 1))
    return yarn.deployed(**{"capacity": 1, **more}, cells=(1,), is_pool=True, hosts=names)


MIXED = pytest.mark.parametrize("is_mixed", [False, True])


def test_a_drained_host_of_a_full_pool_is_emptied_once_a_process_waits_elsewhere() -> None:
    """Until then its actives are handed over, and its standbys stay: full hosts are known, and nothing is dropped."""
    cluster = deployed(is_mixed=True, hosts=3, containers=3)
    assert not cluster.view.offers
    cluster.drain("h1")
    cluster.run(30_000)
    assert cluster.is_whole()
    assert {cluster.active_process(each).host for each in range(4)} == {"h2", "h3"}
    assert Counter(each.host for each in cluster.processes.values() if each.replicas)["h1"]
    cluster.add_hosts("h4")
    cluster.run(60_000)
    assert cluster.is_whole()
    assert {each.host for each in cluster.processes.values() if each.replicas} == {"h2", "h3", "h4"}


@MIXED
def test_a_pool_whose_processes_have_all_ended_is_asked_for_none_before_one_comes(*, is_mixed: bool) -> None:
    """A request for any host would get the first process, though its host holds another copy of the same tasks."""
    cluster = deployed(is_mixed=is_mixed, hosts=4, capacity=2, containers=4 if is_mixed else 2)
    for each in cluster.hosts:
        cluster.lose_host(each, silent=False)
    cluster.hosts = ()
    cluster.run(30_000)
    assert not cluster.view.containers
    assert not cluster.view.requests
    assert {each.partition(": ")[2] for each in cluster.view.jobs["job"].reasons} == {
        f"copy {each}: no process waits" for each in (0, 1)
    }
    cluster.actions.clear()
    for each in ("h5", "h6", "h7"):
        cluster.add_hosts(each)
        cluster.run(10_000)
    assert cluster.is_whole()
    assert all(each.host is not None for each in cluster.did(todo.RequestContainer))
    assert "same_host_refused" not in cluster.kinds()


def test_what_an_earlier_leader_claimed_for_a_mixed_job_serves_it_although_no_other_process_waits() -> None:
    """The next leader does not know for which job it was."""
    cluster = FakeCluster(cells=(1,), is_pool=True, capacity=1, is_mixed=True, containers=3)
    cluster.lose_host("h3", silent=False)
    cluster.run(1_000)
    assert len(cluster.view.containers) == 2
    assert not cluster.view.assigned
    cluster.elect(2)
    cluster.return_host("h3")
    cluster.run(30_000)
    assert cluster.is_whole()


@MIXED
def test_a_process_that_was_lost_and_holds_nothing_is_not_lost_again_to_the_next_leader(
    *, is_mixed: bool
) -> None:
    """It stays claimed until its session ends."""
    cluster = deployed(is_mixed=is_mixed)
    dead = cluster.active_process(0)
    cluster.kill(dead.skein_id)
    cluster.run(4_000)
    assert dead.container not in cluster.view.assigned
    cluster.elect(2)
    cluster.expect(dead)
    cluster.run(20_000)
    lost, gone = (cluster.news(each) for each in ("container_lost", "container_gone"))
    assert [(each.container, each.job) for each in lost] == [(dead.container, "job")]
    assert [each.container for each in gone] == [dead.container] * 2


def test_an_end_that_a_leader_has_recorded_is_no_second_failure_to_the_next() -> None:
    """The process stays claimed, and its witness answers each leader, until the session ends."""
    cluster = deployed(policy=PlannerPolicy(restarts=True, samehost_timeout_ms=1_000))
    dead = cluster.active_process(0)
    end = ProcessEnd(-signal.SIGSEGV, (Ran(TaskId("job", "main", 0), 10),))
    cluster.grants_nothing = True
    cluster.crash(dead.skein_id, end)
    cluster.run(2_000)
    first = cluster.record(0)
    assert first.active is not None
    assert (first.failures and first.failures.count, first.placed[first.active]) == (1, dead.container)
    cluster.elect(2)
    cluster.expect(dead)
    cluster.ends[dead.container] = end
    cluster.grants_nothing = False
    cluster.run(20_000)
    assert [each.container for each in cluster.news("container_lost")] == [dead.container] * 2
    assert cluster.is_whole()
    assert cluster.record(0).failures == first.failures


def test_a_process_that_ends_before_it_connects_is_told_as_a_failed_launch() -> None:
    cluster = FakeCluster(cells=(1,), is_pool=True)
    cluster.grants_nothing = True
    cluster.run(100)
    request = next(iter(cluster.view.requests.values()))
    cluster.tell(happened.ContainerUnregistered("pool_h-x", cluster.now_ms, request.skein_id))
    (failed,) = cluster.news("launch_failed")
    assert str(failed.reason) == "ended at launch: the session of pool_h-x ended"


@pytest.mark.parametrize(("is_mixed", "standbys"), [(False, 1), (True, 0)])
def test_a_process_that_is_stopped_hands_its_actives_over_first(*, is_mixed: bool, standbys: int) -> None:
    cluster = deployed(is_mixed=is_mixed, standbys=standbys)
    stopped = cluster.active_process(0)
    stopped.is_leaving = True
    cluster.run(30_000)
    assert cluster.is_whole()
    assert stopped.container not in cluster.view.containers
    kinds = Counter(each.kind.value for each in cluster.entries)
    assert kinds["handover_finished"] >= 1
    assert not kinds.keys() & {"container_lost", "failover_started", "launch_failed"}


def test_nothing_is_placed_beside_a_process_that_is_stopped_until_it_has_closed_its_copies() -> None:
    cluster = deployed(hosts=2, capacity=4, is_mixed=True)
    stopped = cluster.active_process(0)
    stopped.is_leaving = True
    cluster.live()
    # From here on it stands still: it hears neither that it is to exit, nor does it close anything.
    stopped.is_frozen = True
    until(cluster, lambda: cluster.view.containers[stopped.container].presence is Presence.LEAVING)
    cluster.run(3_000)
    (claimed,) = (each for each in cluster.view.containers.values() if cluster.view.is_free(each))
    assert claimed.host == stopped.host
    until(cluster, lambda: stopped.container not in cluster.view.containers)
    cluster.run(20_000)
    assert cluster.is_whole()
    assert claimed.id in cluster.view.assigned
