"""The planner while an active stands still: on its way there, or cut off from Kafka."""

from __future__ import annotations

import pytest

from appmaster.planning.state.job import PlannerPolicy
from standby.shared.model import Phase, Role, Wanted
from tests.fakes.yarn import FakeCluster, Process, deployed, in_time
from tests.unit.appmaster.planning.test_changes import settles

#: How long something may stand still; the other bounds are far below.
BOUND_MS = PlannerPolicy().progress_timeout_ms


def hung(cluster: FakeCluster) -> Process:
    """Lose the active; return the process in which the next one hangs, unlike those after it."""
    lost = cluster.active_process(0)
    cluster.phase_of = lambda process, wanted: (
        Phase.FENCING if wanted.role is Role.ACTIVE else in_time(process, wanted)
    )
    cluster.kill(lost.skein_id)
    cluster.run(2_000)
    found = cluster.active_process(0)
    assert found is not lost

    def held(process: Process, wanted: Wanted) -> Phase:
        is_held = process is found and wanted.role is Role.ACTIVE
        return Phase.FENCING if is_held else in_time(process, wanted)

    cluster.phase_of = held
    return found


@pytest.mark.parametrize(("restarts", "standbys"), [(False, 2), (True, 1)])
def test_promotion_that_hangs_is_given_up_for_another_copy(restarts: bool, standbys: int) -> None:
    policy = PlannerPolicy(restarts=restarts)
    cluster = deployed(tasks=1, containers=1, standbys=standbys, policy=policy)
    process = hung(cluster)
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


def test_active_that_is_cut_off_from_kafka_gives_way_to_a_copy_that_is_not() -> None:
    cluster = deployed()
    process = cluster.active_process(0)
    cluster.cut_off.add(process.container)
    cluster.run(BOUND_MS - 5_000)
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
