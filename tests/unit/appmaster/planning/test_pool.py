"""The planner with a pool: the end of a process shows in ZooKeeper alone, and hosts are known to be full."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import JobState, PlannerPolicy
from appmaster.planning.state.view import Presence
from locality.fit import Demand
from standby.shared.model import NodeOffer
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


def pool(**more: Any) -> FakeCluster:
    """Return a pool with one process per host, on which nothing runs yet."""
    cluster = FakeCluster(cells=(1,), is_pool=True, capacity=1, **more)
    cluster.run(10_000)
    return cluster


def used(cluster: FakeCluster) -> set[str]:
    return {each.host for each in cluster.processes.values() if each.replicas}


@pytest.mark.parametrize(
    ("processes", "containers", "standbys"),
    [
        pytest.param({"h0": 2, "h1": 2, "h2": 3, "h3": 1}, 4, 1, id="four processors"),
        pytest.param({"h0": 1, "h1": 1, "h2": 3, "h3": 3, "h4": 1}, 3, 2, id="three copies of three"),
    ],
)
@MIXED
def test_copies_are_placed_wherever_the_processes_of_uneven_hosts_permit(
    processes: dict[str, int], containers: int, standbys: int, *, is_mixed: bool
) -> None:
    """By load and name the first processors would take the hosts that the last one needs for its copies."""
    cluster = pool(
        hosts=tuple(processes),
        capacities=processes,
        is_mixed=is_mixed,
        containers=sum(processes.values()) if is_mixed else containers,
        standbys=standbys,
    )
    assert cluster.is_whole()
    assert not cluster.did(todo.ReleaseContainer)


@MIXED
def test_copies_for_which_no_host_is_left_use_no_process_up_and_wait_for_another_host(
    *, is_mixed: bool
) -> None:
    cluster = FakeCluster(
        cells=(1,),
        is_pool=True,
        is_mixed=is_mixed,
        hosts=("h1",),
        capacity=4,
        containers=4 if is_mixed else 2,
    )
    cluster.run(30_000)
    assert {cluster.active_process(each).host for each in range(4)} == {"h1"}
    assert "h1 holds " in " ".join(cluster.view.jobs["job"].reasons)
    requests = len(cluster.did(todo.RequestContainer))
    cluster.run(60_000)
    assert len(cluster.did(todo.RequestContainer)) == requests
    assert not cluster.did(todo.ReleaseContainer)
    cluster.add_hosts("h3")
    cluster.settle(60_000)


def test_a_job_runs_on_the_processes_of_its_group_and_is_whole_once_another_of_them_comes() -> None:
    """Until then it has never had all its copies; a process of another group is not for it."""
    offers = dict.fromkeys(("h1", "h2", "h4"), NodeOffer(group="gpu"))
    policy = PlannerPolicy(demand=Demand(group="gpu"))
    cluster = pool(tasks=3, containers=3, standbys=0, offers=offers, policy=policy)
    assert used(cluster) == {"h1", "h2"}
    job = cluster.view.jobs["job"]
    assert job.state is JobState.DEPLOYING
    assert job.reasons == ("job/main:2: copy 0: no process that fits waits",)
    actives = [each.container for each in cluster.processes.values()]
    cluster.add_hosts("h4")
    cluster.settle(30_000)
    assert used(cluster) == {"h1", "h2", "h4"}
    assert cluster.view.jobs["job"].state is JobState.DEPLOYED
    assert [each.container for each in cluster.processes.values()][:2] == actives


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


def held(cluster: FakeCluster) -> list[int]:
    """Return how many copies each container holds, or is filled with, most first."""
    return sorted((len(each) for each in cluster.view.assigned.values()), reverse=True)


def test_an_update_with_fewer_containers_waits_for_processes_that_take_so_many_tasks() -> None:
    """Until then every task stays where it is: no process gets more tasks than its node allows."""
    offers = {f"h{each}": NodeOffer(tasks=2) for each in range(1, 7)}
    cluster = pool(hosts=tuple(offers), offers=offers)
    assert cluster.is_whole()
    cluster.load(containers=1)
    for _ in range(60):
        cluster.run(1_000)
        assert held(cluster) == [2, 2, 2, 2]
    assert any(
        "no process has 4 tasks, the largest has 2 (job.container.count" in each
        for each in cluster.view.jobs["job"].reasons
    )
    cluster.offers = {**offers, "h7": NodeOffer(tasks=4), "h8": NodeOffer()}
    cluster.add_hosts("h7", "h8")
    cluster.run(60_000)
    assert (held(cluster), used(cluster), cluster.is_whole()) == ([4, 4], {"h7", "h8"}, True)


def test_a_mixed_job_gives_no_container_up_whose_copies_the_others_do_not_take() -> None:
    offers = {f"h{each}": NodeOffer(tasks=3) for each in (1, 2, 3)}
    cluster = pool(hosts=tuple(offers), offers=offers, is_mixed=True, containers=3)
    assert cluster.is_whole()
    cluster.load(containers=2)
    for _ in range(30):
        cluster.run(1_000)
        assert cluster.is_whole()
    assert held(cluster) == [3, 3, 2]
    said = "3 containers are kept: 2 would not take its 8 copies (--tasks, job.container.count)"
    assert cluster.view.jobs["job"].reasons == (said,)


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
