"""The planner with several cells: copies in different ones, a lost one emptied, one that returns filled again."""

from __future__ import annotations

from collections import Counter

import pytest

from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.job import JobState, PlannerPolicy
from appmaster.planning.state.view import Presence
from standby.shared.model import SlotId, TaskId, TaskRecord
from tests.fakes.yarn import FakeCluster, Process, deployed


def in_two_cells(**settings: object) -> FakeCluster:
    """Return a whole cluster with two cells."""
    return deployed(cells=(1, 2), **settings)


@pytest.fixture
def cluster() -> FakeCluster:
    """Return four tasks on two processors with a standby each, on three hosts and in two cells."""
    return in_two_cells()


def records(cluster: FakeCluster) -> list[TaskRecord]:
    return [each.record for each in cluster.versions.values()]


def cells_of(cluster: FakeCluster, record: TaskRecord) -> dict[int, int]:
    """Return copy → the cell that its process is of."""
    found = {copy: cluster.by_container(name) for copy, name in record.placed.items()}
    return {copy: each.cell for copy, each in found.items() if each is not None}


def actives_in(cluster: FakeCluster, cell: int) -> list[Process]:
    found = {
        each.container: each
        for partition in range(cluster.tasks)
        if (each := cluster.active_process(partition)).cell == cell
    }
    return list(found.values())


def exposed_to(cluster: FakeCluster) -> dict[TaskId, set[str]]:
    """Return the tasks of which every copy would be lost with one host, and which host that is."""
    found = {}
    for record in records(cluster):
        copies = [cluster.by_container(each) for each in record.placed.values()]
        hosts = set.intersection(*({each.host, cluster.masters[each.cell]} for each in copies if each))
        if hosts:
            found[record.task] = hosts
    return found


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("standbys", [1, 2])
def test_no_task_has_all_its_copies_in_one_cell(standbys: int, is_mixed: bool) -> None:
    cluster = in_two_cells(
        standbys=standbys, is_mixed=is_mixed, containers=4 if is_mixed else 2, hosts=("h1", "h2", "h3", "h4")
    )
    assert all(len(set(cells_of(cluster, each).values())) == 2 for each in records(cluster))
    assert actives_in(cluster, 1), "actives are spread over the cells, too"
    assert actives_in(cluster, 2)


@pytest.mark.parametrize(("standbys", "containers"), [(1, 1), (1, 3), (2, 2)])
def test_no_host_takes_every_copy_not_even_with_a_master_on_it(standbys: int, containers: int) -> None:
    masters = {1: "h1", 2: "h2"}
    cluster = in_two_cells(standbys=standbys, containers=containers, masters=masters)

    assert not exposed_to(cluster)
    cluster.lose_cell(2)
    cluster.lose_host("h2", silent=False)
    cluster.run(60_000)
    assert "failover_without_standby" not in cluster.kinds()
    assert all(cluster.active_process(each).host != "h2" for each in range(cluster.tasks))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("standbys", "containers"),
    [
        (1, 2),
        pytest.param(1, 3, marks=pytest.mark.acceptance),
        pytest.param(2, 2, marks=pytest.mark.acceptance),
    ],
)
def test_copies_are_parted_again_when_a_master_comes_to_the_host_of_an_active(
    standbys: int, containers: int, restarts: bool
) -> None:
    cluster = in_two_cells(
        standbys=standbys,
        containers=containers,
        hosts=("h1", "h2", "h3", "h4"),
        masters={1: "h1", 2: "h2"},
        policy=PlannerPolicy(restarts=restarts),
    )
    cluster.lose_cell(2)
    cluster.settle(30_000)
    busiest = Counter(each.host for each in actives_in(cluster, 1) if each.host != "h1")
    ((host, _),) = busiest.most_common(1)
    cluster.masters = {1: "h1", 2: host}
    cluster.return_cell(2)
    cluster.settle(60_000)
    assert not exposed_to(cluster)
    assert all(len(set(cells_of(cluster, each).values())) == 2 for each in records(cluster))
    assert "failover_without_standby" not in cluster.kinds()
    assert not cluster.view.unsettled
    assert plan(cluster.view) == ()
    cluster.lose_cell(2)
    cluster.lose_host(host, silent=False)
    cluster.run(60_000)
    assert "failover_without_standby" not in cluster.kinds()


