"""Spare containers: requested last, taken first, counted, and given back where something else finds no room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.api.snapshot import snapshot
from appmaster.cli.reading.observe import spares_in_words
from appmaster.planning.state import actions as todo
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import SpareSlotId
from standby.shared.model import NodeOffer
from tests.fakes.yarn import FakeCluster, Process

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
