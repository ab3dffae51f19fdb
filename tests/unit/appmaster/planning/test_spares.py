"""Spare containers: requested last, taken first, counted, and given back where something else finds no room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from appmaster.api.snapshot import snapshot
from appmaster.cli.reading.observe import spares_in_words
from appmaster.planning.placement.turn import Turn
from appmaster.planning.plan import plan
from appmaster.planning.requests.needs import needs
from appmaster.planning.requests.spares import take
from appmaster.planning.state import actions as todo
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import SpareSlotId
from appmaster.planning.state.view import ClusterView, RequestState
from standby.shared.model import ProcessorId, SlotId
from tests.fakes.yarn import SESSION_MS, FakeCluster, Process
from tests.scenarios.flights import until

FOUR = ("h1", "h2", "h3", "h4")


def policy(spares: int = 1, **more: Any) -> PlannerPolicy:
    return PlannerPolicy(spare_count=spares, **more)


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


def of_spares(view: ClusterView) -> bool:
    return any(isinstance(each.slot, SpareSlotId) for each in view.requests.values())


def use(cluster: FakeCluster, **changes: Any) -> None:
    """Have the job run with another policy."""
    cluster.policy = replace(cluster.policy, **changes)
    cluster.load()


def test_a_job_has_none_by_default() -> None:
    cluster = whole(policy=PlannerPolicy())
    assert len(cluster.processes) == 2
    assert not spares(cluster)


def test_they_are_requested_once_the_job_is_whole_where_they_can_take_over_most() -> None:
    cluster = FakeCluster(tasks=2, containers=1, hosts=FOUR, policy=policy(2))
    until(cluster, lambda: of_spares(cluster.view))
    assert not cluster.view.unsettled
    assert cluster.is_whole()
    cluster.settle(20_000)
    cluster.run(2_000)
    copies = {cluster.process(each).host for each in cluster.record(0).placed.values()}
    assert {each.host for each in spares(cluster)} == {*FOUR} - copies
    assert [each.is_warm for each in cluster.view.spares_of("job")] == [True, True]


def test_they_are_requested_once_the_containers_of_the_job_are_warm() -> None:
    cluster = FakeCluster(tasks=2, containers=1, hosts=FOUR, policy=policy())
    cluster.is_warm = False
    cluster.settle(20_000)
    cluster.run(60_000)
    assert not spares(cluster), "one that starts would delay what the others do to become warm"
    cluster.is_warm = True
    cluster.settle(20_000)
    assert len(spares(cluster)) == 1


def test_a_container_that_never_becomes_warm_does_not_keep_them_away() -> None:
    cluster = FakeCluster(tasks=2, containers=1, hosts=FOUR, policy=policy())
    cluster.cold_hosts = {*FOUR}
    cluster.settle(20_000)
    cluster.run(120_000)
    assert len(spares(cluster)) == 1


def test_a_cold_container_without_copies_does_not_keep_them_away() -> None:
    view = whole().view
    [spare] = view.spares_of("job")
    idle = replace(spare, slot=SlotId(ProcessorId("job", "main", 0), 1), is_warm=False)
    requested = [
        each
        for each in plan(replace(view, containers={**view.containers, idle.id: idle}))
        if isinstance(each, todo.RequestContainer)
    ]
    assert [type(each.slot) for each in requested] == [SpareSlotId]


def test_a_spare_container_begins_its_job_without_replicas() -> None:
    cluster = whole()
    [spare] = spares(cluster)
    assert spare.wanted == ()
    assert spare.revisions == {"job": 1}


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


def test_a_ready_one_is_taken_before_one_that_starts() -> None:
    cluster = FakeCluster(tasks=2, containers=1, hosts=FOUR, policy=policy(2))
    cluster.cold_hosts = {"h3"}
    cluster.settle(20_000)
    cluster.run(2_000)
    states = {each.host: each.is_warm for each in cluster.view.spares_of("job")}
    assert states == {"h3": False, "h4": True}
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.run(300)
    [taken] = cluster.did(todo.TakeSpare)
    assert cluster.process(taken.container).host == "h4"


def test_a_lost_one_is_requested_again_and_costs_the_job_nothing() -> None:
    cluster = whole()
    [spare] = spares(cluster)
    cluster.kill(spare.skein_id)
    cluster.run(5_000)
    assert len(spares(cluster)) == 1
    assert {each.kind.value for each in cluster.entries if each.kind.value.startswith("decided")} == set()


def test_one_that_always_ends_by_itself_is_requested_ever_more_rarely_and_fails_no_job() -> None:
    cluster = whole(policy=policy(retry_count=3))
    for _ in range(300):
        for each in spares(cluster):
            cluster.crash(each.skein_id)
        cluster.run(300)
    assert len(requests(cluster)) == 3, "the first one is not among them"
    assert cluster.status == "deployed"


def test_a_change_of_their_number_takes_effect() -> None:
    cluster = whole()
    use(cluster, spare_count=3)
    cluster.run(5_000)
    assert len(spares(cluster)) == 3
    use(cluster, spare_count=1)
    cluster.run(5_000)
    [left] = spares(cluster)
    assert [each.outcome for each in cluster.did(todo.ReleaseContainer)] == [todo.Outcome.SURPLUS] * 2
    use(cluster, spare_count=0)
    cluster.run(5_000)
    assert not spares(cluster)
    assert left.container not in {each.container for each in cluster.processes.values()}


def test_a_new_leader_knows_them_again() -> None:
    cluster = whole(policy=policy(2))
    before = {each.container for each in spares(cluster)}
    cluster.elect(2)
    cluster.run(10_000)
    assert {each.container for each in spares(cluster)} == before
    assert not cluster.did(todo.ReleaseContainer)
    assert not requests(cluster)


def test_what_a_former_leader_requested_for_a_slot_serves_it() -> None:
    """The former leader had it begin the job, and ended before the record was written."""
    cluster = whole()
    [spare] = spares(cluster)
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.elect(2)
    cluster.settle(20_000)
    assert spare.container in cluster.record(0).placed.values()


def test_an_upgrade_ends_the_old_ones_first_and_asks_for_new_ones_last() -> None:
    cluster = whole()
    [old] = spares(cluster)
    cluster.load(revision=2)
    cluster.run(100)
    assert cluster.did(todo.ReleaseContainer)[0].container == old.container
    cluster.settle(60_000)
    cluster.run(2_000)
    [new] = spares(cluster)
    assert new.revisions == {"job": 2}
    assert isinstance(requests(cluster)[-1].slot, SpareSlotId)
    assert not any(isinstance(each.slot, SpareSlotId) for each in requests(cluster)[:-1])


def test_one_on_a_drained_host_goes_elsewhere() -> None:
    cluster = whole()
    [spare] = spares(cluster)
    cluster.drain(spare.host)
    cluster.run(10_000)
    [other] = spares(cluster)
    assert other.host != spare.host


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


def pool(capacities: dict[str, int], **more: Any) -> FakeCluster:
    hosts = tuple(capacities)
    return FakeCluster(
        **{
            "tasks": 2,
            "containers": 1,
            "hosts": hosts,
            "cells": (1,),
            "is_pool": True,
            "capacities": capacities,
            "policy": policy(),
            **more,
        }
    )


def test_a_full_pool_has_none_until_a_process_waits() -> None:
    cluster = pool({"h1": 1, "h2": 1})
    cluster.settle(20_000)
    cluster.run(5_000)
    assert not spares(cluster)
    assert not cluster.view.requests
    cluster.capacities = {"h1": 1, "h2": 2}
    cluster.run(5_000)
    assert [each.host for each in spares(cluster)] == ["h2"]


def test_it_is_given_back_in_a_pool_for_what_finds_no_room() -> None:
    """The spare container is beside the copy that is left, so the lost one cannot take it: its process makes room."""
    cluster = pool({"h1": 2, "h2": 1})
    cluster.settle(20_000)
    cluster.run(5_000)
    [spare] = spares(cluster)
    assert spare.host == "h1"
    cluster.actions.clear()
    cluster.capacities = {"h1": 2, "h2": 0}
    cluster.kill(next(each.skein_id for each in cluster.processes.values() if each.host == "h2"))
    cluster.run(SESSION_MS + 2_000)
    assert [each.container for each in cluster.did(todo.ReleaseContainer)] == [spare.container]
    assert not requests(cluster), "and none is requested while the copy lacks a place"
    cluster.capacities = {"h1": 2, "h2": 1}
    cluster.settle(60_000)
    cluster.run(5_000)
    assert len(spares(cluster)) == 1


def test_a_job_that_grows_takes_what_there_is() -> None:
    cluster = pool({"h1": 2, "h2": 2, "h3": 1})
    cluster.settle(20_000)
    cluster.run(5_000)
    assert [each.host for each in spares(cluster)] == ["h3"]
    cluster.load(containers=2)
    cluster.settle(20_000)
    cluster.run(5_000)
    assert len(cluster.processes) == 5, "four copies, and the spare one again"


def test_it_is_given_back_on_yarn_for_what_is_not_granted() -> None:
    cluster = whole(hosts=("h1", "h2"), capacities={"h1": 2, "h2": 1})
    [spare] = spares(cluster)
    assert spare.host == "h1"
    assert cluster.view.requests == {}
    cluster.capacities = {"h1": 2, "h2": 0}
    cluster.kill(next(each.skein_id for each in cluster.processes.values() if each.host == "h2"))
    cluster.run(30_000)
    assert not spares(cluster)
    given_back = cluster.did(todo.ReleaseContainer)[0]
    assert (given_back.container, given_back.outcome) == (spare.container, todo.Outcome.SURPLUS)
    cluster.capacities = {"h1": 2, "h2": 1}
    cluster.settle(60_000)
    cluster.run(20_000)
    assert len(spares(cluster)) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_host_that_is_lost_is_made_up_for(restarts: bool) -> None:
    cluster = whole(policy=policy(restarts=restarts))
    [spare] = spares(cluster)
    cluster.lose_host(cluster.active_process(0).host, silent=False)
    cluster.settle(60_000)
    assert spare.container in cluster.record(0).placed.values()


def mixed(**more: Any) -> FakeCluster:
    return whole(**{"tasks": 4, "containers": 3, "is_mixed": True, **more})


def test_a_container_of_a_mixed_job_is_replaced_by_a_spare_one_at_once() -> None:
    cluster = mixed()
    [spare] = spares(cluster)
    assert not cluster.view.assigned.get(spare.container)
    lost = cluster.active_process(0)
    cluster.kill(lost.skein_id)
    cluster.run(400)
    [taken] = cluster.did(todo.TakeSpare)
    assert taken.container == spare.container
    cluster.settle(30_000)
    cluster.run(3_000)
    held = {each for known in cluster.view.records.values() for each in known.record.placed.values()}
    assert spare.container in held
    assert len(held) == 3
    assert len(spares(cluster)) == 1


def test_a_new_leader_gives_no_copies_to_a_spare_container_of_a_mixed_job() -> None:
    cluster = mixed()
    [spare] = spares(cluster)
    cluster.elect(2)
    cluster.run(15_000)
    assert [each.container for each in spares(cluster)] == [spare.container]
    assert not cluster.did(todo.WriteRecords)


@pytest.mark.parametrize(("state", "taken"), [(RequestState.WAITING, 1), (RequestState.GRANTED, 0)])
def test_a_container_that_starts_already_is_waited_for(state: RequestState, taken: int) -> None:
    cluster = whole(hosts=("h1", "h2"))
    [spare] = spares(cluster)
    cluster.grants_nothing = True
    cluster.kill(next(each.skein_id for each in cluster.processes.values() if each.host != spare.host))
    until(cluster, lambda: bool(cluster.view.requests))
    view = cluster.view
    [request] = view.requests.values()
    elsewhere = replace(view.containers[spare.container], host="h3")
    view = replace(
        view,
        requests={request.number: replace(request, state=state)},
        containers={**view.containers, spare.container: elsewhere},
    )
    turn = Turn(view)
    assert len(list(take(turn, needs(turn)))) == taken


def test_the_status_has_them_apart_from_what_serves() -> None:
    cluster = whole()
    status = snapshot(cluster.view, "cluster", {})
    (job,) = status["jobs"]
    assert job["spares"] == {"wanted": 1, "held": 1, "ready": 1}
    assert spares_in_words(job["spares"]) == "1 of 1, 1 ready"
    assert spares_in_words({"wanted": 0, "held": 0, "ready": 0}) == ""
    [spare] = (each for each in status["containers"] if each["spare"])
    assert (spare["slot"], spare["job"], spare["replicas"]) == ("job:spare-0", "job", 0)


def test_an_undeployed_job_leaves_none() -> None:
    cluster = whole(policy=policy(2))
    cluster.undeploy()
    cluster.run(20_000)
    assert not cluster.processes
    assert cluster.status == "undeployed"
