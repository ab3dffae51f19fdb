"""The planner while an active stands still: on its way there, or cut off from Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appmaster.planning.state import events as happened
from appmaster.planning.state.job import JobState, PlannerPolicy
from standby.shared.model import Phase, Role, TaskId, Wanted
from tests.fakes.yarn import FakeCluster, Process, deployed, in_time
from tests.unit.appmaster.planning.test_changes import settles

#: How long something may stand still; the other bounds are far below.
BOUND_MS = PlannerPolicy().progress_timeout_ms


def hold(cluster: FakeCluster, container: str, phase: Phase, only: TaskId | None = None) -> None:
    """Have a container's replicas, or ``only`` that of a task, get to ``phase`` and no further on the way to active."""

    def held(process: Process, wanted: Wanted) -> Phase:
        is_held = process.container == container and wanted.role is Role.ACTIVE
        return phase if is_held and only in (None, wanted.replica.task) else in_time(process, wanted)

    cluster.phase_of = held


def hung(phase: Phase = Phase.FENCING, **more: object) -> tuple[FakeCluster, Process]:
    """Return a cluster whose active was lost, and the process in which the next one hangs."""
    cluster = deployed(tasks=1, containers=1, **{"standbys": 2, **more})
    (recorded,) = cluster.versions.values()
    others = [
        container for copy, container in recorded.record.placed.items() if copy != recorded.record.active
    ]
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.phase_of = lambda process, wanted: phase if wanted.role is Role.ACTIVE else Phase.TAILING
    cluster.run(500)
    process = cluster.active_process(0)
    assert process.container in others
    hold(cluster, process.container, phase)
    return cluster, process


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("phase", [Phase.OPENING, Phase.FENCING, Phase.DRAINING, Phase.CLAIMING])
def test_promotion_that_hangs_is_given_up_for_another_copy(phase: Phase, restarts: bool) -> None:
    policy = PlannerPolicy(restarts=restarts)
    if restarts:
        cluster = deployed(tasks=1, containers=1, standbys=1, policy=policy)
        cluster.phase_of = lambda process, wanted: phase if wanted.role is Role.ACTIVE else Phase.TAILING
        cluster.kill(cluster.active_process(0).skein_id)
        cluster.run(2_000)
        process = cluster.active_process(0)
        hold(cluster, process.container, phase)
    else:
        cluster, process = hung(phase, policy=policy)
    cluster.run(BOUND_MS - 5_000)
    assert cluster.active_process(0) is process, "it may take its time"
    cluster.entries.clear()
    cluster.run(10_000)
    assert cluster.active_process(0) is not process
    (started,) = cluster.news("failover_started")
    assert str(started.reason) == "stuck"
    assert started.data["to_in_sync"]
    assert "container_lost" not in cluster.kinds()
    assert process.skein_id in cluster.processes, "it goes on as a standby"
    settles(cluster)


def test_one_task_of_a_processor_that_hangs_is_noticed_whatever_the_epochs_of_the_others() -> None:
    """Its epoch was compared with that of the processor's first task."""
    cluster = deployed(tasks=2, containers=1)
    first, second = sorted(cluster.versions)
    recorded = cluster.versions[second]
    cluster.versions[second] = replace(recorded, record=replace(recorded.record, epoch=5))
    cluster.elect(2)
    active = cluster.active_process(0)
    (standby,) = {*recorded.record.placed.values()} - {active.container}
    hold(cluster, standby, Phase.FENCING, second)
    cluster.kill(active.skein_id)
    cluster.run(500)
    assert cluster.active_process(1).container == standby
    cluster.run(2 * BOUND_MS)
    assert len({cluster.versions[each].record.epoch for each in (first, second)}) == 2
    assert cluster.active_process(1).container != standby
    settles(cluster)


def test_no_copy_is_given_up_while_there_is_no_other() -> None:
    cluster, process = hung(standbys=1)
    cluster.grants_nothing = True
    before = cluster.view.records
    cluster.run(3 * BOUND_MS)
    assert cluster.active_process(0) is process
    assert {each: record.record.epoch for each, record in cluster.view.records.items()} == {
        each: record.record.epoch for each, record in before.items()
    }


def test_one_that_replays_much_is_not_stuck() -> None:
    cluster, process = hung(Phase.DRAINING)
    for _ in range(30):
        cluster.applied += 1
        cluster.run(BOUND_MS // 10)
    assert cluster.active_process(0) is process


@pytest.mark.parametrize("bound_ms", [BOUND_MS, 20_000])
def test_active_that_is_cut_off_from_kafka_gives_way_to_a_copy_that_is_not(bound_ms: int) -> None:
    cluster = deployed(policy=PlannerPolicy(progress_timeout_ms=bound_ms))
    process = cluster.active_process(0)
    cluster.cut_off.add(process.container)
    cluster.run(bound_ms - 5_000)
    assert cluster.active_process(0) is process
    cluster.run(10_000)
    assert cluster.active_process(0) is not process
    assert "container_lost" not in cluster.kinds()
    cluster.cut_off.clear()
    settles(cluster)


def test_broker_that_is_away_for_everybody_costs_no_failover_nor_does_its_return() -> None:
    cluster = deployed()
    process = cluster.active_process(0)
    cluster.cut_off.update(each.container for each in cluster.processes.values())
    cluster.run(3 * BOUND_MS)
    # The standbys see it first; the active has as long as ever from then on.
    cluster.cut_off = {process.container}
    cluster.run(BOUND_MS - 5_000)
    cluster.cut_off.clear()
    settles(cluster, 2 * BOUND_MS)
    assert cluster.active_process(0) is process
    assert "failover_started" not in cluster.kinds()


def test_time_for_which_the_leader_stood_still_counts_against_no_container() -> None:
    cluster, process = hung()
    cluster.run(5_000)
    cluster.now_ms += 2 * BOUND_MS
    for each in cluster.processes.values():
        cluster.tell(happened.HeartbeatReceived(each.container, each.incarnation, cluster.now_ms))
    cluster.tell(happened.Ticked(cluster.now_ms, 2 * BOUND_MS))
    cluster.run(1_000)
    assert cluster.active_process(0) is process
    assert cluster.view.jobs["job"].state is not JobState.FAILED


def test_copy_that_has_just_come_into_step_is_not_tried_yet() -> None:
    cluster, process = hung()
    cluster.grants_nothing = True
    cluster.cut_off.update(each.container for each in cluster.processes.values() if each is not process)
    cluster.run(2 * BOUND_MS)
    cluster.cut_off.clear()
    cluster.run(BOUND_MS - 5_000)
    assert cluster.active_process(0) is process
    cluster.run(10_000)
    assert cluster.active_process(0) is not process
