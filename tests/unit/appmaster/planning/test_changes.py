"""The planner where a running job changes: its model, its hosts, its code, its policy, its failures."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.job import EVERY_HOST, JobState, OnExhausted, PlannerPolicy
from appmaster.planning.state.model import JobSpec, propose
from appmaster.planning.state.view import Operation, Presence, Recorded, RequestState
from standby.shared.exits import ProcessEnd, Ran
from standby.shared.model import Fault, InputFailures, Phase, Role, TaskId, TaskRecord, Wanted
from tests.fakes.yarn import FakeCluster, Process, deployed, in_time
from tests.scenarios.flights import until


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


def standby_of(cluster: FakeCluster, partition: int = 0) -> Process:
    """Return the process that has the other copy of a task that has two."""
    record = cluster.record(partition)
    return cluster.process(record.placed[1 - (record.active or 0)])


def loses_the_active_s_host(cluster: FakeCluster) -> None:
    """Lose the host of task 0's active."""
    cluster.lose_host(cluster.active_process(0).host, silent=False)


def until_decided(cluster: FakeCluster, kind: DecisionKind) -> None:
    """Let time pass until such a decision is made once more."""
    before = decided(cluster).count(kind)
    until(cluster, lambda: decided(cluster).count(kind) > before)


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


@pytest.mark.parametrize(("standbys", "hosts"), [(1, ("h1", "h2")), (2, ("h1", "h2", "h3"))])
def test_more_containers_on_no_more_hosts_than_a_task_has_copies(
    standbys: int, hosts: tuple[str, ...]
) -> None:
    cluster = deployed(tasks=2, containers=1, standbys=standbys, hosts=hosts)
    cluster.load(containers=2)
    settles(cluster, 60_000)
    assert len(cluster.processes) == 2 * (1 + standbys)
    assert len(set(actives(cluster).values())) == 2
    assert not cluster.view.unsettled
    assert DecisionKind.FAILOVER not in decided(cluster)


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


def test_only_copy_opens_next_door_when_it_is_closed_for_certain_and_a_broken_stream_is_no_proof() -> None:
    cluster = deployed(hosts=("h1",), standbys=0, containers=1)
    old = cluster.active_process(0)
    cluster.never_stops.add(old.container)
    cluster.load(containers=2)
    cluster.run(5_000)
    moved = [task for task, each in cluster.versions.items() if not each.record.placed]
    assert len(moved) == 2, "stopped where they were, and waiting for that to be confirmed"
    # It stands still while it closes their state, on the host and in the directory of their successor.
    old.is_frozen = True
    cluster.tell(happened.ContainerStreamBroken(old.container, old.incarnation, cluster.now_ms))
    cluster.run(2_000)
    assert old.skein_id in cluster.processes
    assert not any(cluster.versions[each].record.placed for each in moved)
    settles(cluster)
    assert old.skein_id not in cluster.processes


def as_found(
    cluster: FakeCluster, placed: Mapping[int, Mapping[int, str]], actives: Mapping[int, int]
) -> None:
    """Let a new leader find each task's copies on these hosts, each in a container of its own.

    ``placed`` is task → copy → host, ``actives`` task → copy.
    """
    spec = JobSpec("main", cluster.tasks, cluster.containers, cluster.standbys)
    cluster.model = propose("job", spec, None)
    for partition, hosts in placed.items():
        task, held = TaskId("job", "main", partition), {}
        for copy, host in hosts.items():
            cluster.serial += 1
            number = cluster.serial
            held[copy] = f"c{number}"
            cluster.processes[f"s_{number}"] = Process(
                f"s_{number}", held[copy], host, number, 1_000 + number
            )
        record = TaskRecord(task, actives[partition], 1, held, hosts, in_sync=tuple(hosts), claimed=True)
        cluster.versions[task] = Recorded(record, 0)
    cluster.elect(2)
    cluster.run(500)


def test_active_in_the_way_of_its_standby_moves_first() -> None:
    cluster = FakeCluster(tasks=2, standbys=2, hosts=("h1", "h2", "h3", "h4"))
    # Once they are one processor, copy 1 of task 1 belongs on h1, where its active is, and that belongs on h3.
    cluster.grants_nothing = True
    as_found(cluster, {0: {0: "h4", 1: "h1", 2: "h3"}, 1: {1: "h4", 2: "h1"}}, {0: 0, 1: 2})
    cluster.load(containers=1)
    cluster.run(1_000)
    cluster.grants_nothing = False
    settles(cluster, 60_000)
    assert len({tuple(sorted(each.record.hosts.items())) for each in cluster.versions.values()}) == 1