def test_copies_on_each_other_s_master_s_hosts_change_active_once() -> None:
    cluster = in_two_cells(tasks=1, containers=1, hosts=("h1", "h2", "h3", "h4"), masters={1: "h1", 2: "h2"})
    (record,) = records(cluster)
    hosts = {each.cell: each.host for each in map(cluster.by_container, record.placed.values()) if each}
    cluster.masters = {1: hosts[2], 2: hosts[1]}
    cluster.is_warm = False
    cluster.elect(2)
    cluster.run(30_000)
    assert exposed_to(cluster)
    assert "handover_started" not in cluster.kinds(), "to a copy that is not warm it would take long"
    cluster.is_warm = True
    cluster.run(60_000)
    assert not exposed_to(cluster)
    assert not cluster.view.unsettled
    assert cluster.kinds().count("handover_finished") == 1
    assert "failover_without_standby" not in cluster.kinds()


def test_copies_stay_where_a_master_s_host_is_the_only_other_one() -> None:
    cluster = in_two_cells(hosts=("h1", "h2"), masters={1: "h1", 2: "h2"})
    assert not exposed_to(cluster)
    placed = {each.task: each.placed for each in records(cluster)}
    cluster.masters = {1: "h2", 2: "h1"}
    cluster.elect(2)
    cluster.run(30_000)
    assert set(exposed_to(cluster)) == set(cluster.versions)
    assert {each.task: each.placed for each in records(cluster)} == placed
    assert not cluster.view.unsettled


def test_mixed_containers_are_on_all_hosts_whatever_masters_are_there() -> None:
    masters = {1: "h1", 2: "h2"}
    cluster = in_two_cells(is_mixed=True, tasks=6, containers=3, masters=masters)
    assert {each.host for each in cluster.processes.values()} == {"h1", "h2", "h3"}
    late = FakeCluster(is_mixed=True, tasks=6, containers=3, masters=masters, cells=(1, 2))
    late.tell(happened.CellLost(1, "1.1", "not yet", late.now_ms))
    late.run(20_000)
    assert {each.host for each in late.processes.values()} == {"h1", "h2", "h3"}


def test_nothing_is_said_against_a_host_with_the_masters_of_both_cells() -> None:
    cluster = in_two_cells(masters={1: "h1", 2: "h1"})
    assert not any(each.master_of for each in cluster.view.offers)
    cluster.masters = {1: "h1", 2: "h2"}
    cluster.lose_cell(2)
    cluster.return_cell(2)
    assert {(each.name, each.cell): each.master_of for each in cluster.view.offers if each.master_of} == {
        ("h2", 1): 2,
        ("h1", 2): 1,
    }


@pytest.mark.parametrize("is_mixed", [False, True])
def test_cell_that_falls_with_its_containers_fails_over_and_is_made_up_for(is_mixed: bool) -> None:
    cluster = in_two_cells(is_mixed=is_mixed, containers=4 if is_mixed else 2)
    assert actives_in(cluster, 1)
    stays = {each.container for each in actives_in(cluster, 2)}
    before = {each.task: each for each in records(cluster)}
    untouched = {
        task for task, each in before.items() if each.active is not None and each.placed[each.active] in stays
    }
    assert untouched
    cluster.lose_cell(1)
    cluster.settle(15_000)
    assert {each.cell for each in cluster.processes.values()} == {2}
    if not is_mixed:  # Those share the actives out anew.
        assert {each.task for each in records(cluster) if each.epoch == before[each.task].epoch} == untouched
    asked = cluster.did(todo.RequestContainer)
    assert asked
    assert all(each.cell == 2 for each in asked)


