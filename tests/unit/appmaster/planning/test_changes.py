"""The planner where a running job changes: its model, its hosts, its code, its policy, its failures."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.job import JobState, OnExhausted, PlannerPolicy
from appmaster.planning.state.view import Operation
from standby.shared.exits import ProcessEnd, Ran
from standby.shared.model import Fault, InputFailures, Phase, Role, TaskId
from tests.fakes.yarn import FakeCluster, Process, deployed, in_time


def actives(cluster: FakeCluster) -> dict[int, str]:
    """Return task → the container in which it is active."""
    return {task.partition: cluster.active_process(task.partition).container for task in cluster.versions}


def decided(cluster: FakeCluster) -> list[DecisionKind]:
    """Return the kinds of all decisions, in order."""
    return [each.kind for each in cluster.did(todo.WriteRecords)]


def settles(cluster: FakeCluster, milliseconds: int = 30_000) -> None:
    """Let time pass until the job is whole and the planner quiet."""
    cluster.settle(milliseconds)
    assert cluster.view.jobs["job"].state is JobState.DEPLOYED
    assert plan(cluster.view) == ()


# ---- the job model changes (SEP-23, part 2) ----


def test_more_and_fewer_standbys_leave_actives_where_they_are() -> None:
    cluster = deployed(hosts=("h1", "h2", "h3", "h4"))
    # The active is copy 1 somewhere: it is not the one to go.
    cluster.kill(cluster.active_process(0).skein_id)
    settles(cluster)
    before = actives(cluster)
    cluster.load(standbys=2)
    settles(cluster)
    assert actives(cluster) == before
    assert len(cluster.processes) == 6
    cluster.load(standbys=0)
    settles(cluster)
    assert actives(cluster) == before
    assert len(cluster.processes) == 2
    assert "container_lost" not in [
        each.kind for each in cluster.entries if each.data.get("role") == "standby"
    ]


def test_more_containers_take_tasks_over_without_a_restart_of_any() -> None:
    cluster = deployed(tasks=6, containers=2, hosts=("h1", "h2", "h3", "h4"))
    before = {each.container for each in cluster.processes.values()}
    owners = actives(cluster)
    cluster.load(containers=3)
    settles(cluster, 60_000)
    assert before <= {each.container for each in cluster.processes.values()}
    assert len(cluster.processes) == 6
    # Two of six tasks move, and they move by a planned hand-over from a copy that was filled before.
    moved = [task for task, container in actives(cluster).items() if owners[task] != container]
    assert len(moved) == 2
    assert DecisionKind.FAILOVER not in decided(cluster)
    assert Counter(actives(cluster).values()) == Counter(dict.fromkeys(set(actives(cluster).values()), 2))
    assert "container_lost" not in cluster.kinds()


@pytest.mark.parametrize(
    ("tasks", "containers", "standbys", "killed", "handed_over"),
    [(2, 2, 2, [], [1]), (2, 2, 2, [0], [1]), (4, 3, 2, [1], []), (4, 4, 1, [1], []), (4, 4, 1, [1], [2])],
)
def test_tasks_that_come_together_with_different_actives_get_one(
    tasks: int, containers: int, standbys: int, killed: list[int], handed_over: list[int]
) -> None:
    cluster = deployed(tasks=tasks, containers=containers, standbys=standbys)
    for each in killed:
        cluster.kill(cluster.active_process(each).skein_id)
        settles(cluster)
    for each in handed_over:
        cluster.command(Operation.HAND_OVER, each)
        settles(cluster)
    cluster.actions.clear()
    cluster.load(containers=containers // 2)
    settles(cluster, 60_000)
    assert not cluster.view.unsettled
    owners = actives(cluster)
    for processor in cluster.view.jobs["job"].model.processors.values():
        assert len({owners[each.partition] for each in processor.tasks}) == 1
    assert DecisionKind.FAILOVER not in decided(cluster)


def test_new_partitions_become_tasks_and_disturb_no_other() -> None:
    cluster = deployed(tasks=4)
    owners = actives(cluster)
    cluster.load(tasks=6)
    settles(cluster)
    now = actives(cluster)
    assert {task: now[task] for task in owners} == owners
    assert set(now) == set(range(6))
    assert len(cluster.processes) == 4


def test_mixed_job_with_containers_too_many_on_hosts_too_few_asks_for_one_on_another_host() -> None:
    cluster = deployed(is_mixed=True, containers=4, hosts=("h1", "h2"))
    cluster.add_hosts("h3")
    cluster.tell_hosts()
    cluster.load(containers=3, standbys=2)
    settles(cluster, 60_000)
    assert sorted(each.host for each in cluster.processes.values()) == ["h1", "h2", "h3"]


# ---- planned hand-over, drain ----


@pytest.mark.parametrize(
    ("standbys", "is_mixed"), [(1, False), (0, False), (1, True)], ids=["standbys", "none", "mixed"]
)
def test_drained_host_is_emptied_and_nothing_fails(standbys: int, is_mixed: bool) -> None:
    hosts = ("h1", "h2", "h3", "h4")
    cluster = deployed(tasks=9, containers=3, standbys=standbys, is_mixed=is_mixed, hosts=hosts)
    host = cluster.active_process(0).host
    cluster.drain(host)
    settles(cluster, 60_000)
    assert host not in {each.host for each in cluster.processes.values()}
    kinds = decided(cluster)
    assert DecisionKind.HANDOVER in kinds
    assert DecisionKind.FAILOVER not in kinds
    assert "container_lost" not in cluster.kinds()
    # Admitted again, nothing has to move back.
    cluster.drain()
    cluster.actions.clear()
    cluster.run(3_000)
    assert not decided(cluster)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_drain_moves_all_copies_to_other_hosts_and_its_end_keeps_those_that_have_not_begun_to_move(
    *, is_cancelled: bool
) -> None:
    """The copies at the former places serve until the new ones are in sync, as in Kafka's reassignment."""
    cluster = deployed(tasks=1, containers=1, hosts=("h1", "h2", "h3", "h4"))
    before = cluster.record(0).hosts
    assert set(before.values()) == {"h1", "h2"}
    cluster.restore_ms = 3_000
    cluster.drain("h1", "h2")
    cluster.run(2_000)
    ((moving, container),) = cluster.record(0).moving.items()
    after = {*before.values(), cluster.process(container).host} - {before[moving]}
    if is_cancelled:
        cluster.drain()
    while cluster.record(0).moving:
        assert (cluster.record(0).hosts, cluster.record(0).in_sync) == (before, (0, 1))
        cluster.run(100)
    settles(cluster)
    assert set(cluster.record(0).hosts.values()) == (after if is_cancelled else {"h3", "h4"})
    assert not {"failover_started", "container_lost"} & set(cluster.kinds())


