"""Spare containers: requested last, taken first, counted, and given back where something else finds no room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.api.snapshot import snapshot
from appmaster.cli.reading.observe import spares_in_words
from appmaster.planning.state import actions as todo
from appmaster.planning.state.actions import Outcome
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import SpareSlotId
from appmaster.planning.state.view import ClusterView
from standby.shared.model import NodeOffer
from tests.fakes.yarn import SESSION_MS, FakeCluster, Process
from tests.scenarios.flights import until

FOUR = ("h1", "h2", "h3", "h4")


def policy(spares: int = 1) -> PlannerPolicy:
    return PlannerPolicy(spare_count=spares)


def whole(**more: Any) -> FakeCluster:
    """Return a cluster of one processor with a standby, whole, with its spare containers ready."""
    more = {"tasks": 2, "containers": 1, "hosts": FOUR, "policy": policy(), **more}
    cluster = FakeCluster(**more)
    cluster.settle(20_000)
    cluster.run(2_000)
    cluster.actions.clear()
    cluster.entries.clear()
    return cluster


def spares(cluster: FakeCluster) -> list[Process]:
    return [cluster.process(each.id) for each in cluster.view.spares_of("job")]


def requests(cluster: FakeCluster) -> list[todo.RequestContainer]:
    return cluster.did(todo.RequestContainer)


@pytest.mark.parametrize("loses_active", [True, False])
def test_a_lost_container_is_replaced_by_a_spare_one_at_once(loses_active: bool) -> None:
    cluster = whole()
    [spare] = spares(cluster)
    active = cluster.active_process(0)
    standby = next(
        cluster.process(each) for each in cluster.record(0).placed.values() if each != active.container
    )
    cluster.kill((active if loses_active else standby).skein_id)
    cluster.run(300)
    assert cluster.did(todo.TakeSpare)[0].container == spare.container
    assert spare.container in cluster.record(0).placed.values()
    assert not requests(cluster), "none before the spare has restored"
    cluster.settle(20_000)
    cluster.run(2_000)
    [request] = requests(cluster)
    assert isinstance(request.slot, SpareSlotId), "and then one in its place"
    assert len(spares(cluster)) == 1
    [taken] = cluster.news("spare_taken")
    assert taken.data == {
        "spare": "job:spare-0",
        "slot": str(cluster.did(todo.TakeSpare)[0].slot),
        "is_ready": True,
    }


def test_a_wish_for_a_better_location_that_is_not_granted_costs_none() -> None:
    """YARN goes on listing a host that is down for minutes, and it alone is in another rack than the rest."""
    cluster = whole(policy=policy(2), racks={"h1": "/a", "h2": "/a", "h3": "/a", "h4": "/b"})
    assert "h4" in {cluster.process(each).host for each in cluster.record(0).placed.values()}
    cluster.lose_host("h4", silent=True)
    cluster.run(120_000)
    assert {each.host for each in requests(cluster) if not isinstance(each.slot, SpareSlotId)} == {"h4"}
    assert len(spares(cluster)) == 2
    assert {each.outcome for each in cluster.did(todo.ReleaseContainer)} == {Outcome.LOST}


MIXED: Final[Mapping[str, Any]] = {"tasks": 4, "containers": 3, "is_mixed": True}


@pytest.mark.parametrize("more", [{"policy": policy(2)}, MIXED], ids=["two", "of a mixed job"])
def test_a_new_leader_knows_them_again_and_does_nothing(more: Mapping[str, Any]) -> None:
    cluster = whole(**more)
    before = {each.container for each in spares(cluster)}
    cluster.elect(2)
    cluster.run(10_000)
    assert {each.container for each in spares(cluster)} == before
    assert not cluster.did(todo.ReleaseContainer)
    assert not cluster.did(todo.WriteRecords)
    assert not requests(cluster)


def test_the_status_has_them_apart_from_what_serves() -> None:
    cluster = whole()
    status = snapshot(cluster.view, "cluster", {})
    (job,) = status["jobs"]
    assert job["spares"] == {"wanted": 1, "held": 1, "ready": 1}
    assert spares_in_words(job["spares"]) == "1 of 1, 1 ready"
    assert spares_in_words({"wanted": 0, "held": 0, "ready": 0}) == ""
    [spare] = (each for each in status["containers"] if each["spare"])
    assert (spare["slot"], spare["job"], spare["replicas"]) == ("job:spare-0", "job", 0)
    assert (spare["group"], spare["attributes"]) == (None, {}), "of YARN"
    held = cluster.view.containers[spare["container"]]
    of_pool = replace(held, offer=NodeOffer("gpu", attributes={"zone": "a"}))
    [shown] = snapshot(replace(cluster.view, containers={held.id: of_pool}), "cluster", {})["containers"]
    assert (shown["group"], shown["attributes"]) == ("gpu", {"zone": "a"})


def of_spares(view: ClusterView) -> bool:
    return any(isinstance(each.slot, SpareSlotId) for each in view.requests.values())


def test_they_are_requested_once_the_containers_of_the_job_are_warm() -> None:
    cluster = FakeCluster(tasks=2, containers=1, hosts=FOUR, policy=policy())
    cluster.is_warm = False
    cluster.settle(20_000)
    cluster.run(60_000)
    assert not spares(cluster), "one that starts would delay what the others do to become warm"
    cluster.is_warm = True
    cluster.settle(20_000)
    assert len(spares(cluster)) == 1


def test_it_is_never_taken_on_the_host_of_the_other_copy() -> None:
    cluster = whole(hosts=("h1", "h2"))
    [spare] = spares(cluster)
    beside = next(
        each for each in cluster.processes.values() if each.host == spare.host and each is not spare
    )
    other = next(each for each in cluster.processes.values() if each.host != spare.host)
    cluster.kill(other.skein_id)
    cluster.run(300)
    assert not cluster.did(todo.TakeSpare), "the copy beside it lives"
    cluster.settle(20_000)
    cluster.run(2_000)
    cluster.kill(beside.skein_id)
    cluster.run(300)
    [taken] = cluster.did(todo.TakeSpare)
    assert taken.container == spare.container


def test_a_request_for_one_makes_way_for_any_other() -> None:
    cluster = whole()
    cluster.grants_nothing = True
    cluster.kill(spares(cluster)[0].skein_id)
    until(cluster, lambda: of_spares(cluster.view))
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.run(500)
    assert not of_spares(cluster.view)
    cluster.run(3_000)
    assert cluster.view.requests
    assert not of_spares(cluster.view)


def test_it_is_given_back_in_a_pool_for_what_finds_no_room() -> None:
    """The spare container is beside the copy that is left, so the lost one cannot take it: its process makes room."""
    cluster = whole(hosts=("h1", "h2"), cells=(1,), is_pool=True, capacities={"h1": 2, "h2": 1})
    [spare] = spares(cluster)
    assert spare.host == "h1"
    cluster.capacities = {"h1": 2, "h2": 0}
    cluster.kill(next(each.skein_id for each in cluster.processes.values() if each.host == "h2"))
    cluster.run(SESSION_MS + 2_000)
    assert [each.container for each in cluster.did(todo.ReleaseContainer)] == [spare.container]
    assert not requests(cluster), "and none is requested while the copy lacks a place"
    cluster.capacities = {"h1": 2, "h2": 1}
    cluster.settle(60_000)
    cluster.run(5_000)
    assert len(spares(cluster)) == 1
