"""A process that waits for its disk is lost after twice the time-out of heartbeats, and not before."""

from __future__ import annotations

import pytest

from tests.simulation.invariants import DISK_MS
from tests.simulation.job import POLICY
from tests.simulation.world import Shape, World

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize(
    ("waits_ms", "is_lost"), [(DISK_MS, False), (2 * POLICY.heartbeat_timeout_ms + 500, True)]
)
def test_a_disk_is_waited_for_and_not_for_ever(waits_ms: int, is_lost: bool) -> None:
    world = World(7, Shape())
    world.settle()
    process = next(each for each in world.containers.values() if each.is_alive)
    process.wait_for_disk()
    world.run(waits_ms)
    assert [each.container for each in world.invariants.losses] == [process.name] * is_lost
    process.end_disk_wait()
    world.settle()