def test_last_standby_goes_before_an_active_that_starts_again_next_door() -> None:
    cluster = FakeCluster(tasks=2, standbys=2)
    cluster.grants_nothing = True
    as_found(cluster, {0: {0: "h1"}, 1: {1: "h1", 2: "h3"}}, {0: 0, 1: 1})
    cluster.load(containers=1, standbys=0)
    cluster.run(1_000)
    cluster.grants_nothing = False
    settles(cluster)
    assert {each.record.active for each in cluster.versions.values()} == {0}
    assert len(cluster.processes) == 1


def test_nothing_is_placed_beside_a_container_that_the_new_leader_has_not_heard() -> None:
    cluster = deployed(hosts=("h1",), standbys=0)
    unheard = cluster.active_process(1)
    unheard.is_frozen = True
    cluster.processes.pop(cluster.active_process(0).skein_id)
    cluster.elect(2)
    cluster.actions.clear()
    until_decided(cluster, DecisionKind.BIND)
    assert unheard.container not in cluster.view.containers, "given back: what it had open is closed"
    settles(cluster)


def test_copy_is_not_filled_beside_one_on_the_same_host_that_is_not_closed() -> None:
    cluster = FakeCluster(tasks=2, hosts=("h1", "h2", "h3"))
    as_found(cluster, {0: {0: "h2", 1: "h1"}, 1: {0: "h3", 1: "h2"}}, {0: 0, 1: 0})
    settles(cluster)
    # What an earlier order left open next door, in the directory that the moved copy would have.
    neighbour = cluster.active_process(1)
    stale = cluster.process(cluster.record(0).placed[1])
    neighbour.replicas.update(stale.replicas)
    cluster.never_stops.add(neighbour.container)
    cluster.actions.clear()
    cluster.drain("h1")
    cluster.run(10_000)
    assert DecisionKind.MOVE not in decided(cluster)
    cluster.never_stops.clear()
    settles(cluster)
    assert cluster.record(0).hosts[1] == "h3"


def test_new_partitions_become_tasks_and_disturb_no_other() -> None:
    cluster = deployed(tasks=4)
    owners = actives(cluster)
    cluster.load(tasks=6)
    settles(cluster)
    now = actives(cluster)
    assert {task: now[task] for task in owners} == owners
    assert set(now) == set(range(6))
    assert len(cluster.processes) == 4


# ---- planned hand-over, drain ----


def test_command_about_a_container_begins_with_all_of_it_at_once() -> None:
    cluster = deployed(is_mixed=True)
    container = cluster.active_process(0).container
    held = sorted(task for task, each in actives(cluster).items() if each == container)
    assert len(held) > 1
    cluster.command(Operation.HAND_OVER, container=container)
    view = cluster.view

    def begun() -> list[todo.Action]:
        return [each for each in plan(cluster.view) if isinstance(each, (todo.PrepareHandover, todo.Answer))]

    cluster.view = replace(view, writing={TaskId("job", "main", held[-1]): "1-99"})
    assert begun() == [], "or it would be refused later what it had begun itself"
    cluster.view = view
    *prepared, answer = begun()
    assert len(prepared) == len(held)
    assert isinstance(answer, todo.Answer)
    assert not answer.is_refused


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


def test_drain_of_the_only_other_host_leaves_the_job_incomplete_with_the_reason() -> None:
    cluster = deployed(hosts=("h1", "h2"))
    cluster.drain("h2")
    cluster.run(30_000)
    assert {each.host for each in cluster.processes.values()} == {"h1"}
    assert cluster.view.jobs["job"].state is JobState.INCOMPLETE
    cluster.drain()
    settles(cluster)


# ---- rolling upgrade ----


