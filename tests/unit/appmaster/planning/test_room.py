"""Copies of a pool for which what is free is of no use: standbys move, so that each copy finds a place."""

from __future__ import annotations

import pytest

from appmaster.planning.state.reasons import DecisionBasis, Reason
from standby.shared.model import NodeOffer
from tests.fakes.yarn import FakeCluster

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


def with_a_node_beside_its_active() -> FakeCluster:
    """Return a pool in which processor 1 has no standby, and a fourth process that only processor 0 can use."""
    cluster = FakeCluster(tasks=2, containers=2, cells=(1,), is_pool=True, hosts=HOSTS, capacity=1)
    cluster.run(20_000)
    assert [len(each.record.placed) for each in cluster.versions.values()] == [2, 1]
    cluster.entries.clear()
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
