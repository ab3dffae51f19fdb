"""Restores that are slowed down, and that wait for a promotion next to them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from standby.errors import Transient, Unavailable
from standby.kernel import probes
from standby.shared.model import Phase, ReplicaId, Role, TaskId, Wanted
from tests.memory_lab import JOB, MemoryContainer, MemoryLab, begun, pair
from tests.patience import PATIENCE_SECONDS, soon

#: For how long a reader may bring nothing of what is there.
SILENCE = 15.0

#: A throttled restore takes what it may in steps of so long.
THROTTLE = 0.05

#: More than the lag at which a replica is no longer in step.
LAG = 0.5

#: The thread of what is restored, where there is but one.
RESTORE = f"{JOB}-restore-0"


def filled(
    tmp_path: Path, tasks: int = 2, records: int = 400, *, threads: int = 1, rate: int = 0
) -> MemoryLab:
    """Return a lab with so many input records' changes in its changelogs, and nobody at work.

    Restores have so many threads, and so many bytes a second, or no bound.
    """
    bounds = {"job.restore.threads": str(threads), "job.restore.max.bytes.per.second": str(rate)}
    lab = MemoryLab(tmp_path, tasks, **bounds)
    begun(lab, lab.container, records, keys=500).close()
    return lab


def ends(lab: MemoryLab) -> dict[TaskId, int]:
    return {task: len(lab.kafka.logs["changelog", task.partition]) for task in lab.tasks}


def await_all_applied(lab: MemoryLab, standby: MemoryContainer) -> None:
    standby.eventually(lambda: {each.replica.task: each.applied for each in standby.statuses()} == ends(lab))


def phases(container: MemoryContainer) -> dict[TaskId, Phase]:
    return {each.replica.task: each.phase for each in container.statuses()}


def restore_while(lab: MemoryLab, is_so: Callable[[], bool]) -> None:
    """Let time pass for a throttled restore, on a clock that is held."""
    while is_so():
        lab.clock.advance(THROTTLE)
        lab.clock.await_looks(RESTORE)


def test_a_throttled_restore_goes_on_as_time_passes_and_no_further(tmp_path: Path) -> None:
    """How exactly the rate is kept to is told by the throttle's own tests."""
    lab = filled(tmp_path, records=2_000, rate=60_000)
    lab.clock.hold()
    standby = lab.container("b")
    standby.want(1, Role.STANDBY, 1)
    standby.eventually(lambda: {*phases(standby).values()} == {Phase.RESTORING})
    standby.eventually(lambda: any(each.applied for each in standby.statuses()))
    lab.clock.await_looks(RESTORE)
    before = [each.applied for each in standby.statuses()]
    lab.clock.await_looks(RESTORE)
    assert [each.applied for each in standby.statuses()] == before
    assert {*phases(standby).values()} == {Phase.RESTORING}
    restore_while(lab, lambda: Phase.RESTORING in phases(standby).values())
    standby.await_phase(Phase.TAILING)
    standby.close()


def test_a_promotion_is_never_throttled(tmp_path: Path) -> None:
    # No record may be read after the first one while no time passes.
    lab = filled(tmp_path, rate=1)
    lab.clock.hold()
    successor = lab.container("b")
    successor.want(1, Role.STANDBY, 1)
    successor.await_phase(Phase.RESTORING)
    successor.eventually(lambda: any((each.applied or 0) > 0 for each in successor.statuses()))
    lab.name(1, 2)
    successor.want(1, Role.ACTIVE, 2)
    successor.await_processed()
    lab.assert_exact()
    successor.close()


def test_a_restore_waits_while_another_replica_drains(tmp_path: Path) -> None:
    lab = filled(tmp_path, records=2_000, threads=2)
    lab.kafka.read_limit = 10
    first, second = lab.tasks
    seen: dict[str, dict[int, int]] = {}

    def look(point: str) -> None:
        if point in {probes.OFFSETS_READ, probes.DRAINED}:
            seen[point] = {each.replica.task.partition: each.applied or 0 for each in container.statuses()}
        if point == probes.DRAINED:
            lab.kafka.read_limit = 1_000_000

    container: MemoryContainer = lab.container("b", probe=look)
    lab.name(1, 2)
    wanted = (Wanted(ReplicaId(first, 1), Role.ACTIVE, 2), Wanted(ReplicaId(second, 1), Role.STANDBY, 2))
    container.replicas.obey(wanted, {JOB: lab.definition})
    container.eventually(lambda: phases(container) == {first: Phase.ACTIVE, second: Phase.TAILING})
    moved = {each: seen[probes.DRAINED][each] - seen[probes.OFFSETS_READ][each] for each in (0, 1)}
    # A few looks may pass until the drain has begun.
    assert moved[0] > 20 * moved[1], moved
    # It goes on afterwards, to the end.
    container.eventually(
        lambda: ends(lab)[second] in {e.applied for e in container.statuses() if e.replica.task == second}
    )
    container.close()


