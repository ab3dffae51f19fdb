"""The planner while no copy reaches Kafka: none stands still that another could replace."""

from __future__ import annotations

from appmaster.planning.state.job import PlannerPolicy
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.test_changes import settles

#: How long something may stand still; the other bounds are far below.
BOUND_MS = PlannerPolicy().progress_timeout_ms


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