@pytest.mark.parametrize(
    ("standbys", "is_mixed"), [(0, False), (1, False), (2, False), (1, True)], ids=["0", "1", "2", "mixed"]
)
def test_rolling_upgrade_replaces_every_container_and_loses_none(standbys: int, is_mixed: bool) -> None:
    hosts = ("h1", "h2", "h3", "h4")
    cluster = deployed(tasks=9, containers=3, standbys=standbys, is_mixed=is_mixed, hosts=hosts)
    before = {each.container for each in cluster.processes.values()}
    cluster.load(revision=2)
    fewest = []
    for _ in range(900):
        cluster.run(100)
        fewest.append(min(len(each.record.in_sync) for each in cluster.versions.values()))
    settles(cluster)
    assert {each.revisions["job"] for each in cluster.processes.values()} == {2}
    assert not before & {each.container for each in cluster.processes.values()}
    assert min(fewest) >= max(1, standbys), "one copy at a time"
    assert not {"container_lost", "failover_started"} & set(cluster.kinds())


def test_upgrade_gives_nothing_up_while_another_processor_s_standby_is_missing() -> None:
    cluster = deployed(hosts=("h1", "h2", "h3", "h4"))
    cluster.grants_nothing = True
    cluster.kill(standby_of(cluster, 1).skein_id)
    cluster.run(1_000)
    left = set(cluster.processes)
    cluster.load(revision=2)
    cluster.run(10_000)
    assert set(cluster.processes) == left
    cluster.grants_nothing = False
    settles(cluster, 60_000)
    assert {each.revisions["job"] for each in cluster.processes.values()} == {2}


def test_revision_is_recorded_with_the_decision_that_first_makes_it_active() -> None:
    cluster = deployed(hosts=("h1", "h2", "h3", "h4"))
    assert {each.record.revision for each in cluster.versions.values()} == {1}
    cluster.load(revision=2)
    is_recorded_before = True
    for _ in range(600):
        cluster.run(100)
        for task, each in cluster.versions.items():
            runs = cluster.active_process(task.partition).revisions.get("job", 0)
            is_recorded_before &= each.record.revision >= runs
        if {each.record.revision for each in cluster.versions.values()} == {1, 2}:
            # A task that new code may have committed to is known as such while others are not.
            cluster.load(revision=3)
    settles(cluster)
    assert is_recorded_before
    assert {each.record.revision for each in cluster.versions.values()} == {3}


# ---- policy restart (SEP-23, part 3) ----


def test_standby_with_withdrawn_code_is_not_promoted_when_the_active_dies() -> None:
    cluster = deployed(hosts=("h1", "h2", "h3", "h4"))
    cluster.load(revision=2)
    while not (
        upgraded := [each.id for each in cluster.view.containers.values() if each.revisions == {"job": 2}]
    ):
        cluster.run(100)
    mine = next(task for task, each in cluster.versions.items() if upgraded[0] in each.record.placed.values())
    other = next(
        task for task, each in cluster.versions.items() if upgraded[0] not in each.record.placed.values()
    )
    assert {each.record.revision for each in cluster.versions.values()} == {1}
    # While a standby of another processor is missing nothing more is started anew.
    record = cluster.versions[other].record
    lost = cluster.process(record.placed[1 - (record.active or 0)])
    cluster.grants_nothing = True
    cluster.kill(lost.skein_id)
    cluster.run(1_000)
    # Rolled back: the former code under a third number; the second was never active.
    cluster.load(revision=3)
    cluster.run(1_000)
    assert upgraded[0] in cluster.versions[mine].record.placed.values()
    cluster.actions.clear()
    cluster.kill(cluster.active_process(mine.partition).skein_id)
    cluster.run(5_000)
    assert DecisionKind.FAILOVER not in decided(cluster)
    cluster.grants_nothing = False
    settles(cluster, 60_000)
    assert {each.revisions["job"] for each in cluster.processes.values()} == {3}
    assert cluster.versions[mine].record.revision == 3


def test_request_that_yarn_has_lost_is_made_anew_whatever_host_it_was_for() -> None:
    """Seen on a real cluster: Skein lost one for any host, and an active was missing for ever."""
    cluster = deployed(hosts=("h1", "h2"))
    standby = next(
        each for each in cluster.processes.values() if each.container not in actives(cluster).values()
    )
    cluster.grants_nothing = True
    cluster.kill(standby.skein_id)
    until(cluster, lambda: any(each.host is None for each in cluster.news("container_requested")))
    cluster.waiting.clear()
    cluster.grants_nothing = False
    settles(cluster, 60_000)