def holders(lab: MemoryLab) -> list[set[int]]:
    """Return what each reader of a changelog reads at the moment, those with nothing left out."""
    return [set(each.partitions) for each in lab.kafka.readers if each.partitions]


@pytest.mark.parametrize("threads", [1, 3])
def test_restores_share_so_many_readers_and_then_all_follow_on_one(tmp_path: Path, threads: int) -> None:
    lab = filled(tmp_path, 7, 1_400, threads=threads)
    lab.kafka.readers.clear()
    most = 0
    gate = threading.Event()

    def look(point: str) -> None:
        nonlocal most
        if point == probes.REPLAYED:
            gate.wait(PATIENCE_SECONDS)
            most = max(most, len(lab.kafka.readers))

    lab.kafka.read_limit = 20
    standby = lab.container("b", probe=look)
    standby.want(1, Role.STANDBY, 1)
    standby.eventually(lambda: sum(len(each.added) for each in lab.kafka.readers) >= threads)
    gate.set()
    standby.await_phase(Phase.TAILING)
    standby.eventually(lambda: holders(lab) == [set(range(7))])
    assert len(lab.kafka.readers) == threads + 1
    by_first = [sum(offset == 0 for _, offset in each.added) for each in lab.kafka.readers]
    assert sorted(each for each in by_first if each) == ([7] if threads == 1 else [2, 2, 3])
    lab.name(1, 2)
    standby.want(1, Role.ACTIVE, 2)
    lab.produce(70)
    standby.await_processed()
    lab.assert_exact()
    standby.close()


def in_step(lab: MemoryLab) -> tuple[MemoryContainer, MemoryContainer]:
    """Return an active of everything, at epoch 2, and a standby in step with it."""
    active, standby = lab.container("a"), lab.container("b")
    lab.name(0, 2, claimed=True)
    active.want(0, Role.ACTIVE, 2)
    standby.want(1, Role.STANDBY, 2)
    active.await_phase(Phase.ACTIVE)
    standby.await_phase(Phase.TAILING)
    return active, standby


def test_a_restore_that_is_throttled_holds_up_nobody_in_step(tmp_path: Path) -> None:
    # The commit records of both take a second at this rate, all that the one behind has takes minutes.
    lab = MemoryLab(tmp_path, 2, **{"job.restore.max.bytes.per.second": "200", "job.restore.threads": "1"})
    in_step, far_behind = lab.tasks
    lab.name(0, 1)
    active, standby = lab.container("a"), lab.container("b")
    active.want(0, Role.ACTIVE, 1)
    for number in range(2_000):
        lab.kafka.append("in", far_behind.partition, f"{far_behind.partition}/{number}".encode(), b"value")
    active.await_processed()
    lab.clock.hold()
    standby.want(1, Role.STANDBY, 1)
    parted = {in_step: Phase.TAILING, far_behind: Phase.RESTORING}
    standby.eventually(lambda: len(standby.statuses()) == 2 and Phase.OPENING not in phases(standby).values())
    restore_while(lab, lambda: phases(standby) != parted)
    for number in range(50):
        lab.kafka.append("in", in_step.partition, f"{in_step.partition}/{number}".encode(), b"value")
    active.await_processed()
    end = ends(lab)[in_step]
    standby.eventually(
        lambda: end in {each.applied for each in standby.statuses() if each.replica.task == in_step}
    )
    assert phases(standby) == parted
    standby.close()
    active.close()


def test_one_that_falls_behind_goes_back_to_the_restores_and_returns(tmp_path: Path) -> None:
    lab = filled(tmp_path, threads=2)
    active, standby = in_step(lab)
    # It is told that it has caught up before it is handed over.
    standby.eventually(lambda: holders(lab) == [{0, 1}])
    tail = next(each for each in lab.kafka.readers if each.partitions)
    lab.kafka.read_limit = 0
    lab.produce(200)
    active.await_processed()
    lab.clock.await_looks(f"{JOB}-ends")
    lab.clock.advance(LAG)
    standby.await_phase(Phase.RESTORING)
    standby.eventually(lambda: not tail.partitions)
    lab.kafka.read_limit = 1_000_000
    standby.await_phase(Phase.TAILING)
    standby.eventually(lambda: tail.partitions == {0, 1})
    lab.name(1, 3, claimed=True)
    standby.want(1, Role.ACTIVE, 3)
    lab.produce(50)
    standby.await_processed()
    lab.assert_exact()
    active.close()
    standby.close()


