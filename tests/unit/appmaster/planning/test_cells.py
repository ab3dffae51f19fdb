"""The planner with several cells: copies in different ones, a lost one emptied, one that returns filled again."""

from __future__ import annotations

from collections import Counter

import pytest

from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.job import JobState
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


@pytest.mark.parametrize(("standbys", "is_mixed"), [(1, False), (2, True)])
def test_no_task_has_all_its_copies_in_one_cell(standbys: int, is_mixed: bool) -> None:
    cluster = in_two_cells(
        standbys=standbys, is_mixed=is_mixed, containers=4 if is_mixed else 2, hosts=("h1", "h2", "h3", "h4")
    )
    assert all(len(set(cells_of(cluster, each).values())) == 2 for each in records(cluster))
    assert actives_in(cluster, 1), "actives are spread over the cells, too"
    assert actives_in(cluster, 2)


def test_no_host_takes_every_copy_not_even_with_a_master_on_it() -> None:
    cluster = in_two_cells(containers=3, masters={1: "h1", 2: "h2"})
    assert not exposed_to(cluster)
    cluster.lose_cell(2)
    cluster.lose_host("h2", silent=False)
    cluster.run(60_000)
    assert "failover_without_standby" not in cluster.kinds()
    assert all(cluster.active_process(each).host != "h2" for each in range(cluster.tasks))


def test_copies_are_parted_again_when_a_master_comes_to_the_host_of_an_active() -> None:
    cluster = in_two_cells(hosts=("h1", "h2", "h3", "h4"), masters={1: "h1", 2: "h2"})
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


def test_cell_that_falls_with_its_containers_fails_over_and_is_made_up_for(cluster: FakeCluster) -> None:
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


def test_lost_cell_of_a_mixed_job_is_made_up_for_once_and_left() -> None:
    """Its containers that run on count no more; and where no other host will do, a copy stays on its own."""
    cluster = in_two_cells(is_mixed=True, containers=4, hosts=("h1", "h2"))
    orphaned = [each for each in cluster.processes.values() if each.cell == 1]
    cluster.lose_cell(1, runs_on=True)
    cluster.settle(30_000)
    assert all(set(cells_of(cluster, each).values()) == {2} for each in records(cluster))
    assert cluster.kinds().count("container_requested") == len(orphaned)
    assert plan(cluster.view) == ()


@pytest.mark.parametrize("cell", [1, 2])
def test_a_mixed_jobs_lost_container_is_made_up_for_in_another_cell_than_the_one_left(cell: int) -> None:
    """Copies in mixed containers do not move to another cell later."""
    cluster = in_two_cells(is_mixed=True, containers=2, hosts=("h1", "h2", "h3"))
    (lost,) = (each for each in cluster.processes.values() if each.cell == cell)
    cluster.kill(lost.skein_id)
    cluster.settle(30_000)
    assert {each.cell for each in cluster.processes.values()} == {1, 2}
    assert all(set(cells_of(cluster, each).values()) == {1, 2} for each in records(cluster))


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


def test_job_stays_deployed_while_a_cell_that_came_late_is_given_its_share() -> None:
    late = FakeCluster(masters={1: "h1", 2: "h2"}, cells=(1, 2))
    late.lose_cell(2)
    late.run(8_000)
    assert late.view.jobs["job"].state is JobState.DEPLOYED
    late.actions.clear()
    late.return_cell(2)
    late.settle(20_000)
    assert not late.did(todo.WriteStatus)
    assert "handover_finished" in late.kinds(), "an active was moved"


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
