"""Where partitions end is known of each by itself."""

from __future__ import annotations

import pytest

from standby.errors import Transient
from standby.replica.claim import epoch_in
from standby.shared.model import Phase, ReplicaId, Role, Wanted
from tests.memory_lab import JOB, MemoryContainer, MemoryLab

#: For how long a task is left out whose input no broker answers for.
HELD_UP = 5.0


def test_a_partition_without_a_leader_leaves_the_other_known(
    lab: MemoryLab, caplog: pytest.LogCaptureFixture
) -> None:
    (active, standby), late = lab.pair(), lab.container("c")
    lab.kafka.leaderless |= {("changelog", 1), ("in", 1)}
    lab.now_ms += 10_000
    standby.eventually(lambda: standby.status(1).end is None and standby.status(0).end is not None)
    active.eventually(lambda: active.status(1).input_end is None and active.status(0).input_end is not None)
    lab.kafka.append("in", 0, b"0/k", b"v")
    end = len(lab.kafka.logs["in", 0])
    active.eventually(lambda: active.status(0).input_committed == end)
    # One that is new is restored as far as can be.
    late.want(2, Role.STANDBY, 1)
    late.eventually(lambda: len(late.statuses()) == 2)

    def is_level(container: MemoryContainer) -> bool:
        task = container.status(0)
        return task.phase is Phase.TAILING and task.applied == len(lab.kafka.logs["changelog", 0])

    standby.eventually(lambda: is_level(standby))
    late.eventually(lambda: is_level(late) and late.status(1).phase is Phase.RESTORING)
    # Once by each of those that ask.
    late.eventually(lambda: sum("the end of changelog partition 1" in each for each in caplog.messages) == 3)
    lab.kafka.leaderless.clear()
    late.await_phase(Phase.TAILING)


def test_input_ends_are_known_where_no_changelog_answers(lab: MemoryLab) -> None:
    """In a container that holds actives and standbys side by side."""
    lab.name(0, 1)
    mixed = lab.container("a")
    first, second = lab.tasks
    wanted = (Wanted(ReplicaId(first, 0), Role.ACTIVE, 1), Wanted(ReplicaId(second, 1), Role.STANDBY, 1))
    mixed.replicas.obey(wanted, {JOB: lab.definition})
    mixed.eventually(lambda: mixed.phases == [Phase.ACTIVE, Phase.TAILING])
    lab.kafka.leaderless.add(("changelog", 1))
    lab.now_ms += 10_000
    mixed.eventually(lambda: mixed.status(1).end is None and mixed.status(0).input_end == 0)
    lab.kafka.append("in", 0, b"0/k", b"v")
    mixed.eventually(lambda: mixed.status(0).input_end == mixed.status(0).input_committed == 1)


def test_input_that_no_broker_answers_for_holds_up_its_own_task_only(
    lab: MemoryLab, caplog: pytest.LogCaptureFixture
) -> None:
    """The feed has to start anew meanwhile: the other task's input must not wait for that leader."""
    # At first both tasks start in one feed, however long the second takes.
    lab.clock.hold()
    active = lab.begun()
    lab.kafka.leaderless.add(("in", 1))
    lab.now_ms += 10_000
    active.eventually(lambda: active.status(1).input_end is None)
    (feed,) = active.feeds.made
    breaks = iter([Transient("the connection broke")])

    def break_once() -> None:
        for each in breaks:
            raise each

    feed.on_look = break_once
    active.eventually(lambda: "the feed ended (1. time in a row)" in caplog.text)
    # More than the feed waits until it is started anew.
    lab.clock.advance(1)
    for _ in range(3):
        lab.kafka.append("in", 0, b"0/k", b"v")
        end = len(lab.kafka.logs["in", 0])
        active.eventually(lambda end=end: active.status(0).input_committed == end)  # type: ignore[misc]
    lab.kafka.append("in", 1, b"1/k", b"v")
    lab.kafka.leaderless.clear()
    active.eventually(lambda: active.status(1).input_end is not None)
    lab.clock.advance(HELD_UP)
    active.await_processed()
    fed = [sorted(task.partition for task in positions) for positions in feed.starts]
    assert fed == [[0, 1], [0], [0, 1]]
    lab.assert_exact()


def test_a_promotion_waits_until_somebody_says_where_its_changelog_ends(lab: MemoryLab) -> None:
    """Where it drained to a guess it would claim the task on a state that lacks the rest (rule `drain-target`)."""
    lab.begun().close()
    successor = lab.container("b")
    lab.kafka.leaderless |= {("changelog", 0), ("changelog", 1)}
    successor.activate(1, 2, claimed=True)
    successor.eventually(lambda: sum("no leader" in each.detail for each in successor.statuses()) == 2)
    assert {epoch_in(each.metadata) for each in lab.kafka.offsets.values()} == {1}
    lab.kafka.leaderless.clear()
    successor.process(20)
    lab.assert_exact()
