"""The planner where hosts stand in racks: copies that came together in one are parted when another can be had."""

from __future__ import annotations

import pytest

from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state.job import PlannerPolicy
from standby.shared.model import TaskId
from tests.fakes.yarn import FakeCluster, deployed

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