RESTART = PlannerPolicy(restarts=True)


def test_container_whose_standbys_make_way_for_two_processors_is_given_back_once() -> None:
    cluster = FakeCluster(tasks=2, policy=RESTART)
    as_found(cluster, {0: {0: "h1", 1: "h3"}, 1: {0: "h2", 1: "h3"}}, {0: 0, 1: 0})
    # As while tasks change processors: one container has the standbys of both, and the other is gone.
    shared, other = (found.record.placed[1] for found in cluster.versions.values())
    cluster.processes = {name: each for name, each in cluster.processes.items() if each.container != other}
    for task, found in cluster.versions.items():
        record = replace(found.record, placed={**found.record.placed, 1: shared}, epoch=2)
        cluster.versions[task] = Recorded(record, found.version + 1)
    cluster.grants_nothing = True
    cluster.elect(3)
    cluster.run(500)
    cluster.never_stops.add(shared)
    cluster.lose_host("h1", silent=False)
    cluster.lose_host("h2", silent=False)
    cluster.grants_nothing = False
    cluster.run(30_000)
    given_back = [each.container for each in cluster.did(todo.ReleaseContainer)]
    assert given_back.count(shared) == 1


def restored_in_place() -> tuple[FakeCluster, Process, Process]:
    """Return a cluster whose active's host is lost and whose displaced standby stayed; and the two processes."""
    cluster = deployed(policy=RESTART, hosts=("h1", "h2"), capacity=2)
    active, standby = cluster.active_process(0), standby_of(cluster)
    cluster.lose_host(active.host, silent=False)
    cluster.run(16_000)
    assert decided(cluster)[-1] is DecisionKind.RESTORE
    return cluster, active, standby


def test_host_of_an_active_whose_standby_was_restored_in_place_is_not_known() -> None:
    """If another copy goes there, the record no longer names the gone container: the next leader may expect it."""
    cluster, active, standby = restored_in_place()
    cluster.lose_host(standby.host, silent=False)
    cluster.run(10_000)
    cluster.return_host(active.host)
    until_decided(cluster, DecisionKind.BIND)
    beside = [each.record for each in cluster.versions.values() if active.host in each.record.hosts.values()]
    assert beside
    assert all(active.container not in each.placed.values() for each in beside)


def test_standby_counts_as_in_sync_although_what_the_lost_active_left_open_hides_the_end() -> None:
    """Seen on a real cluster: a transaction stays open until the dead active's successor fences it."""
    cluster = deployed(policy=RESTART)
    loses_the_active_s_host(cluster)
    cluster.run(200)
    cluster.lag_ms = 10 * RESTART.lag_time_ms
    until_decided(cluster, DecisionKind.FAILOVER)
    cluster.lag_ms = 0
    assert "failover_without_standby" not in [each.kind for each in cluster.entries]
    settles(cluster, 60_000)


def test_host_of_a_standby_that_makes_way_is_asked_for_as_long_as_the_actives_own() -> None:
    """No other host would do instead: the time after which any other is asked for says nothing here."""
    cluster = deployed(policy=replace(RESTART, request_timeout_ms=200), hosts=("h1", "h2"))
    loses_the_active_s_host(cluster)
    cluster.capacity = 2
    until_decided(cluster, DecisionKind.DISPLACE)
    cluster.run(RESTART.samehost_timeout_ms - 1_000)
    assert DecisionKind.RESTORE not in decided(cluster)
    cluster.capacity = 8
    cluster.run(500)
    assert DecisionKind.FAILOVER in decided(cluster)


def test_host_of_a_standby_that_makes_way_is_asked_for_at_once_whatever_was_in_vain_before() -> None:
    """No copy is active from then on: the waits after earlier requests have had their time."""
    patient = replace(RESTART, retry_backoff_ms=20_000, retry_backoff_max_ms=60_000)
    cluster = deployed(policy=patient, hosts=("h1", "h2"))
    loses_the_active_s_host(cluster)
    cluster.capacity = 2
    until_decided(cluster, DecisionKind.DISPLACE)
    cluster.run(RESTART.samehost_timeout_ms + 1_000)
    assert DecisionKind.RESTORE in decided(cluster)
    until_decided(cluster, DecisionKind.DISPLACE)
    cluster.capacity = 8
    cluster.run(500)
    assert DecisionKind.FAILOVER in decided(cluster)


