"""The planner where hosts stand in racks: copies that came together in one are parted when another can be had."""

from __future__ import annotations

import pytest

from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import JobState, PlannerPolicy
from standby.shared.model import TaskId
from tests.fakes.yarn import FakeCluster, Process, deployed

RACKS = {"h1": "/a", "h2": "/a", "h3": "/b"}


def in_two_racks(**settings: object) -> FakeCluster:
    cluster = deployed(**{"racks": RACKS, **settings})
    assert not in_one_rack(cluster)
    return cluster


def in_one_rack(cluster: FakeCluster) -> set[TaskId]:
    """Return the tasks whose copies are all in one rack."""
    found = set()
    for each in cluster.versions.values():
        holders = [cluster.by_container(name) for name in each.record.placed.values()]
        if len({cluster.racks.get(holder.host) for holder in holders if holder}) == 1:
            found.add(each.record.task)
    return found


@pytest.mark.parametrize("cells", [(), (1, 2)])
@pytest.mark.parametrize("standbys", [1, pytest.param(2, marks=pytest.mark.acceptance)])
def test_copies_are_parted_again_when_a_rack_returns(standbys: int, cells: tuple[int, ...]) -> None:
    racks = {**RACKS, "h4": "/a"}
    cluster = in_two_racks(standbys=standbys, cells=cells, racks=racks, hosts=tuple(racks))
    cluster.lose_host("h3", silent=False)
    cluster.settle(60_000)
    assert in_one_rack(cluster) == set(cluster.versions)
    cluster.return_host("h3")
    cluster.entries.clear()
    cluster.settle(120_000)
    assert not in_one_rack(cluster)
    assert not {"failover_started", "handover_started"} & set(cluster.kinds()), "standbys go, actives stay"
    assert not cluster.view.unsettled
    assert plan(cluster.view) == ()


@pytest.mark.parametrize("more", [(), ("h4",)], ids=["one waits", "one waits in each rack"])
def test_the_only_process_of_another_rack_of_a_pool_is_claimed_once(more: tuple[str, ...]) -> None:
    """Its host has no room from then on, and is still where the copy is to go."""
    cluster = FakeCluster(
        containers=1,
        cells=(1,),
        is_pool=True,
        capacity=1,
        hosts=("h1", "h2"),
        racks={**RACKS, "h4": "/a"},
    )
    cluster.settle(10_000)
    cluster.add_hosts("h3", *more)
    cluster.tell_hosts()
    cluster.actions.clear()
    cluster.run(60_000)
    assert not in_one_rack(cluster)
    assert [each.host for each in cluster.did(todo.RequestContainer)] == ["h3"]
    assert not cluster.view.unsettled


def test_a_copy_moves_to_a_better_host_once_the_containers_are_warm() -> None:
    cluster = in_two_racks(tasks=1, containers=1)
    cluster.lose_host("h3", silent=False)
    cluster.cold_hosts = {*RACKS}
    cluster.settle(60_000)
    cluster.return_host("h3")
    cluster.actions.clear()
    cluster.run(30_000)
    assert not cluster.did(todo.RequestContainer), "its process would delay what the others do to become warm"
    cluster.cold_hosts = set()
    cluster.run(30_000)
    assert [each.host for each in cluster.did(todo.RequestContainer)] == ["h3"]
    assert not in_one_rack(cluster)


def moving_to_a_cold_host() -> tuple[FakeCluster, Process, Process]:
    """Return a cluster whose standby is filled on a host where it does not get warm; the active, and the old copy."""
    cluster = in_two_racks(tasks=1, containers=1)
    cluster.lose_host("h3", silent=False)
    cluster.settle(60_000)
    active = cluster.active_process(0)
    (standby,) = (each for each in cluster.processes.values() if each is not active)
    cluster.cold_hosts = {"h3"}
    cluster.return_host("h3")
    cluster.entries.clear()
    cluster.run(60_000)
    assert "decided_move" in cluster.kinds()
    assert "decided_moved" not in cluster.kinds()
    return cluster, active, standby