def test_lost_cell_whose_containers_run_on_is_handed_over_and_left(cluster: FakeCluster) -> None:
    cluster.lose_cell(1, runs_on=True)
    cluster.settle(20_000)
    assert not actives_in(cluster, 1)
    assert "decided_handover" in cluster.kinds()
    assert "container_lost" not in cluster.kinds(), "what still serves hands over as planned"
    assert all(set(cells_of(cluster, each).values()) == {2} for each in records(cluster))
    placed = [each.container for each in cluster.did(todo.WriteRecords) if each.container]
    orphaned = {each.container for each in cluster.processes.values() if each.cell == 1}
    assert not orphaned.intersection(placed)


@pytest.mark.parametrize("hosts", [("h1", "h2"), ("h1", "h2", "h3", "h4")])
def test_lost_cell_of_a_mixed_job_is_made_up_for_once_and_left(hosts: tuple[str, ...]) -> None:
    """Its containers that run on count no more; and where no other host will do, a copy stays on its own."""
    cluster = in_two_cells(is_mixed=True, containers=4, hosts=hosts)
    orphaned = [each for each in cluster.processes.values() if each.cell == 1]
    cluster.lose_cell(1, runs_on=True)
    cluster.settle(30_000)
    assert all(set(cells_of(cluster, each).values()) == {2} for each in records(cluster))
    assert cluster.kinds().count("container_requested") == len(orphaned)
    assert plan(cluster.view) == ()


def test_nothing_is_promoted_in_the_lost_cell_while_another_copy_is_in_sync() -> None:
    cluster = in_two_cells(standbys=2, hosts=("h1", "h2", "h3", "h4"))
    record = records(cluster)[0]
    cells = cells_of(cluster, record)
    cell = cells[record.active or 0]
    other = next(number for number in (1, 2) if number != cell)
    assert other in cells.values()
    cluster.lose_cell(cell, runs_on=True)
    cluster.kill(cluster.active_process(record.task.partition).skein_id)
    cluster.run(1_000)
    now = next(each for each in records(cluster) if each.task == record.task)
    assert now.epoch == record.epoch + 1
    assert cells_of(cluster, now)[now.active or 0] == other


def test_cell_that_returns_gets_its_share_of_the_copies_back(cluster: FakeCluster) -> None:
    cluster.lose_cell(1)
    cluster.run(15_000)
    actives = {each.task: (each.active, each.epoch) for each in records(cluster)}
    cluster.return_cell(1)
    cluster.run(30_000)
    assert cluster.is_whole()
    assert all(len(set(cells_of(cluster, each).values())) == 2 for each in records(cluster))
    assert {each.task: (each.active, each.epoch) for each in records(cluster)} == actives, "standbys move"
    assert not cluster.view.unsettled
    assert plan(cluster.view) == ()


def test_containers_of_a_cell_that_a_new_leader_finds_lost_serve_until_handed_over(
    cluster: FakeCluster,
) -> None:
    cluster.attempts.pop(1)
    cluster.elect(2)
    cluster.live()
    presences = {each.presence.value for each in cluster.view.containers.values() if each.cell == 1}
    assert presences == {"live"}
    cluster.settle(20_000)
    assert all(set(cells_of(cluster, each).values()) == {2} for each in records(cluster))


def registered(cluster: FakeCluster, container: str, attempt: str) -> Presence:
    """Return what becomes of a container of cell 1 that this leader does not expect and that registers."""
    cluster.tell(
        happened.ContainerRegistered(
            container, f"skein_{container}", 99, "h1", 9, 0, (), (), cluster.now_ms, {}, 1, attempt
        )
    )
    return cluster.view.containers[container].presence


def test_unexpected_container_serves_where_its_cell_cannot_be_asked(cluster: FakeCluster) -> None:
    present = cluster.attempts[1]
    assert registered(cluster, "unexpected", present) is Presence.ORPHAN
    cluster.attempts.pop(1)
    cluster.elect(2, silent=(1,))
    assert registered(cluster, "of_present", present) is Presence.LIVE
    assert registered(cluster, "of_former", "former") is Presence.ORPHAN
    assert registered(cluster, "of_none", "") is Presence.ORPHAN


