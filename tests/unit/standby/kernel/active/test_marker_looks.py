"""Before a batch begins, the markers of the one before are there, or what lacks one is known."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from standby.errors import Transient
from standby.kernel.active.markers import Markers
from standby.kernel.ports import Broker, Place, WriterLost
from standby.shared.model import TaskId
from tests.fakes.clock import HandClock
from tests.patience import PATIENCE_SECONDS

OUT, OTHER, CHANGELOG = ("out", 0), ("out", 1), ("changelog", 0)


class Ends:
    """Answers for partitions, and no answer as many times as the test says; a `standby.kernel.ports.Broker`."""

    def __init__(self, stable: Mapping[Place, int], ends: Mapping[Place, int] = {}) -> None:
        self.stable, self.ends = {**stable}, {**ends}
        self.silent: dict[Place, int] = {}
        """Partition → so many more looks in which it does not answer."""
        self.failing = 0
        """So many more looks without any answer."""

    def output_ends(self) -> Mapping[Place, int]:
        return self.ends

    def stable_ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        if self.failing:
            self.failing -= 1
            raise Transient("no leader")
        told = {each: self.stable[each] for each in places if not self.silent.get(each)}
        self.silent = {each: left - 1 for each, left in self.silent.items() if left}
        return told


def looking(ends: Ends, answer_seconds: float = PATIENCE_SECONDS) -> Markers:
    broker, clock = cast("Broker", cast("Any", ends)), HandClock()
    clock.hold(threading.current_thread().name)
    return Markers(broker, TaskId("job", "main", 0), CHANGELOG, answer_seconds, lambda: False, clock)


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_partition_without_a_leader_is_waited_for(is_alone: bool) -> None:
    """That is when markers are left out, and when a transaction that has begun would be lost."""
    ends = Ends({OUT: 8, CHANGELOG: 5})
    if is_alone:
        ends.failing = 30
    else:
        ends.silent[OUT] = 30
    looks = looking(ends)
    looks.note({OUT: 7, CHANGELOG: 4})
    looks.wait()
    assert (ends.failing, ends.silent) == (0, {})
    assert looks.hanging() == ()


def test_one_that_does_not_answer_in_time_costs_the_producer() -> None:
    ends = Ends({CHANGELOG: 5})
    ends.silent[OUT] = 1 << 30
    looks = looking(ends, answer_seconds=0.0)
    looks.note({OUT: 7, CHANGELOG: 4})
    with pytest.raises(WriterLost, match="seen in out-0 has no answer"):
        looks.wait()


def test_what_hangs_in_the_changelog_is_for_the_way_to_active() -> None:
    looks = looking(Ends({CHANGELOG: 3}))
    looks.note({CHANGELOG: 4})
    for _ in range(2):
        with pytest.raises(WriterLost, match="no marker in its changelog"):
            looks.wait()


def test_what_hangs_in_an_output_is_reported_until_a_marker_is_there() -> None:
    ends = Ends({OUT: 3, OTHER: 9, CHANGELOG: 5})
    looks = looking(ends)
    looks.note({OUT: 7, OTHER: 8, CHANGELOG: 4})
    looks.wait()
    assert looks.hanging() == (("out", 0, 7),), "where the task has written, not where something is open"
    looks.note({CHANGELOG: 6})
    ends.stable[CHANGELOG] = 8
    looks.wait()
    assert looks.hanging() == (("out", 0, 7),), "the last commit had no output there"
    looks.note({OUT: 12, CHANGELOG: 9})
    ends.stable |= {OUT: 13, CHANGELOG: 11}
    looks.wait()
    assert looks.hanging() == ()


def test_what_a_former_replica_left_open_is_recognised_by_where_it_began() -> None:
    looks = looking(Ends({OUT: 3, OTHER: 9}, ends={OUT: 7, OTHER: 9}))
    looks.wait()
    assert looks.hanging() == (("out", 0, 3),)
