"""A changelog with a record that cannot be read: named with its offset, never passed over, and no state wiped."""

from __future__ import annotations

import pytest

from standby.shared.model import Fault, Phase, Role
from tests.memory_lab import MakeLab, MemoryContainer, MemoryLab


@pytest.fixture
def lab(make_lab: MakeLab) -> MemoryLab:
    return make_lab(1)


def damage(lab: MemoryLab, offset: int) -> None:
    with lab.kafka.lock:
        lab.kafka.damaged.add((("changelog", 0), offset))


def assert_named(container: MemoryContainer, offset: int) -> None:
    container.await_phase(Phase.FAILED)
    (status,) = container.statuses()
    assert "changelog changelog-0 cannot be read on from " in status.detail
    assert f"at offset {offset}: it is damaged" in status.detail
    assert "Nothing is skipped" in status.detail
    assert "kafka-dump-log.sh" in status.detail
    assert status.fault is Fault.OTHER, "another container may have the state at hand"


def test_damage_that_is_reported_only_once_is_named_at_the_end(lab: MemoryLab) -> None:
    lab.begun(60).close()
    lab.kafka.names_damage_once = True
    damage(lab, 5)
    other = lab.container("b").want(1, Role.STANDBY, 1)
    assert_named(other, 5)


@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
def test_a_restore_ends_at_it_and_says_where(lab: MemoryLab, role: Role) -> None:
    lab.begun(60).close()
    damage(lab, 5)
    lab.name(1, 2, claimed=True)
    outputs = lab.kafka.committed_records("out", 0)
    other = lab.container("b").want(1, role, 2)
    lab.produce(20)
    assert_named(other, 5)
    assert lab.kafka.committed_records("out", 0) == outputs


def test_a_standby_in_step_stops_at_it_and_keeps_its_state(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    end = len(lab.kafka.logs["changelog", 0])
    damage(lab, end)
    lab.produce(20)
    assert_named(standby, end)
    active.await_processed()
    standby.close()
    assert any("/b/" in str(path) and found for path, found in lab.disk.flushed.items() if path.is_dir())
    lab.assert_exact()


def test_what_can_be_read_the_next_time_was_no_damage(lab: MemoryLab) -> None:
    lab.begun(60)
    damage(lab, 5)
    # It counts as damage after so many tries, for each of which some time must pass.
    lab.clock.hold()
    standby = lab.container("b").want(1, Role.STANDBY, 1)
    standby.eventually(lambda: any(each.added.count((0, 0)) > 1 for each in lab.kafka.readers))
    lab.kafka.damaged.clear()
    standby.pass_time_until(lambda: standby.are(Phase.TAILING))
