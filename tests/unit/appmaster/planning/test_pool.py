"""The planner with a pool: the end of a process shows in ZooKeeper alone, and hosts are known to be full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.placement.turn import Turn
from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.view import Attempts, Operation, Presence
from locality.fit import Demand
from standby.shared.model import NodeOffer
from tests.fakes import yarn
from tests.fakes.yarn import FakeCluster
from tests.scenarios.flights import until


def deployed(hosts: int = 6, **more: Any) -> FakeCluster:
    """Return a whole cluster on a pool with one process per host: four tasks with a standby each."""
    names = tuple(f"h{each}" for each in range(1, hosts + 1))
    return yarn.deployed(**{"capacity": 1, **more}, cells=(1,), is_pool=True, hosts=names)


def asked(cluster: FakeCluster) -> list[str | None]:
    """Return the hosts of all requests."""
    return [each.host for each in cluster.actions if isinstance(each, todo.RequestContainer)]


MIXED = pytest.mark.parametrize("is_mixed", [False, True])


@MIXED
def test_only_hosts_with_a_process_that_waits_are_asked_for_one(*, is_mixed: bool) -> None:
    cluster = deployed(is_mixed=is_mixed)
    used = {each.host for each in cluster.processes.values()}
    assert set(cluster.view.hosts) == set(cluster.hosts)
    assert {each.name for each in cluster.view.offers} == set(cluster.hosts) - used
    lost = cluster.active_process(0).host
    cluster.lose_host(lost, silent=False)
    cluster.run(20_000)
    assert cluster.is_whole()
    assert set(asked(cluster)).isdisjoint(used - {lost})


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


def test_the_status_of_a_job_that_lacks_a_process_names_those_that_cannot_be_claimed() -> None:
    cluster = deployed(hosts=2, containers=1)
    noted = happened.CellFound(
        1, "1.1", cluster.hosts, cluster.now_ms, full=frozenset(cluster.hosts), note="h9"
    )
    cluster.tell(noted)
    assert "h9" not in cluster.view.jobs["job"].reasons
    cluster.grants_nothing = True
    cluster.crash(cluster.active_process(0).skein_id)
    cluster.run(300)
    cluster.tell(replace(noted, at_ms=cluster.now_ms))
    cluster.turn()
    assert "h9" in cluster.view.jobs["job"].reasons


GROUP = PlannerPolicy(demand=Demand(group="gpu", memory_mb=2_048))


def pool(**more: Any) -> FakeCluster:
    """Return a pool with one process per host, on which nothing runs yet."""
    cluster = FakeCluster(cells=(1,), is_pool=True, capacity=1, **more)
    cluster.run(10_000)
    return cluster


def used(cluster: FakeCluster) -> set[str]:
    return {each.host for each in cluster.processes.values() if each.replicas}


@MIXED
def test_only_processes_that_fit_are_claimed_and_the_smallest_of_them(*, is_mixed: bool) -> None:
    """Four hosts would do; two of them are larger, and one of the others has the less by name."""
    offers = {
        "h1": NodeOffer(),
        "h2": NodeOffer("gpu", 2_047),
        "h3": NodeOffer("gpu", 65_536),
        **{each: NodeOffer("gpu", 4_096) for each in ("h4", "h5", "h6", "h7")},
    }
    cluster = pool(
        hosts=tuple(sorted(offers)),
        offers=offers,
        is_mixed=is_mixed,
        containers=4 if is_mixed else 2,
        policy=GROUP,
    )
    assert cluster.is_whole()
    assert used(cluster) == {"h4", "h5", "h6", "h7"}
    lost = cluster.active_process(0).host
    cluster.lose_host(lost, silent=False)
    cluster.run(20_000)
    assert cluster.is_whole()
    assert "h3" in used(cluster)
    cluster.elect(2)
    cluster.run(20_000)
    assert cluster.is_whole()


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (NodeOffer(), "no process fits: no process of the pool is of group gpu"),
        (
            NodeOffer("gpu", 1_024),
            "no process fits: no process of group gpu has 2048 MiB, the largest has 1024",
        ),
    ],
)
@MIXED
def test_what_no_process_of_the_pool_has_is_the_reason_of_the_status_and_is_not_requested(
    offer: NodeOffer, said: str, *, is_mixed: bool
) -> None:
    cluster = pool(
        hosts=("h1", "h2", "h3", "h4"),
        offers={f"h{each}": offer for each in (1, 2, 3, 4)},
        is_mixed=is_mixed,
        policy=GROUP,
    )
    assert not cluster.processes
    assert f"copy 0: {said}" in cluster.view.jobs["job"].reasons[0]
    assert not cluster.did(todo.RequestContainer)
    cluster.offers = {f"h{each}": NodeOffer("gpu") for each in (1, 2, 3, 4)}
    cluster.run(60_000)
    assert cluster.is_whole(), "it is claimed as soon as there is one"


@pytest.mark.parametrize(
    ("processes", "containers", "standbys"),
    [
        pytest.param({"h0": 1, "h1": 2, "h2": 1}, 2, 1, id="one host has two"),
        pytest.param({"h0": 2, "h1": 2, "h2": 3, "h3": 1}, 4, 1, id="four processors"),
        pytest.param({"h0": 1, "h1": 1, "h2": 2, "h3": 2}, 2, 2, id="three copies"),
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


@pytest.mark.parametrize(
    ("processes", "drained", "said"),
    [
        ({"h1": 4}, (), "h1 holds "),
        ({"h1": 2, "h2": 2}, ("h2",), "h2 is drained"),
        ({"h1": 2}, (), "no process waits"),
    ],
)
@MIXED
def test_copies_for_which_no_host_is_left_use_no_process_up_and_wait_for_another_host(
    processes: dict[str, int], drained: tuple[str, ...], said: str, *, is_mixed: bool
) -> None:
    cluster = FakeCluster(
        cells=(1,),
        is_pool=True,
        is_mixed=is_mixed,
        hosts=tuple(processes),
        capacities=processes,
        containers=4 if is_mixed else 2,
    )
    cluster.drain(*drained)
    cluster.run(120_000)
    assert not cluster.did(todo.ReleaseContainer)
    assert {cluster.active_process(each).host for each in range(4)} == {"h1"}
    assert said in " ".join(cluster.view.jobs["job"].reasons)
    requests = len(cluster.did(todo.RequestContainer))
    cluster.run(60_000)
    assert len(cluster.did(todo.RequestContainer)) == requests
    cluster.add_hosts("h3")
    cluster.capacities = {**processes, "h3": 2}
    cluster.run(60_000)
    assert cluster.is_whole()


def test_a_processor_with_more_tasks_than_a_process_takes_waits_and_says_so() -> None:
    cluster = pool(offers={f"h{each}": NodeOffer(tasks=1) for each in (1, 2, 3)})
    assert not cluster.processes
    assert (
        "no process has 2 tasks, the largest has 1 (job.container.count"
        in cluster.view.jobs["job"].reasons[0]
    )


def test_containers_of_a_mixed_job_take_no_more_tasks_than_their_processes_and_the_others_the_rest() -> None:
    """Eight copies: by even shares the first would get three, and the others no more."""
    offers = {"h1": NodeOffer(tasks=1)}
    cluster = pool(offers=offers, is_mixed=True, containers=3)
    held = {each.host: len(each.replicas) for each in cluster.processes.values()}
    assert held["h1"] == 1
    # A copy and its standby need two hosts, so that four of each are on the two others.
    assert (held["h2"] + held["h3"], cluster.is_whole()) == (7, True)


def test_a_mixed_job_whose_processes_take_too_few_tasks_says_so() -> None:
    cluster = pool(offers={f"h{each}": NodeOffer(tasks=2) for each in (1, 2, 3)}, is_mixed=True, containers=3)
    assert sum(len(each.replicas) for each in cluster.processes.values()) == 6
    assert any(
        "its containers take no more tasks (--tasks" in each for each in cluster.view.jobs["job"].reasons
    )


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


def test_a_mixed_job_evens_its_load_out_only_once_every_copy_has_a_place() -> None:
    """What the last host has room for is the only place of one copy; another one would fit there, too."""
    offers = {"h1": NodeOffer(tasks=1), "h2": NodeOffer(tasks=2), "h3": NodeOffer(tasks=1)}
    cluster = pool(hosts=tuple(offers), offers=offers, is_mixed=True, containers=3, tasks=2)
    assert cluster.is_whole()
    for each in ("h3", "h2", "h1"):
        cluster.lose_host(each, silent=False)
        cluster.run(300)
    cluster.run(5_000)
    for each in ("h3", "h2", "h1"):
        cluster.return_host(each)
        cluster.run(30_000)
    assert cluster.is_whole()


def test_the_status_of_a_mixed_job_names_the_copies_beside_which_alone_there_is_room() -> None:
    """Both actives are where there is room for more."""
    offers = {"h1": NodeOffer(), "h2": NodeOffer(tasks=1)}
    cluster = pool(hosts=tuple(offers), offers=offers, is_mixed=True, containers=2, tasks=2)
    said = "no container on another host has room (--tasks): h1 holds job/main:"
    assert said in cluster.view.jobs["job"].reasons[0]


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


def test_a_mixed_job_gives_no_container_up_without_which_copies_find_no_second_host() -> None:
    """Two processes would take ten copies, but the one with room has a copy of each task already."""
    offers = {"h1": NodeOffer(), "h2": NodeOffer(tasks=3), "h3": NodeOffer(tasks=3)}
    cluster = pool(hosts=tuple(offers), offers=offers, is_mixed=True, containers=3, tasks=5)
    assert (cluster.is_whole(), held(cluster)) == (True, [4, 3, 3])
    cluster.load(containers=2)
    cluster.run(30_000)
    assert (cluster.is_whole(), held(cluster)) == (True, [4, 3, 3])


def test_a_node_says_in_which_rack_and_zone_its_host_is_unless_a_job_does() -> None:
    offers = {
        "h1": NodeOffer(attributes={"rack": "/a", "zone": "x"}),
        "h2": NodeOffer(attributes={"rack": "/b", "zone": "y"}),
        "h3": NodeOffer(attributes={"rack": "/a"}),
    }
    cluster = pool(offers=offers, racks={"h2": "/c"})
    found = {name: (each.rack, dict(each.attributes)) for name, each in cluster.view.hosts.items()}
    assert found == {"h1": ("/a", {"zone": "x"}), "h2": ("/c", {"zone": "y"}), "h3": ("/a", {})}
    assert Turn(cluster.view).host("h1").rack == "/a"


def _expected(cluster: FakeCluster, container: str) -> None:
    cluster.elect(2)


def _alive(cluster: FakeCluster, container: str) -> None:
    pass


def _broken(cluster: FakeCluster, container: str) -> None:
    known = cluster.view.containers[container]
    cluster.tell(happened.ContainerStreamBroken(container, known.incarnation, cluster.now_ms))


def _silent(cluster: FakeCluster, container: str) -> None:
    process = cluster.by_container(container)
    assert process is not None
    process.is_frozen = True
    cluster.run(2_500)
    assert cluster.view.containers[container].presence is Presence.SUSPECT


@pytest.mark.parametrize(
    ("become", "is_gone"),
    [(_alive, False), (_broken, False), (_expected, True), (_silent, True)],
)
def test_the_end_of_a_session_counts_where_there_is_no_stream(
    become: Callable[[FakeCluster, str], None], *, is_gone: bool
) -> None:
    cluster = deployed()
    process = cluster.active_process(0)
    become(cluster, process.container)
    cluster.tell(happened.ContainerUnregistered(process.container, cluster.now_ms, process.skein_id))
    assert (process.container not in cluster.view.containers) is is_gone
    assert [each.kind.value for each in cluster.entries].count("container_gone") == is_gone


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


def test_a_process_that_ends_before_it_connects_spends_no_retry_budget_and_another_is_claimed() -> None:
    cluster = deployed()
    cluster.grants_nothing = True
    cluster.lose_host(cluster.active_process(0).host, silent=False)
    until(cluster, lambda: bool(cluster.view.requests))
    (request,) = cluster.view.requests.values()
    before = cluster.view.attempts.get(request.slot, Attempts())
    cluster.tell(happened.ContainerGranted(request.skein_id, cluster.now_ms))
    cluster.waiting.clear()
    cluster.tell(happened.ContainerUnregistered("pool_h-x", cluster.now_ms, request.skein_id))
    assert not cluster.view.requests
    assert cluster.entries[-1].kind == "launch_failed"
    assert str(cluster.entries[-1].reason) == "ended at launch: the session of pool_h-x ended"
    failed = cluster.view.attempts[request.slot]
    assert (failed.in_row, failed.failures_ms) == (before.in_row + 1, before.failures_ms)
    cluster.grants_nothing = False
    cluster.run(20_000)
    assert cluster.is_whole()


@MIXED
@pytest.mark.parametrize("standbys", [0, 1])
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


@pytest.mark.parametrize(
    ("cold", "prepares", "actives"),
    [
        pytest.param("", True, {"h2": 4, "h3": 3}, id="all are warm"),
        pytest.param("h2", True, {"h2": 2, "h3": 5}, id="one is cold"),
        pytest.param("h2 h3", True, {"h2": 4, "h3": 3}, id="all are cold"),
        pytest.param("h2", False, {"h2": 4, "h3": 3}, id="none is ever warm"),
    ],
)
@pytest.mark.parametrize("is_asked", [False, True], ids=["stopped", "by command"])
def test_a_process_hands_over_to_warm_copies_and_of_these_where_the_fewest_are_active(
    cold: str, *, prepares: bool, actives: dict[str, int], is_asked: bool
) -> None:
    """Each task has a copy in sync in every process. Three actives are handed over at once."""
    policy = PlannerPolicy(has_warm_standbys=prepares)
    cluster = pool(tasks=7, containers=3, standbys=2, is_mixed=True, policy=policy)
    (emptied,) = (each for each in cluster.processes.values() if each.host == "h1")

    def active() -> Counter[str]:
        return Counter(cluster.active_process(each).host for each in range(cluster.tasks))

    assert active() == {"h1": 3, "h2": 2, "h3": 2}
    cluster.cold_hosts = set(cold.split())
    cluster.run(100)
    if is_asked:
        cluster.command(Operation.HAND_OVER, container=emptied.container)
    emptied.is_leaving = not is_asked
    cluster.run(1_000)
    assert active() == actives


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


def test_a_process_that_is_stopped_with_no_standby_in_sync_keeps_its_actives() -> None:
    cluster = deployed()
    stopped = cluster.active_process(0)
    for each in list(cluster.processes.values()):
        if each is not stopped:
            each.is_frozen = True
    stopped.is_leaving = True
    cluster.run(1_000)
    assert cluster.active_process(0) is stopped
    assert cluster.view.containers[stopped.container].presence is Presence.LIVE


def test_a_process_that_is_stopped_while_its_job_ends_is_told_to_exit_as_all_others_after_the_fence() -> None:
    """Their exit says whether the job's state is to be removed from the disks."""
    cluster = deployed()
    stopped = cluster.active_process(0)
    stopped.is_leaving = True
    cluster.fences_nothing = True
    cluster.undeploy()
    cluster.run(5_000)
    assert stopped.container in {each.container for each in cluster.processes.values()}
    cluster.tell(happened.TasksFenced("job"))
    cluster.run(1_000)
    exits = {each.reason for each in cluster.actions if isinstance(each, todo.SendExit)}
    assert exits == {"the job is being undeployed"}


def test_a_process_that_is_stopped_just_when_it_takes_over_hands_over_first() -> None:
    cluster = deployed()
    lost = cluster.active_process(0)
    cluster.crash(lost.skein_id)
    while not cluster.view.lost_actives:
        cluster.now_ms += 1
        known = cluster.view.containers[lost.container]
        cluster.tell(happened.ContainerStreamBroken(lost.container, known.incarnation, cluster.now_ms))
        cluster.turn()
    decided = [each for each in plan(cluster.view) if isinstance(each, todo.WriteRecords)]
    taken = {each.record.placed[each.record.active or 0] for write in decided for each in write.changes}
    assert taken
    for each in cluster.processes.values():
        if each.container in taken:
            each.is_leaving = True
            leaving = replace(cluster.view.containers[each.container], is_leaving=True)
            containers = {**cluster.view.containers, each.container: leaving}
            cluster.view = replace(cluster.view, containers=containers)
    cluster.turn()
    assert not [each for each in cluster.actions if isinstance(each, todo.SendExit)]
    cluster.run(60_000)
    assert cluster.is_whole()
    lost_then = [each.container for each in cluster.entries if each.kind.value == "container_lost"]
    assert lost_then == [lost.container]
