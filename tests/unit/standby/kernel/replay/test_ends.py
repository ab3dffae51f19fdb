"""Where partitions end is known of each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from standby.errors import Transient
from standby.ports import InputAway
from standby.replica.claim import epoch_in
from standby.shared.model import Phase, ReplicaId, ReplicaStatus, Role, Wanted
from tests.memory_lab import JOB, MemoryContainer, MemoryLab, begun, pair

#: For how long a task is left out whose input nobody answers for.
HELD_UP = 5.0


def of_task(container: MemoryContainer, partition: int) -> ReplicaStatus:
    return next(each for each in container.statuses() if each.replica.task.partition == partition)


def test_a_partition_without_a_leader_leaves_the_other_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = MemoryLab(tmp_path)
    (active, standby), late = pair(lab, lab.container), lab.container("c")
    lab.kafka.leaderless |= {("changelog", 1), ("in", 1)}
    lab.now_ms += 10_000
    standby.eventually(lambda: of_task(standby, 1).end is None and of_task(standby, 0).end is not None)
    active.eventually(
        lambda: of_task(active, 1).input_end is None and of_task(active, 0).input_end is not None
    )
    lab.kafka.append("in", 0, b"0/k", b"v")
    end = len(lab.kafka.logs["in", 0])
    active.eventually(lambda: of_task(active, 0).input_committed == end)
    # One that is new is restored as far as can be.
    late.want(2, Role.STANDBY, 1)
    late.eventually(lambda: len(late.statuses()) == 2)

    def is_level(container: MemoryContainer) -> bool:
        task = of_task(container, 0)
        return task.phase is Phase.TAILING and task.applied == len(lab.kafka.logs["changelog", 0])

    standby.eventually(lambda: is_level(standby))
    late.eventually(lambda: is_level(late) and of_task(late, 1).phase is Phase.RESTORING)
    # Once by each of those that ask.
    late.eventually(lambda: sum("the end of changelog partition 1" in each for each in caplog.messages) == 3)
    lab.kafka.leaderless.clear()
    late.await_phase(Phase.TAILING)
    for each in (active, standby, late):
        each.close()


def test_input_ends_are_known_where_no_changelog_answers(tmp_path: Path) -> None:
    """In a container that holds actives and standbys side by side."""
    lab = MemoryLab(tmp_path)
    lab.name(0, 1)
    mixed = lab.container("a")
    first, second = lab.tasks
    wanted = (Wanted(ReplicaId(first, 0), Role.ACTIVE, 1), Wanted(ReplicaId(second, 1), Role.STANDBY, 1))
    mixed.replicas.obey(wanted, {JOB: lab.definition})
    mixed.eventually(lambda: [each.phase for each in mixed.statuses()] == [Phase.ACTIVE, Phase.TAILING])
    lab.kafka.leaderless.add(("changelog", 1))
    lab.now_ms += 10_000
    mixed.eventually(lambda: of_task(mixed, 1).end is None and of_task(mixed, 0).input_end == 0)
    lab.kafka.append("in", 0, b"0/k", b"v")
    mixed.eventually(lambda: of_task(mixed, 0).input_end == of_task(mixed, 0).input_committed == 1)
    mixed.close()


@pytest.mark.parametrize(
    ("failure", "tries"),
    [(Transient("the connection broke"), 3), (InputAway("nobody answers", {1}), 2)],
    ids=["for some other reason", "because of it"],
)
def test_input_that_nobody_answers_for_holds_up_its_own_task_only(
    tmp_path: Path, failure: Transient, tries: int
) -> None:
    """The feed has to start anew meanwhile: the other task's input must not wait for that leader."""
    lab = MemoryLab(tmp_path)
    active = begun(lab, lab.container)
    lab.kafka.leaderless.add(("in", 1))
    lab.now_ms += 10_000
    active.eventually(lambda: of_task(active, 1).input_end is None)
    (feed,) = active.feeds.made
    breaks, tried = iter([failure]), [0]

    def break_once() -> None:
        for each in breaks:
            raise each

    def count_try() -> None:
        tried[0] += 1

    feed.on_look, feed.on_start = break_once, count_try
    for _ in range(3):
        lab.kafka.append("in", 0, b"0/k", b"v")
        end = len(lab.kafka.logs["in", 0])
        active.eventually(lambda end=end: of_task(active, 0).input_committed == end)  # type: ignore[misc]
    lab.kafka.append("in", 1, b"1/k", b"v")
    lab.kafka.leaderless.clear()
    active.eventually(lambda: of_task(active, 1).input_end is not None)
    lab.clock.advance(HELD_UP)
    active.await_processed()
    fed = [sorted(task.partition for task in positions) for positions in feed.starts]
    assert fed == [[0, 1], [0], [0, 1]]
    assert tried == [tries], "who is told by the feed's end whom to leave out need not try"
    lab.assert_exact()
    active.close()


def test_a_promotion_waits_until_somebody_says_where_its_changelog_ends(tmp_path: Path) -> None:
    """Where it drained to a guess it would claim the task on a state that lacks the rest (rule `drain-target`)."""
    lab = MemoryLab(tmp_path)
    begun(lab, lab.container).close()
    successor = lab.container("b")
    lab.kafka.leaderless |= {("changelog", 0), ("changelog", 1)}
    lab.name(1, 2, claimed=True)
    successor.want(1, Role.ACTIVE, 2)
    successor.eventually(lambda: sum("no leader" in each.detail for each in successor.statuses()) == 2)
    assert {epoch_in(each.metadata) for each in lab.kafka.offsets.values()} == {1}
    lab.kafka.leaderless.clear()
    lab.produce(20)
    successor.await_processed()
    successor.close()
    lab.assert_exact()
