"""Copies of a pool for which what is free is of no use: standbys move, so that each copy finds a place."""

from __future__ import annotations

import pytest

from appmaster.planning.state.reasons import DecisionBasis, Reason
from standby.shared.model import NodeOffer
from tests.fakes.yarn import FakeCluster
from tests.scenarios.flights import until

HOSTS = ("h1", "h2", "h3")


def mixed() -> FakeCluster:
    """Return a pool that takes the copies of three tasks, and no more: the last one finds room beside its active."""
    return FakeCluster(
        tasks=3,
        containers=3,
        is_mixed=True,
        cells=(1,),
        is_pool=True,
        hosts=HOSTS,
        capacity=1,
        offers=dict.fromkeys(HOSTS, NodeOffer(tasks=2)),
    )


def lacking() -> FakeCluster:
    """Return a pool with three processes for four copies: processor 1 has no standby.

    The standby of processor 0 is alone in its rack.
    """
    racks = {"h1": "/a", "h2": "/a", "h3": "/b"}
    cluster = FakeCluster(
        tasks=2, containers=2, cells=(1,), is_pool=True, hosts=HOSTS, capacity=1, racks=racks
    )
    cluster.run(20_000)
    assert [len(each.record.placed) for each in cluster.versions.values()] == [2, 1]
    cluster.actions.clear()
    cluster.entries.clear()
    return cluster


def with_a_node_beside_its_active() -> FakeCluster:
    """Return it with a fourth process, which only a copy of processor 0 can use."""
    cluster = lacking()
    cluster.capacities = {cluster.active_process(1).host: 2}
    return cluster


@pytest.mark.parametrize("make", [mixed, with_a_node_beside_its_active])
def test_a_standby_moves_so_that_another_copy_finds_a_place(make: type[FakeCluster]) -> None:
    cluster = make()
    cluster.settle(60_000)
    (moved,) = (each for each in cluster.entries if each.kind.value == "decided_move")
    assert isinstance(moved.reason, Reason)
    assert moved.reason.kind is DecisionBasis.MAKES_ROOM
    assert str(moved.reason).endswith("#1 finds no other place")
    others = {"decided_drop", "decided_stay", "failover_started", "handover_started", "container_released"}
    assert not others & {*cluster.kinds()}, (
        "it serves until it is filled elsewhere, and what it leaves is used"
    )


def test_a_standby_of_a_processor_that_is_settled_moves_too() -> None:
    """The process beside the active waits all the time, and is of use only once a standby is lost."""
    cluster = lacking()
    cluster.add_hosts("h4")
    cluster.settle(60_000)
    cluster.capacities = {cluster.active_process(1).host: 2}
    cluster.settle(60_000)
    cluster.lose_host("h4", silent=False)
    cluster.settle(60_000)


def test_what_it_would_move_to_is_given_back_if_the_other_copy_finds_a_place_first() -> None:
    cluster = with_a_node_beside_its_active()
    until(cluster, lambda: bool(cluster.view.requests))
    cluster.add_hosts("h4")
    cluster.settle(60_000)
    assert "decided_move" not in cluster.kinds()
    assert {each.host for each in cluster.processes.values()} == {*HOSTS, "h4"}
    assert len(cluster.processes) == 4