def test_lost_active_that_the_model_has_no_place_for_is_not_started_again_but_succeeded() -> None:
    cluster = deployed(policy=RESTART, hosts=("h1", "h2", "h3"))
    cluster.command(Operation.HAND_OVER, processor=1)
    settles(cluster)
    task = next(each for each, found in cluster.versions.items() if found.record.active == 1)
    cluster.load(containers=1, standbys=0)
    until(
        cluster,
        lambda: 0 in cluster.versions[task].record.placed and not cluster.versions[task].record.moving,
    )
    assert cluster.versions[task].record.active == 1
    cluster.lose_host(cluster.active_process(task.partition).host, silent=False)
    cluster.actions.clear()
    settles(cluster)
    assert cluster.versions[task].record.active == 0
    assert DecisionKind.DISPLACE not in decided(cluster)
    assert DecisionKind.FAILOVER in decided(cluster)


# ---- retry budgets, parking, poison ----


def fail_of_poison(process: Process) -> None:
    """Have every replica of a process fail of its input."""
    failures = InputFailures(10, 3, "ValueError: no number")
    detail = "poison: in-0@10: ValueError: no number"
    process.report(phase=Phase.FAILED, detail=detail, fault=Fault.POISON, failures=failures)


def test_poison_fails_the_job_and_kills_no_other_replica() -> None:
    cluster = deployed()
    fail_of_poison(cluster.active_process(0))
    cluster.run(5_000)
    job = cluster.view.jobs["job"]
    assert job.state is JobState.FAILED
    assert "poison" in job.reasons[0]
    assert "failover_started" not in cluster.kinds()


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
    cluster.command(Operation.UNPARK, 0)
    settles(cluster, 30_000)
    assert cluster.said[-1].said == "job/main:0 runs again"


def test_processor_that_fails_too_often_is_parked_and_spaced_failures_never_add_up() -> None:
    policy = PlannerPolicy(on_exhausted=OnExhausted.PARK, retry_count=2, retry_window_ms=60_000)
    cluster = deployed(policy=policy)
    for _ in range(6):
        cluster.crash(cluster.active_process(0).skein_id)
        cluster.run(40_000)
    settles(cluster)
    for _ in range(8):
        processor = cluster.view.processor_of(TaskId("job", "main", 0))
        assert processor is not None
        if cluster.view.jobs["job"].model.processors[processor].parked:
            break
        cluster.crash(cluster.active_process(0).skein_id)
        cluster.run(3_000)
    assert "processor_parked" in cluster.kinds()


def ran(*partitions: int, position: int | None = 10, status: int = -signal.SIGSEGV) -> ProcessEnd:
    """Return the end of a process that ran tasks of these partitions."""
    return ProcessEnd(status, tuple(Ran(TaskId("job", "main", each), position) for each in partitions))


def failures_of(cluster: FakeCluster, partition: int = 0) -> InputFailures | None:
    return cluster.view.records[TaskId("job", "main", partition)].record.failures


def known_failures(cluster: FakeCluster, partition: int = 0) -> InputFailures:
    """Return what a task's record says of its failures, which it says something of."""
    known = failures_of(cluster, partition)
    assert known is not None
    return known


def crash_at_ten(cluster: FakeCluster, end: ProcessEnd | None, partition: int = 0) -> None:
    """End the process of a task's active while input waits at offset 10; without ``end`` as kill -9 does."""
    process = cluster.active_process(partition)
    process.report(input_committed=10, input_end=20)
    cluster.run(200)
    if end is None:
        cluster.kill(process.skein_id)
    else:
        cluster.crash(process.skein_id, end)
    cluster.run(12_000)


def test_ends_that_no_task_can_have_brought_about_are_no_failure_of_one() -> None:
    for end, retry_count in ((None, 1), (ran(), -1)):
        cluster = deployed(policy=PlannerPolicy(retry_count=retry_count))
        for _ in range(8):
            crash_at_ten(cluster, end)
        assert failures_of(cluster) is None, (
            "killed from outside" if end is None else "it ran no code of the job"
        )
        settles(cluster, 30_000)