def test_lost_container_of_a_silent_cell_is_not_taken_in_again(cluster: FakeCluster) -> None:
    lost = actives_in(cluster, 1)[0]
    lost.is_frozen = True
    cluster.run(8_000)
    assert lost.container not in cluster.view.containers, "it was given back"
    cluster.tell(happened.CellLost(1, cluster.latest[1], "its AM does not answer", cluster.now_ms))
    assert registered(cluster, lost.container, lost.attempt) is Presence.ORPHAN


def test_container_that_died_with_its_cell_is_not_waited_for_by_a_new_leader(cluster: FakeCluster) -> None:
    lost = actives_in(cluster, 1)
    cluster.end_attempt(cluster.attempts.pop(1))
    cluster.elect(2)
    for each in lost:
        cluster.expect(each)  # its session has not ended yet
    cluster.run(200)
    assert not actives_in(cluster, 1)
    reasons = {str(each.reason) for each in cluster.entries if each.kind == "container_lost"}
    assert reasons == {"port-refused"}
    cluster.run(20_000)
    assert cluster.is_whole()


def test_registration_that_vanishes_counts_only_while_its_container_has_no_stream(
    cluster: FakeCluster,
) -> None:
    silent, heard = (actives_in(cluster, each)[0] for each in (1, 2))
    cluster.elect(2)
    silent.is_frozen = True
    cluster.run(200)
    assert cluster.view.containers[silent.container].presence is Presence.EXPECTED
    for each in (silent, heard):
        cluster.tell(happened.ContainerUnregistered(each.container, cluster.now_ms))
    cluster.run(100)
    lost = cluster.news("container_lost")
    assert [(each.container, str(each.reason).partition(":")[0]) for each in lost] == [
        (silent.container, "unregistered")
    ]
    assert silent.container not in {each.container for each in actives_in(cluster, 1)}
    silent.is_frozen = False
    cluster.settle(20_000)


def test_new_leader_moves_no_copy_because_it_has_not_heard_the_other_yet(cluster: FakeCluster) -> None:
    late = actives_in(cluster, 1)[0]
    cluster.elect(2)
    late.is_frozen = True
    cluster.actions.clear()
    cluster.run(500)
    assert not cluster.did(todo.RequestContainer)


def test_epochs_rise_above_what_containers_have_seen_when_zookeeper_is_of_an_earlier_day(
    cluster: FakeCluster,
) -> None:
    earlier = dict(cluster.versions)
    for each in actives_in(cluster, 1):
        cluster.kill(each.skein_id)
    cluster.run(20_000)
    seen = {task: each.record.epoch for task, each in cluster.versions.items()}
    assert max(seen.values()) > 1
    cluster.versions = earlier
    cluster.elect(9)
    cluster.actions.clear()
    cluster.settle(20_000)
    for task, recorded in cluster.versions.items():
        assert recorded.record.epoch > seen[task] or seen[task] == earlier[task].record.epoch
    raised = [each for each in cluster.did(todo.WriteRecords) if each.kind is DecisionKind.RAISE]
    assert raised
    assert not cluster.view.ahead


def test_containers_of_a_former_attempt_are_orphaned_although_their_cell_is_back(
    cluster: FakeCluster,
) -> None:
    cluster.lose_cell(1, runs_on=True)
    cluster.return_cell(1)
    cluster.run(30_000)
    assert cluster.is_whole()
    placed = {name for each in records(cluster) for name in each.placed.values()}
    attempts = Counter(each.attempt for each in cluster.processes.values() if each.container in placed)
    assert "1.1" not in attempts
    assert len(attempts) == 2, "both cells are used again"


def test_requests_to_a_cell_go_with_it_and_are_made_anew_elsewhere() -> None:
    cluster = FakeCluster(cells=(1, 2))
    cluster.grants_nothing = True
    cluster.run(300)
    assert {each.cell for each in cluster.view.requests.values()} == {1, 2}
    cluster.lose_cell(1)
    cluster.run(100)
    assert {each.cell for each in cluster.view.requests.values()} == {2}
    assert not any(each.failures_ms for each in cluster.view.attempts.values()), "no host is blamed"
    cluster.grants_nothing = False
    cluster.settle(10_000)