def test_a_host_clock_that_is_set_back_hides_no_lag(tmp_path: Path) -> None:
    """Otherwise a copy that is behind would count as in step for as long as the clock was set back by."""
    lab = filled(tmp_path, threads=2)
    active, standby = in_step(lab)
    lab.now_ms -= 3_600_000
    lab.kafka.read_limit = 0
    lab.produce(200)
    active.await_processed()
    lab.clock.await_looks(f"{JOB}-ends")
    lab.clock.advance(LAG)
    standby.await_phase(Phase.RESTORING)
    lab.kafka.read_limit = 1_000_000
    standby.await_phase(Phase.TAILING)
    active.close()
    standby.close()


def test_a_reader_that_cannot_be_opened_fails_the_replica(tmp_path: Path) -> None:
    lab = filled(tmp_path, 1, 200)
    lab.kafka.refused_readers = 1
    standby = lab.container("b")
    standby.want(1, Role.STANDBY, 1)
    standby.await_phase(Phase.FAILED)
    assert [each.detail for each in standby.statuses()] == ["applying the changelog: no reader"]
    standby.close()


@pytest.mark.parametrize("failure", [Unavailable("not allowed"), RuntimeError("a bug")])
def test_a_reader_that_fails_is_closed_and_the_next_replica_has_another(
    tmp_path: Path, failure: Exception
) -> None:
    """Its client would end where it is let go of, and may take the replay's thread along."""
    lab = filled(tmp_path, 1)
    standby, before = lab.container("b"), len(lab.kafka.readers)
    standby.want(1, Role.STANDBY, 1)
    standby.await_phase(Phase.TAILING)
    # Those of the restore and of the replicas in step.
    soon(lambda: len(lab.kafka.readers) - before == 2, "it is not in step")
    lab.kafka.reader_failure = failure
    standby.await_phase(Phase.FAILED)
    assert str(failure) in standby.statuses()[0].detail
    soon(lambda: lab.kafka.readers[-1].is_closed, "it is open")
    lab.kafka.reader_failure = None
    standby.want(1, Role.STANDBY, 2)
    standby.await_phase(Phase.TAILING)
    standby.close()


def test_a_paused_restore_goes_no_further_and_says_why_until_it_may(tmp_path: Path) -> None:
    lab = filled(tmp_path, threads=2)
    standby = lab.container("b")
    standby.want(1, Role.STANDBY, 1, is_paused=True)
    standby.await_phase(Phase.RESTORING)
    said = "not replayed for now: job.restore.paused"
    standby.eventually(lambda: [each.detail for each in standby.statuses()] == [said] * 2)
    # It is still looked after: how far behind it is, is known.
    standby.pass_time_until(lambda: standby.is_so_of_all(lambda each: bool(each.lag_ms)))
    assert [each.applied for each in standby.statuses()] == [0, 0]
    standby.want(1, Role.STANDBY, 1)
    standby.await_phase(Phase.TAILING)
    assert [each.detail for each in standby.statuses()] == ["", ""]
    standby.close()


def test_a_pause_leaves_alone_what_is_in_step(tmp_path: Path) -> None:
    lab = filled(tmp_path, threads=2)
    active, standby = in_step(lab)
    standby.want(1, Role.STANDBY, 2, is_paused=True)
    lab.produce(50)
    active.await_processed()
    await_all_applied(lab, standby)
    assert {each.phase for each in standby.statuses()} == {Phase.TAILING}
    active.close()
    standby.close()


def test_a_promotion_needs_no_resume(tmp_path: Path) -> None:
    lab = filled(tmp_path, threads=2)
    successor = lab.container("b")
    successor.want(1, Role.STANDBY, 1, is_paused=True)
    successor.eventually(lambda: "paused" in "".join(each.detail for each in successor.statuses()))
    lab.name(1, 2)
    successor.want(1, Role.ACTIVE, 2)
    successor.await_processed()
    lab.assert_exact()
    successor.close()


#: A standby that no lag sends back to the restores, and so to another reader.
NEVER_BEHIND = {"job.hotstandby.lag.time.ms": "3600000"}