def test_process_that_dies_at_one_offset_again_and_again_is_not_given_to_the_next_replica() -> None:
    cluster = deployed(policy=PlannerPolicy(retry_count=-1))
    for count in (1, 2):
        crash_at_ten(cluster, ran(0))
        known = known_failures(cluster)
        assert (known.offset, known.count, known.is_apart) == (10, count, True)
    crash_at_ten(cluster, ran(0))
    job = cluster.view.jobs["job"]
    assert job.state is JobState.FAILED
    assert "poison" in job.reasons[0]
    assert "input offset 10" in job.reasons[0]
    assert "SIGSEGV" in job.reasons[0]


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


def test_end_that_something_else_may_have_brought_about_counts_when_it_repeats_alone() -> None:
    cluster = deployed(policy=PlannerPolicy(retry_count=-1))
    by_the_kernel = replace(ran(0, status=-signal.SIGKILL), oom_kills=1)
    for count in (0, 1, 2):
        crash_at_ten(cluster, by_the_kernel)
        known = known_failures(cluster)
        assert (known.count, known.is_apart) == (count, True)
    crash_at_ten(cluster, replace(by_the_kernel, oom_kills=0))
    known = known_failures(cluster)
    assert known.count == 2, "the kernel did not do it: somebody from outside did"


def test_end_of_a_process_is_put_down_to_the_input_that_was_run_then() -> None:
    """Of several inputs; the next replica must not take a record of another one for what ended processes."""
    cluster = deployed(policy=PlannerPolicy(retry_count=-1))

    def report(failures: InputFailures) -> Process:
        process = cluster.active_process(0)
        process.report(0, input_committed=10, input_end=20, failures=failures)
        cluster.run(200)
        return process

    report(InputFailures(10, 1, "the process died"))
    process = report(InputFailures(10, 1, "the process died", "also"))
    known = known_failures(cluster)
    assert (known.count, known.topic) == (1, "also"), "reported, though nothing has failed once more"
    cluster.crash(process.skein_id, ran(0))
    cluster.run(500)
    known = known_failures(cluster)
    assert (known.offset, known.count, known.topic) == (10, 2, "also")


# ---- mixed containers ----


def mixed(**more: object) -> FakeCluster:
    return deployed(**{"is_mixed": True, "tasks": 9, "containers": 3, "standbys": 1, **more})


def load(cluster: FakeCluster) -> dict[str, tuple[int, int]]:
    """Return container → its actives and all its replicas."""
    found = {}
    for each in cluster.processes.values():
        roles = [status.role.value for status in each.replicas.values()]
        found[each.container] = (roles.count("active"), len(roles))
    return found


def test_end_of_an_orphan_spends_no_budget() -> None:
    cluster = deployed()
    process = cluster.active_process(0)
    # Its host was given up by YARN before this leader came; the process has not noticed.
    del cluster.processes[process.skein_id]
    cluster.elect(2)
    statuses = tuple(process.replicas.values())
    cluster.tell(
        happened.ContainerRegistered(
            process.container, process.skein_id, 99, process.host, 1, 0, statuses, (), cluster.now_ms
        )
    )
    cluster.tell(happened.ContainerCompleted(process.skein_id, "exit 137", cluster.now_ms))
    assert cluster.view.attempts == {}


def test_lost_mixed_container_gives_its_actives_to_the_holders_of_their_standbys() -> None:
    cluster = mixed(tasks=12, containers=4, hosts=("h1", "h2", "h3", "h4"))
    assert set(load(cluster).values()) == {(3, 6)}, "actives and standbys are shared evenly"
    lost = cluster.active_process(0)
    others = {each.container for each in cluster.processes.values()} - {lost.container}
    cluster.kill(lost.skein_id)
    cluster.run(1_000)
    assert "failover_without_standby" not in cluster.kinds()
    assert set(actives(cluster).values()) == others
    settles(cluster, 40_000)
    for numbers in zip(*load(cluster).values(), strict=True):
        assert max(numbers) - min(numbers) <= 1


def test_mixed_job_goes_on_with_fewer_containers_when_a_host_stays_away() -> None:
    cluster = mixed(tasks=6, containers=3)
    cluster.lose_host("h3", silent=False)
    cluster.run(60_000)
    assert all(len(each.record.in_sync) == 2 for each in cluster.versions.values())
    cluster.return_host("h3")
    settles(cluster, 60_000)