# ---- rolling upgrade ----


@pytest.mark.parametrize(
    ("standbys", "is_mixed"), [(0, False), (1, False), (1, True)], ids=["none", "standbys", "mixed"]
)
def test_rolling_upgrade_replaces_every_container_and_loses_none(standbys: int, is_mixed: bool) -> None:
    hosts = ("h1", "h2", "h3", "h4")
    cluster = deployed(tasks=6, containers=3, standbys=standbys, is_mixed=is_mixed, hosts=hosts)
    before = {each.container for each in cluster.processes.values()}
    cluster.load(revision=2)
    fewest = []
    while {each.revisions["job"] for each in cluster.processes.values()} != {2}:
        cluster.run(100)
        fewest.append(min(len(each.record.in_sync) for each in cluster.versions.values()))
        assert len(fewest) < 900
    settles(cluster)
    assert not before & {each.container for each in cluster.processes.values()}
    assert min(fewest) >= 1, "one copy at a time"
    assert not {"container_lost", "failover_started"} & set(cluster.kinds())


# ---- retry budgets, parking, poison ----


def fail_of_poison(process: Process) -> None:
    """Have every replica of a process fail of its input."""
    failures = InputFailures(10, 3, "ValueError: no number")
    detail = "poison: in-0@10: ValueError: no number"
    process.report(phase=Phase.FAILED, detail=detail, fault=Fault.POISON, failures=failures)


def test_poison_parks_its_processor_and_the_rest_runs_on() -> None:
    cluster = deployed(policy=PlannerPolicy(on_exhausted=OnExhausted.PARK))
    owners = actives(cluster)
    fail_of_poison(cluster.active_process(0))
    cluster.run(20_000)
    job = cluster.view.jobs["job"]
    assert job.state is JobState.INCOMPLETE
    assert any("parked" in each for each in job.reasons)
    assert cluster.active_process(1).container == owners[1]
    assert len(cluster.processes) == 2
    assert cluster.record(0).active is None
    assert "processor_parked" in cluster.kinds()
    cluster.command(Operation.UNPARK, 0)
    settles(cluster, 30_000)
    assert cluster.said[-1].said == "job/main:0 runs again"