def test_nothing_is_asked_for_while_no_cell_answers(cluster: FakeCluster) -> None:
    cluster.lose_cell(1, runs_on=True)
    cluster.lose_cell(2, runs_on=True)
    cluster.run(10_000)
    assert not [each for each in cluster.actions if isinstance(each, todo.RequestContainer)]
    assert cluster.is_whole(), "what runs goes on"
    cluster.return_cell(2)
    cluster.run(20_000)
    assert cluster.is_whole()
    assert {each.attempt for each in cluster.processes.values() if each.replicas} == {cluster.attempts[2]}


def test_hosts_are_known_while_no_cell_can_be_asked_for_them(cluster: FakeCluster) -> None:
    cluster.tell(happened.HostsKnown(()))
    assert {each.name for each in cluster.view.offers} == set(cluster.hosts), "their cells have them"
    for cell in (1, 2):
        cluster.lose_cell(cell, runs_on=True)
    assert not cluster.view.offers
    assert set(cluster.view.hosts) == set(cluster.hosts)


def statuses(cluster: FakeCluster, ms: int) -> set[tuple[JobState, tuple[str, ...]]]:
    """Return every status of the job that the leader had in the time to come, with its reasons."""
    seen = set()
    for _ in range(ms // 20):
        cluster.turn()
        job = cluster.view.jobs["job"]
        seen.add((job.state, job.reasons))
        cluster.run(20)
    return seen


def test_job_stays_deployed_while_a_cell_that_came_late_is_given_its_share() -> None:
    late = FakeCluster(masters={1: "h1", 2: "h2"}, cells=(1, 2))
    late.lose_cell(2)
    late.run(8_000)
    assert late.view.jobs["job"].state is JobState.DEPLOYED
    late.return_cell(2)
    assert statuses(late, 20_000) == {(JobState.DEPLOYED, ())}
    assert "handover_finished" in late.kinds(), "an active was moved"


def test_job_stays_deployed_until_a_new_leader_knows_that_a_container_is_lost(cluster: FakeCluster) -> None:
    cluster.elect(2)
    assert statuses(cluster, 4_000) == {(JobState.DEPLOYED, ())}
    actives_in(cluster, 1)[0].is_frozen = True
    cluster.elect(3)
    assert JobState.INCOMPLETE in {state for state, _ in statuses(cluster, 10_000)}


def test_standby_that_changes_its_cell_on_its_host_does_not_go_back_and_forth() -> None:
    # No other host may have it: it is closed in the one cell's container before it is opened in the other's.
    cluster = in_two_cells(hosts=("h1", "h2"))
    cluster.lose_cell(1)
    cluster.run(15_000)
    cluster.return_cell(1)
    cluster.actions.clear()
    cluster.settle(20_000)
    assert all(len(set(cells_of(cluster, each).values())) == 2 for each in records(cluster))
    moved = [each for each in cluster.did(todo.WriteRecords) if each.kind is DecisionKind.DROP]
    assert len(moved) <= 2, "once for each processor"


def test_copy_that_left_its_cell_for_a_container_meant_for_another_does_not_go_back() -> None:
    cluster = in_two_cells()
    cluster.lose_cell(1)
    cluster.lose_host("h3", silent=False)
    cluster.run(20_000)
    assert cluster.is_whole(), "two hosts, one cell: each active beside the other's standby"
    cluster.return_host("h3")
    cluster.return_cell(1)
    cluster.run(100)
    asked = [each for each in cluster.view.requests.values() if each.cell == 1]
    assert len(asked) == 2
    for each in asked:
        # YARN gives it on the host of its own active, as it may for any host: only the other standby can use it.
        assert isinstance(each.slot, SlotId)
        task = cluster.view.job_tasks(each.slot.processor)[0]
        cluster.waiting[each.skein_id] = (cluster.now_ms, cluster.active_process(task.partition).host, 1)
    cluster.actions.clear()
    cluster.run(30_000)
    decided = cluster.did(todo.WriteRecords)
    assert sum(each.kind is DecisionKind.DROP for each in decided) <= 2, "once for each processor"
    assert cluster.is_whole()
    assert all(len(set(cells_of(cluster, each).values())) == 2 for each in records(cluster))