def test_mixed_job_with_containers_too_many_on_hosts_too_few_asks_for_one_on_another_host() -> None:
    cluster = deployed(is_mixed=True, containers=4, hosts=("h1", "h2"))
    cluster.add_hosts("h3")
    cluster.tell_hosts()
    cluster.load(containers=3, standbys=2)
    settles(cluster, 60_000)
    assert sorted(each.host for each in cluster.processes.values()) == ["h1", "h2", "h3"]


def _restores(cluster: FakeCluster, container: Process) -> None:
    cluster.phase_of = lambda process, wanted: (
        Phase.RESTORING if process is container and wanted.role is Role.STANDBY else in_time(process, wanted)
    )
    cluster.run(2_000)


def _stream_breaks(cluster: FakeCluster, container: Process) -> None:
    container.is_frozen, container.is_connected = True, False
    cluster.tell(happened.ContainerStreamBroken(container.container, container.incarnation, cluster.now_ms))


def _falls_silent(cluster: FakeCluster, container: Process) -> None:
    container.is_frozen = True
    until(cluster, lambda: cluster.view.containers[container.container].presence is Presence.SUSPECT)


@pytest.mark.parametrize("suffer", [_restores, _stream_breaks, _falls_silent])
def test_mixed_job_gives_up_its_surplus_container_although_the_copies_there_have_long_settled(
    suffer: Callable[[FakeCluster, Process], None],
) -> None:
    """It has to wait for a copy in another container, or for another container."""
    cluster = mixed(tasks=4, containers=4, hosts=("h1", "h2", "h3", "h4"))
    held = {each: set(tasks) for each, tasks in cluster.view.assigned.items()}
    other = next(each for each, tasks in held.items() if not tasks & held[min(held)])
    suffer(cluster, cluster.process(other))
    cluster.load(containers=3)
    cluster.run(500)
    cluster.phase_of, cluster.process(other).is_frozen = in_time, False
    settles(cluster)
    assert len(cluster.processes) == 3


def test_report_that_comes_before_the_record_is_acknowledged_does_not_end_the_story() -> None:
    cluster = deployed(policy=RESTART)
    cluster.kill(cluster.active_process(0).skein_id)
    bind = cluster.hold_back(lambda decision: decision.kind is DecisionKind.BIND)
    # The new container speaks while its record is on its way.
    cluster.live()
    assert cluster.view.failovers
    cluster.obey(bind)
    settles(cluster)
    assert "failover_finished" in cluster.kinds()


@pytest.mark.parametrize("is_lost", [False, True], ids=["its new active is slow", "its new active is lost"])
def test_a_failover_whose_processor_has_left_the_model_is_over_by_its_end_or_its_new_active_s(
    is_lost: bool,
) -> None:
    cluster = deployed(containers=3, tasks=6)
    cluster.restore_ms = 3_000
    cluster.kill(cluster.active_process(2).skein_id)
    until(cluster, lambda: bool(cluster.view.failovers))
    ((departing, failover),) = cluster.view.failovers.items()
    cluster.load(containers=2)
    cluster.run(300)
    assert departing not in cluster.view.jobs["job"].model.processors
    if is_lost:
        cluster.kill(cluster.process(failover.to).skein_id)
    settles(cluster, 60_000)
    assert not cluster.view.failovers
    assert cluster.view.unsettled == frozenset()


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


def test_an_active_that_is_lost_while_its_hand_over_is_written_is_not_missed_afterwards() -> None:
    cluster = deployed()
    active = cluster.active_process(0)
    cluster.command(Operation.HAND_OVER, 0)
    decided = cluster.hold_back(lambda decision: decision.kind is DecisionKind.HANDOVER)
    cluster.kill(active.skein_id)
    cluster.run(1_000)
    assert cluster.view.lost_actives
    cluster.obey(decided)
    settles(cluster)
    assert not cluster.view.lost_actives
    assert cluster.view.unsettled == frozenset()
    assert "failover_started" not in cluster.kinds()


