"""An active that has nothing to commit finds out that somebody claimed its task after it."""

from __future__ import annotations

import pytest

from standby.shared.model import Phase, Role
from tests.memory_lab import MakeLab, MemoryContainer, MemoryLab


@pytest.fixture
def lab(make_lab: MakeLab) -> MemoryLab:
    lab = make_lab()
    lab.clock.hold()
    return lab


@pytest.fixture
def active(lab: MemoryLab) -> MemoryContainer:
    """Both tasks, active at epoch 1, with all input processed."""
    container = lab.begun()
    lab.kafka.committed_asked.clear()
    return container


@pytest.mark.parametrize("moved_ms", [2_000, -3_600_000], ids=["idle", "clock set back"])
def test_an_idle_active_that_was_succeeded_steps_down_and_is_a_standby_when_ordered(
    lab: MemoryLab, active: MemoryContainer, moved_ms: int
) -> None:
    successor = lab.container("b").activate(1, 2).await_phase(Phase.ACTIVE)
    assert active.are(Phase.ACTIVE)
    lab.now_ms += moved_ms
    active.await_phase(Phase.FENCED)
    assert all("claimed at epoch 2, newer than 1" in each for each in active.details)
    active.want(0, Role.STANDBY, 2).await_phase(Phase.RESTORING, Phase.TAILING)
    successor.process(20)
    lab.assert_exact()


def test_all_idle_tasks_are_asked_about_at_once_and_only_those(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    asked = lab.kafka.committed_asked
    lab.now_ms += 1_999
    lab.kafka.append("in", 0, b"0/k", b"v")
    # What it has committed shows a little earlier than when.
    (first, _) = active.replicas.held()
    active.eventually(lambda: first.active is not None and first.active.last_commit_ms == lab.clock.now_ms())
    lab.now_ms += 1
    active.eventually(lambda: len(asked) > 0)
    assert asked == [(1,)], "the other one has committed a moment ago"
    lab.now_ms += 2_000
    active.eventually(lambda: len(asked) > 1)
    assert [sorted(each) for each in asked] == [[1], [0, 1]]
    assert active.are(Phase.ACTIVE)


def test_nothing_is_held_against_an_active_while_kafka_does_not_answer(
    lab: MemoryLab, active: MemoryContainer
) -> None:
    asked = lab.kafka.committed_asked
    lab.kafka.is_away = True
    lab.now_ms += 2_000
    active.eventually(lambda: len(asked) == 1)
    lab.now_ms += 2_000
    active.eventually(lambda: len(asked) == 2)
    lab.kafka.is_away = False
    assert active.are(Phase.ACTIVE)
    active.process(10)
    lab.assert_exact()