def tailing(tmp_path: Path, **config: str) -> tuple[MemoryLab, MemoryContainer, MemoryContainer]:
    """Return a lab, its active and its standby, which tails."""
    lab = MemoryLab(tmp_path, 2, **{"job.restore.threads": "1", **config})
    active, standby = pair(lab, lab.container)
    # A replica says that it tails before its changelog is with the reader that tails, and a reader that gets it anew
    # brings it again, whatever a test has done to that before.
    standby.eventually(lambda: any({*each.partitions} == {0, 1} for each in lab.kafka.readers))
    return lab, active, standby


def test_a_reader_that_brings_nothing_any_more_is_replaced(tmp_path: Path) -> None:
    lab, active, standby = tailing(tmp_path, **NEVER_BEHIND)
    lab.clock.hold()
    readers = list(lab.kafka.readers)
    for each in readers:
        each.is_deaf = True
    lab.produce(200)
    active.await_processed()
    standby.eventually(lambda: {each.end for each in standby.statuses()} == {*ends(lab).values()})
    lab.clock.await_looks(f"{JOB}-tail")
    lab.pass_time(SILENCE - 1)
    assert lab.kafka.readers == readers
    lab.pass_time(2)
    await_all_applied(lab, standby)
    assert len(lab.kafka.readers) > len(readers)
    standby.close()
    active.close()


def test_a_partition_of_which_the_reader_brings_nothing_any_more_is_read_anew_and_no_other(
    tmp_path: Path,
) -> None:
    lab, active, standby = tailing(tmp_path, **NEVER_BEHIND)
    lab.clock.hold()
    readers = list(lab.kafka.readers)
    added = [len(each.added) for each in readers]
    for each in readers:
        each.deaf.add(0)

    def anew() -> set[int]:
        return {
            partition
            for each, before in zip(readers, added, strict=True)
            for partition, _ in each.added[before:]
        }

    def is_anew() -> bool:
        # The other one goes on all the while: a reader that brings something is not to be taken for well by that.
        lab.produce(20)
        active.await_processed()
        lab.clock.let_pass(1, f"{JOB}-tail")
        return bool(anew())

    standby.eventually(is_anew)
    active.await_processed()
    await_all_applied(lab, standby)
    assert anew() == {0}
    assert lab.kafka.readers == readers
    standby.close()
    active.close()


def test_a_replica_that_falls_behind_in_the_turn_in_which_its_reader_is_found_deaf_changes_tracks_only(
    tmp_path: Path,
) -> None:
    # As after an outage: a lag that was not known is found to be long at once. The replayer that the replica has left
    # read it anew as well, met a chunk of a replica that it does not have, and failed every other one with it.
    # The restore is throttled: while it lasts the other replayer meets what it reads.
    lab, active, standby = tailing(tmp_path, **{"job.restore.max.bytes.per.second": "20000"})
    lab.clock.hold()
    for each in lab.kafka.readers:
        each.deaf.add(0)
    lab.produce(200)
    active.await_processed()
    lab.kafka.is_away = True
    lab.clock.advance(SILENCE + 1)
    lab.clock.await_looks(f"{JOB}-ends")
    lab.kafka.is_away = False
    standby.eventually(lambda: Phase.RESTORING in phases(standby).values())
    lab.clock.await_looks(f"{JOB}-tail")
    restore_while(lab, lambda: Phase.RESTORING in phases(standby).values())
    assert not any(Phase.FAILED in each.entered for each in standby.statuses())
    await_all_applied(lab, standby)
    standby.eventually(lambda: sum(0 in each.partitions for each in lab.kafka.readers) == 1)
    standby.close()
    active.close()


@pytest.mark.parametrize("failure", [Unavailable("not allowed"), Transient("away"), RuntimeError("a bug")])
def test_a_reader_that_does_not_give_up_a_partition_is_replaced(tmp_path: Path, failure: Exception) -> None:
    """A replica that has caught up was on no reader any more, and a promotion waited for its drain for ever."""
    lab = filled(tmp_path, threads=1)
    lab.kafka.removal_failure = failure
    active, standby = in_step(lab)
    lab.produce(50)
    active.await_processed()
    await_all_applied(lab, standby)
    lab.name(1, 3, claimed=True)
    standby.want(1, Role.ACTIVE, 3)
    lab.produce(50)
    standby.await_processed()
    lab.assert_exact()
    lab.kafka.removal_failure = None
    # A client that is not closed ends where it is let go of.
    soon(lambda: all(each.is_closed or not each.partitions for each in lab.kafka.readers), "one is open")
    active.close()
    standby.close()