@pytest.mark.parametrize("on_exhausted", OnExhausted)
def test_process_that_dies_at_one_offset_again_and_again_is_not_given_to_the_next_replica(
    on_exhausted: OnExhausted,
) -> None:
    """What it died of is forgotten when it is to run again."""
    cluster = deployed(policy=PlannerPolicy(on_exhausted=on_exhausted, retry_count=-1))
    task = TaskId("job", "main", 0)
    for count in (1, 2, 3):
        process = cluster.active_process(0)
        process.report(input_committed=10, input_end=20)
        cluster.run(200)
        cluster.crash(process.skein_id, ProcessEnd(-signal.SIGSEGV, (Ran(task, 10),)))
        cluster.run(12_000)
        known = cluster.view.records[task].record.failures
        if count < 3:
            assert known is not None
            assert (known.offset, known.count, known.is_apart) == (10, count, True)
    job = cluster.view.jobs["job"]
    if on_exhausted is OnExhausted.PARK:
        assert job.model.parked
        cluster.command(Operation.UNPARK, 0)
    else:
        assert job.state is JobState.FAILED
        for part in ("poison", "input offset 10", "SIGSEGV"):
            assert part in job.reasons[0]
        cluster.load(revision=2)
    settles(cluster)
    assert cluster.view.records[task].record.failures is None


# ---- what ends although something else waits for it ----


def test_mixed_job_gives_up_its_surplus_container_although_the_copies_there_have_long_settled() -> None:
    """It has to wait for a copy in another container."""
    cluster = deployed(is_mixed=True, containers=4, hosts=("h1", "h2", "h3", "h4"))
    held = {each: set(tasks) for each, tasks in cluster.view.assigned.items()}
    other = next(each for each, tasks in held.items() if not tasks & held[min(held)])
    cluster.phase_of = lambda process, wanted: (
        Phase.RESTORING
        if process.container == other and wanted.role is Role.STANDBY
        else in_time(process, wanted)
    )
    cluster.run(2_000)
    cluster.load(containers=3)
    cluster.run(500)
    cluster.phase_of = in_time
    settles(cluster)
    assert len(cluster.processes) == 3


def test_a_hand_over_that_is_prepared_ends_when_its_tasks_are_withdrawn() -> None:
    cluster = deployed(policy=PlannerPolicy(on_exhausted=OnExhausted.PARK))
    cluster.never_prepares.add(cluster.record(0).placed[1])
    cluster.command(Operation.HAND_OVER, 0)
    cluster.run(300)
    assert cluster.view.handovers
    fail_of_poison(cluster.active_process(0))
    cluster.run(20_000)
    assert cluster.view.jobs["job"].model.parked
    assert not cluster.view.handovers
    assert cluster.kinds().count("handover_given_up") == 1


def test_a_hand_over_that_is_prepared_ends_with_its_processor() -> None:
    cluster = deployed(containers=3, tasks=6)
    cluster.never_prepares.update(each.container for each in cluster.processes.values())
    cluster.command(Operation.HAND_OVER, 2)
    cluster.run(100)
    assert cluster.view.handovers
    cluster.load(containers=2)
    settles(cluster)
    assert not cluster.view.handovers
    assert cluster.view.unsettled == frozenset()
    assert cluster.kinds().count("handover_given_up") == 1


def ran(*partitions: int, position: int | None = 10) -> ProcessEnd:
    """Return the end of a process that ran tasks of these partitions."""
    return ProcessEnd(
        -signal.SIGSEGV, tuple(Ran(TaskId("job", "main", each), position) for each in partitions)
    )


def known_failures(cluster: FakeCluster, partition: int = 0) -> InputFailures:
    """Return what a task's record says of its failures, which it says something of."""
    known = cluster.view.records[TaskId("job", "main", partition)].record.failures
    assert known is not None
    return known


def crash_at_ten(cluster: FakeCluster, end: ProcessEnd) -> None:
    """End the process of task 0's active while input waits at offset 10."""
    process = cluster.active_process(0)
    process.report(input_committed=10, input_end=20)
    cluster.run(200)
    cluster.crash(process.skein_id, end)
    cluster.run(12_000)


def test_end_of_a_process_that_ran_several_tasks_is_no_failure_of_one_and_parts_them() -> None:
    cluster = mixed(policy=PlannerPolicy(retry_count=-1))
    together = [
        task.partition
        for task, copy in cluster.view.assigned[cluster.active_process(0).container].items()
        if cluster.view.records[task].record.active == copy
    ]
    assert len(together) > 1
    for _ in range(4):
        crash_at_ten(cluster, ran(*together, position=None))
        for each in together:
            known = known_failures(cluster, each)
            assert (known.offset, known.count, known.is_apart) == (10, 0, True)
    assert cluster.view.jobs["job"].state is JobState.DEPLOYED
    crash_at_ten(cluster, ran(0))
    counts = {each: known_failures(cluster, each).count for each in together}
    assert counts == {each: int(each == 0) for each in together}, "its neighbours did not run"


def mixed(**more: object) -> FakeCluster:
    return deployed(**{"is_mixed": True, "tasks": 6, "containers": 3, "standbys": 1, **more})