def test_copies_leave_a_full_mixed_container_although_the_empty_one_is_on_its_own_host() -> None:
    cluster = mixed(tasks=4, containers=4)
    by_host: dict[str, list[Process]] = {}
    for each in cluster.processes.values():
        by_host.setdefault(each.host, []).append(each)
    crowded = next(each for each, held in by_host.items() if len(held) == 2)
    full = by_host.pop(crowded)[0]
    one, other = (held[0] for held in by_host.values())
    # The second container on its host is empty; the others have two copies each.
    for partition, (active, standby) in enumerate(((full, one), (other, full), (full, one), (full, other))):
        task = TaskId("job", "main", partition)
        known = cluster.versions[task]
        record = replace(
            known.record,
            active=0,
            epoch=known.record.epoch + 1,
            placed={0: active.container, 1: standby.container},
            hosts={0: active.host, 1: standby.host},
            in_sync=(0, 1),
        )
        cluster.versions[task] = Recorded(record, known.version + 1)
    cluster.tell(happened.RecordsLoaded(tuple(cluster.versions.values())))
    settles(cluster, 90_000)
    assert cluster.view.unsettled == frozenset()
    assert max(len(held) for held in cluster.view.assigned.values()) == 3


# ---- what was requested and is not needed any more ----


def request_states(cluster: FakeCluster) -> set[RequestState]:
    return {each.state for each in cluster.view.requests.values()}


@pytest.mark.parametrize("state", [RequestState.WAITING, RequestState.GRANTED], ids=lambda each: each.value)
def test_a_request_of_a_standby_that_may_stay_after_all_goes_back(state: RequestState) -> None:
    """Its host is to be drained, and is not any more as soon as a container is asked for, or granted."""
    cluster = deployed()
    placed = {task: each.record.placed for task, each in cluster.versions.items()}
    lone = next(
        each.record.hosts[1]
        for each in cluster.versions.values()
        if each.record.hosts[1] not in {other.record.hosts[0] for other in cluster.versions.values()}
    )
    cluster.actions.clear()
    cluster.grants_nothing = True
    cluster.drain(lone)
    while RequestState.WAITING not in request_states(cluster):
        cluster.run(50, step_ms=50)
    if state is RequestState.GRANTED:
        cluster.grants_nothing = False
        while state not in request_states(cluster):
            cluster.now_ms += 50
            cluster.grant()
    cluster.drain()
    cluster.run(10_000)
    ends = [each for each in cluster.actions if isinstance(each, (todo.CancelRequest, todo.ReleaseContainer))]
    assert {each.outcome for each in ends} == {todo.Outcome.SURPLUS}
    assert not cluster.view.requests
    assert {task: each.record.placed for task, each in cluster.versions.items()} == placed


# ---- restores that an operator pauses ----


def hosts_of(cluster: FakeCluster, is_meant: Callable[[Wanted], bool]) -> set[str]:
    """Return the hosts of the containers that were last ordered to hold such replicas."""
    return {each.host for each in cluster.processes.values() for wanted in each.wanted if is_meant(wanted)}


def paused(cluster: FakeCluster) -> set[str]:
    """Return where replicas are held and not restored; they are standbys."""
    assert not hosts_of(cluster, lambda each: each.is_paused and each.role is not Role.STANDBY)
    return hosts_of(cluster, lambda each: each.is_paused)


def standbys(cluster: FakeCluster) -> set[str]:
    return hosts_of(cluster, lambda each: each.role is Role.STANDBY)


def pause(cluster: FakeCluster, *hosts: str) -> None:
    """Change what the running job says."""
    cluster.policy = replace(cluster.policy, restore_paused=hosts)
    cluster.load()
    cluster.run(2_000)


def test_a_pause_is_sent_to_every_standby_kept_by_the_next_leader_and_nothing_else_is_done() -> None:
    cluster = deployed()
    pause(cluster, EVERY_HOST)
    assert paused(cluster) == standbys(cluster) != set()
    assert {type(each) for each in cluster.actions} <= {todo.SendAssignment, todo.Settle, todo.WriteStatus}
    cluster.elect(2)
    cluster.run(6_000)
    assert paused(cluster) == standbys(cluster) != set()
    host = min(standbys(cluster))
    pause(cluster, host)
    assert paused(cluster) == {host}, "those of the hosts that are named"
    pause(cluster)
    assert paused(cluster) == set()
    assert cluster.is_whole()