def test_a_warm_standby_is_kept_until_the_one_that_replaces_it_is_warm() -> None:
    cluster, active, standby = moving_to_a_cold_host()
    cluster.kill(active.skein_id)
    cluster.run(1_000)
    assert cluster.active_process(0) is standby
    cluster.run(30_000)
    assert cluster.active_process(0) is standby, "an active is not handed over to a cold one either"

    cluster, _, _ = moving_to_a_cold_host()
    cluster.cold_hosts = set()
    cluster.run(1_000)
    assert not in_one_rack(cluster)


def test_a_warm_standby_is_not_kept_for_long_nor_if_its_process_is_to_end() -> None:
    cluster, _, standby = moving_to_a_cold_host()
    standby.is_leaving = True
    cluster.run(1_000)
    assert not in_one_rack(cluster)

    cluster, _, _ = moving_to_a_cold_host()
    cluster.run(80_000)
    assert not in_one_rack(cluster)


@pytest.mark.acceptance
def test_a_rack_that_is_away_is_asked_with_a_back_off_and_nothing_else_suffers() -> None:
    cluster = in_two_racks()
    cluster.lose_host("h3", silent=False)
    cluster.run(120_000)
    actives = {each: cluster.active_process(each).container for each in range(cluster.tasks)}
    cluster.actions.clear()
    cluster.run(300_000)
    asked = cluster.did(todo.RequestContainer)
    assert asked
    assert {each.host for each in asked} == {"h3"}
    assert len(asked) <= 2 * 300_000 / PlannerPolicy().retry_backoff_max_ms + 2, "two processors"
    assert {each: cluster.active_process(each).container for each in range(cluster.tasks)} == actives
    assert not cluster.did(todo.WriteRecords)


def test_a_rack_in_which_no_container_comes_up_costs_no_retries() -> None:
    cluster = in_two_racks(policy=PlannerPolicy(retry_count=3))
    cluster.lose_host("h3", silent=False)
    cluster.run(30_000)
    cluster.fails_at_launch = lambda host: host == "h3"
    cluster.return_host("h3")
    cluster.run(150_000)
    assert "launch_failed" in cluster.kinds()
    assert cluster.view.jobs["job"].state is JobState.DEPLOYED
    assert cluster.is_whole()


def test_copies_that_are_parted_in_racks_stay_parted_in_cells() -> None:
    # In the other rack there is room in the active's cell only: it goes there itself, after a hand-over.
    cluster = deployed(tasks=1, containers=1, cells=(1, 2))
    active = cluster.active_process(0)
    (standby,) = (each for each in cluster.processes.values() if each is not active)
    (other,) = set(cluster.hosts) - {active.host, standby.host}
    cluster.racks = {active.host: "/a", standby.host: "/a", other: "/b"}
    cluster.tell(
        happened.CellFound(standby.cell, standby.attempt, (active.host, standby.host), cluster.now_ms)
    )
    cluster.tell_hosts()
    cluster.run(30_000)
    assert not in_one_rack(cluster)
    assert {each.cell for each in cluster.processes.values()} == {1, 2}
    assert cluster.kinds().count("handover_finished") == 1
    assert not cluster.view.unsettled


def test_no_rack_is_worth_a_cell_that_has_not_answered_a_new_leader_yet() -> None:
    cluster = in_two_racks(cells=(1, 2))
    cluster.lose_host("h3", silent=False)
    cluster.settle(60_000)
    assert in_one_rack(cluster) == set(cluster.versions)
    cluster.return_host("h3")
    cluster.actions.clear()
    cluster.elect(2, silent=(2,))
    cluster.run(1_500)
    assert not cluster.did(todo.RequestContainer)
    cluster.tell(happened.CellFound(2, cluster.latest[2], cluster.hosts, cluster.now_ms))
    cluster.run(120_000)
    assert not in_one_rack(cluster)
    assert not cluster.view.unsettled


def test_where_hosts_stand_may_become_known_late() -> None:
    cluster = deployed(tasks=1, containers=1)
    active = cluster.active_process(0).host
    (standby,) = (each.host for each in cluster.processes.values() if each.host != active)
    assert not cluster.view.unsettled
    cluster.racks = dict.fromkeys(cluster.hosts, "/b") | {active: "/a", standby: "/a"}
    cluster.tell_hosts()
    cluster.run(30_000)
    assert not in_one_rack(cluster)
    assert not cluster.view.unsettled
