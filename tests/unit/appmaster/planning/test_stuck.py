"""The planner while an active stands still: on its way there, or cut off from Kafka."""

from __future__ import annotations

from appmaster.planning.state.job import PlannerPolicy
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.test_changes import settles

#: How long something may stand still; the other bounds are far below.
BOUND_MS = PlannerPolicy().progress_timeout_ms


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
