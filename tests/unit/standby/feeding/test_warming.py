"""When an idle feed may warm up: by a clock that the test moves."""

from __future__ import annotations

from standby.feeding import core
from standby.feeding.actions import Warm
from standby.feeding.events import Left
from standby.feeding.warming import _QUIET_SECONDS, _WARM_SECONDS
from standby.shared.model import TaskId
from tests.fakes.feeding import FeedingWorld, feeding

ONE, TWO = TaskId("job", "main", 0), TaskId("job", "main", 1)


def test_nothing_is_warmed_while_a_task_is_becoming_active_or_a_command_waits() -> None:
    world = FeedingWorld()
    world.expect(ONE)
    world.turn()
    assert world.took(Warm) == []
    world.is_awaited = True
    world.turn(_QUIET_SECONDS)
    assert world.took(Warm) == []
    world.is_awaited = False
    world.turn()
    assert len(world.took(Warm)) == 1, "a task that takes longer has to restore first"
    world.expect(ONE, TWO)
    world.turn(_WARM_SECONDS)
    assert len(world.took(Warm)) == 1, "the quiet time of the second task has just passed"


def test_an_idle_feed_is_asked_to_warm_up_from_time_to_time_and_is_looked_at_only_then() -> None:
    world = FeedingWorld()
    world.turn()
    assert [world.wait() for _ in range(5)] == [_WARM_SECONDS] * 5
    assert len(world.took(Warm)) == 6


def test_a_feed_that_feeds_is_not_warmed_until_its_last_task_has_left() -> None:
    world = feeding(ONE)
    world.commit(ONE, world.end)
    world.turn(10 * _WARM_SECONDS)
    assert world.took(Warm) == []
    world.fold(Left(ONE))
    world.turn()
    assert len(world.took(Warm)) == 1
    assert core.patience(world.state) == _WARM_SECONDS
