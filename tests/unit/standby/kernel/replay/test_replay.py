"""Restores that are slowed down, wait for a promotion next to them, or come to a record that cannot be read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from standby.errors import Transient, Unavailable
from standby.kernel import probes
from standby.kernel.replay.rate_limiter import RateLimiter
from standby.kernel.replay.router import ReplayRouter
from standby.shared.model import Fault, Phase, ReplicaId, Role, TaskId, Wanted
from tests.meanwhile import Hold
from tests.memory_lab import JOB, MakeLab, MemoryContainer, MemoryLab
from tests.patience import soon

#: For how long a reader may bring nothing of what is there.
SILENCE = 15.0

#: A throttled restore takes what it may in steps of so long.
THROTTLE = 0.05

#: More than the lag at which a replica is no longer in step.
LAG = 1.7

#: The thread of what is restored, where there is but one.
RESTORE = f"{JOB}-restore-0"


def filled(
    make_lab: MakeLab, tasks: int = 2, records: int = 400, *, threads: int = 1, rate: int = 0
) -> MemoryLab:
    """Return a lab with so many input records' changes in its changelogs, and no replica at work.

    Restores have so many threads, and so many bytes a second, or no bound.
    """
    bounds = {"job.restore.threads": str(threads), "job.restore.max.bytes.per.second": str(rate)}
    lab = make_lab(tasks, **bounds)
    lab.begun(records, keys=500).close()
    return lab


def ends(lab: MemoryLab) -> dict[TaskId, int]:
    return {task: len(lab.kafka.logs["changelog", task.partition]) for task in lab.tasks}


def await_all_applied(lab: MemoryLab, standby: MemoryContainer) -> None:
    standby.eventually(lambda: {each.replica.task: each.applied for each in standby.statuses()} == ends(lab))


def phases(container: MemoryContainer) -> dict[TaskId, Phase]:
    return {each.replica.task: each.phase for each in container.statuses()}


def router_of(container: MemoryContainer) -> ReplayRouter:
    (job,) = container.replicas._jobs.values()
    return job.replay


def restore_while(lab: MemoryLab, is_so: Callable[[], bool]) -> None:
    """Let time pass for a throttled restore, on a clock that is held."""
    while is_so():
        lab.clock.advance(THROTTLE)
        lab.clock.await_looks(RESTORE)


def test_a_promotion_is_never_throttled(make_lab: MakeLab) -> None:
    # No record may be read after the first one while no time passes.
    lab = filled(make_lab, rate=1)
    lab.clock.hold()
    successor = lab.container("b").want(1, Role.STANDBY, 1).await_phase(Phase.RESTORING)
    successor.eventually(lambda: any((each.applied or 0) > 0 for each in successor.statuses()))
    successor.activate(1, 2).await_processed()
    lab.assert_exact()


def test_a_restore_waits_while_another_replica_drains(make_lab: MakeLab) -> None:
    lab = filled(make_lab, threads=2)
    # Nothing is read before the drain has begun.
    lab.kafka.read_limit = 0
    first, second = lab.tasks
    reads: Counter[str] = Counter()

    def look(point: str) -> None:
        if point == probes.REPLAYED and router_of(container)._draining:
            reads[threading.current_thread().name] += 1
        if point == probes.DRAINED:
            lab.kafka.read_limit = 1_000_000

    container: MemoryContainer = lab.container("b", probe=look)
    lab.name(1, 2)
    wanted = (Wanted(ReplicaId(first, 1), Role.ACTIVE, 2), Wanted(ReplicaId(second, 1), Role.STANDBY, 2))
    container.replicas.obey(wanted, {JOB: lab.definition})
    container.eventually(lambda: phases(container) == {first: Phase.DRAINING, second: Phase.RESTORING})
    container.eventually(lambda: bool(router_of(container)._draining))
    lab.kafka.read_limit = 10
    container.eventually(lambda: phases(container) == {first: Phase.ACTIVE, second: Phase.TAILING})
    # The other one may have been about to read when the drain began.
    assert reads.total() - max(reads.values()) <= 1, reads
    # It goes on afterwards, to the end.
    container.eventually(
        lambda: ends(lab)[second] in {e.applied for e in container.statuses() if e.replica.task == second}
    )


def holders(lab: MemoryLab) -> list[set[int]]:
    """Return what each reader of a changelog reads at the moment, those with nothing left out."""
    return [set(each.partitions) for each in lab.kafka.readers if each.partitions]


@pytest.mark.parametrize("threads", [1, 3])
def test_restores_share_so_many_readers_and_then_all_follow_on_one(make_lab: MakeLab, threads: int) -> None:
    lab = filled(make_lab, 7, 1_400, threads=threads)
    lab.kafka.readers.clear()
    hold = Hold(probes.REPLAYED)
    lab.kafka.read_limit = 20
    standby = lab.container("b", probe=hold).want(1, Role.STANDBY, 1)
    # All have their places before any has caught up.
    standby.eventually(lambda: bool(standby.replicas._jobs) and len(router_of(standby)._on) == 7)
    hold.let_go()
    standby.await_phase(Phase.TAILING)
    standby.eventually(lambda: holders(lab) == [set(range(7))])
    assert len(lab.kafka.readers) == threads + 1
    by_first = [sum(offset == 0 for _, offset in each.added) for each in lab.kafka.readers]
    assert sorted(each for each in by_first if each) == ([7] if threads == 1 else [2, 2, 3])
    standby.activate(1, 2).process(70)
    lab.assert_exact()


def in_step(lab: MemoryLab) -> tuple[MemoryContainer, MemoryContainer]:
    """Return an active of everything, at epoch 2, and a standby in step with it."""
    active = lab.container("a").activate(0, 2, claimed=True)
    standby = lab.container("b").stand_by(1, 2)
    return active.await_phase(Phase.ACTIVE), standby


def test_a_restore_that_is_throttled_holds_up_no_replica_in_step(make_lab: MakeLab) -> None:
    # The commit records of both take a second at this rate, all that the one behind has takes minutes.
    lab = make_lab(2, **{"job.restore.max.bytes.per.second": "200", "job.restore.threads": "1"})
    in_step, far_behind = lab.tasks
    active, standby = lab.container("a").activate(), lab.container("b")
    for number in range(2_000):
        lab.kafka.append("in", far_behind.partition, f"{far_behind.partition}/{number}".encode(), b"value")
    active.await_processed()
    lab.clock.hold()
    standby.want(1, Role.STANDBY, 1)
    parted = {in_step: Phase.TAILING, far_behind: Phase.RESTORING}
    standby.eventually(lambda: len(standby.statuses()) == 2 and Phase.OPENING not in phases(standby).values())
    restore_while(lab, lambda: phases(standby) != parted)
    # It goes on in small steps, with a short pause after each.
    assert 0 < (standby.status(far_behind.partition).applied or 0) < 20
    for number in range(50):
        lab.kafka.append("in", in_step.partition, f"{in_step.partition}/{number}".encode(), b"value")
    active.await_processed()
    end = ends(lab)[in_step]
    standby.eventually(
        lambda: end in {each.applied for each in standby.statuses() if each.replica.task == in_step}
    )
    assert phases(standby) == parted


@pytest.mark.parametrize("set_back_ms", [0, 3_600_000], ids=["", "the host's clock is set back"])
def test_one_that_falls_behind_goes_back_to_the_restores_and_returns(
    make_lab: MakeLab, set_back_ms: int
) -> None:
    """Or it would count as in step for as long as the clock was set back by."""
    lab = filled(make_lab, threads=2)
    active, standby = in_step(lab)
    # It is signalled that it has caught up before it is handed over.
    standby.eventually(lambda: holders(lab) == [{0, 1}])
    tail = next(each for each in lab.kafka.readers if each.partitions)
    # A reader without replicas is closed after some time, and then they return to another one.
    lab.clock.hold()
    lab.now_ms -= set_back_ms
    lab.kafka.read_limit = 0
    active.process(200)
    lab.clock.await_looks(f"{JOB}-ends")
    # Where the clock is set back, what it knows of the end has to be from before the time that passes now.
    lab.clock.await_looks(f"{JOB}-tail")
    lab.clock.advance(LAG)
    standby.await_phase(Phase.RESTORING)
    standby.eventually(lambda: not tail.partitions)
    lab.kafka.read_limit = 1_000_000
    standby.await_phase(Phase.TAILING)
    standby.eventually(lambda: tail.partitions == {0, 1})
    standby.activate(1, 3, claimed=True).process(50)
    lab.assert_exact()


def test_a_reader_that_cannot_be_opened_fails_the_replica(make_lab: MakeLab) -> None:
    lab = filled(make_lab, 1, 200)
    lab.kafka.refused_readers = 1
    standby = lab.container("b").want(1, Role.STANDBY, 1).await_phase(Phase.FAILED)
    assert standby.details == ["applying the changelog: no reader"]


@pytest.mark.parametrize("failure", [Unavailable("not allowed"), RuntimeError("a bug")])
def test_a_reader_that_fails_is_closed_and_the_next_replica_has_another(
    make_lab: MakeLab, failure: Exception
) -> None:
    """Its client would end where it is let go of, and may take the replay's thread along."""
    lab = filled(make_lab, 1)
    standby, before = lab.container("b"), len(lab.kafka.readers)
    standby.stand_by()
    # Those of the restore and of the replicas in step.
    soon(lambda: len(lab.kafka.readers) - before == 2, "it is not in step")
    lab.kafka.reader_failure = failure
    standby.await_phase(Phase.FAILED)
    assert str(failure) in standby.status().detail
    soon(lambda: lab.kafka.readers[-1].is_closed, "it is open")
    lab.kafka.reader_failure = None
    standby.stand_by(1, 2)


def test_a_paused_restore_goes_no_further_and_says_why_until_it_may(make_lab: MakeLab) -> None:
    lab = filled(make_lab, threads=2)
    standby = lab.container("b").want(1, Role.STANDBY, 1, is_paused=True).await_phase(Phase.RESTORING)
    said = "not replayed for now: job.restore.paused"
    standby.eventually(lambda: standby.details == [said] * 2)
    # It is still looked after: how far behind it is, is known.
    standby.pass_time_until(lambda: standby.is_so_of_all(lambda each: bool(each.lag_ms)))
    assert [each.applied for each in standby.statuses()] == [0, 0]
    standby.stand_by()
    assert standby.details == ["", ""]


def test_a_pause_leaves_alone_what_is_in_step(make_lab: MakeLab) -> None:
    lab = filled(make_lab, threads=2)
    # It stays in step, however long it waits for its turn.
    lab.clock.hold()
    active, standby = in_step(lab)
    standby.want(1, Role.STANDBY, 2, is_paused=True)
    active.process(50)
    await_all_applied(lab, standby)
    assert standby.are(Phase.TAILING)


def test_a_promotion_needs_no_resume(make_lab: MakeLab) -> None:
    lab = filled(make_lab, threads=2)
    successor = lab.container("b").want(1, Role.STANDBY, 1, is_paused=True)
    successor.eventually(lambda: "paused" in "".join(each.detail for each in successor.statuses()))
    successor.activate(1, 2).await_processed()
    lab.assert_exact()


#: A standby that no lag sends back to the restores, and so to another reader.
NEVER_BEHIND = {"job.hotstandby.lag.time.ms": "3600000"}


def tailing(make_lab: MakeLab, **config: str) -> tuple[MemoryLab, MemoryContainer, MemoryContainer]:
    """Return a lab, its active and its standby, which tails, on a clock that is held."""
    lab = make_lab(2, **{"job.restore.threads": "1", **config})
    active, standby = lab.pair()
    # A replica says that it tails before its changelog is with the reader that tails, and a reader that gets it anew
    # brings it again, whatever a test has done to that before.
    standby.eventually(lambda: any({*each.partitions} == {0, 1} for each in lab.kafka.readers))
    lab.clock.hold()
    # How long it is behind counts from now.
    standby.eventually(
        lambda: all(
            each._replayed is not None and each._replayed.at_end_ms == lab.clock.now_ms()
            for each in standby.replicas.held()
        )
    )
    return lab, active, standby


def test_a_reader_that_brings_nothing_any_more_is_replaced(make_lab: MakeLab) -> None:
    lab, active, standby = tailing(make_lab, **NEVER_BEHIND)
    readers = list(lab.kafka.readers)
    for each in readers:
        each.is_deaf = True
    active.process(200)
    standby.eventually(lambda: {each.end for each in standby.statuses()} == {*ends(lab).values()})
    lab.clock.await_looks(f"{JOB}-tail")
    lab.pass_time(SILENCE - 1)
    assert lab.kafka.readers == readers
    lab.pass_time(2)
    await_all_applied(lab, standby)
    assert len(lab.kafka.readers) > len(readers)


def test_a_partition_of_which_the_reader_brings_nothing_any_more_is_read_anew_and_no_other(
    make_lab: MakeLab,
) -> None:
    lab, active, standby = tailing(make_lab, **NEVER_BEHIND)
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
        active.process(20)
        lab.clock.let_pass(1, f"{JOB}-tail")
        return bool(anew())

    standby.eventually(is_anew)
    active.await_processed()
    await_all_applied(lab, standby)
    assert anew() == {0}
    assert lab.kafka.readers == readers


def test_a_replica_that_falls_behind_in_the_turn_in_which_its_reader_is_found_deaf_changes_tracks_only(
    make_lab: MakeLab,
) -> None:
    # As after an outage: a lag that was not known is found to be long at once. The replayer that the replica has left
    # read it anew as well, met a chunk of a replica that it does not have, and failed every other one with it.
    # The restore is throttled: while it lasts the other replayer meets what it reads.
    lab, active, standby = tailing(make_lab, **{"job.restore.max.bytes.per.second": "20000"})
    for each in lab.kafka.readers:
        each.deaf.add(0)
    active.process(200)
    lab.kafka.is_away = True
    lab.clock.advance(SILENCE + 1)
    lab.clock.await_looks(f"{JOB}-ends")
    lab.kafka.is_away = False
    standby.eventually(lambda: Phase.RESTORING in standby.phases)
    lab.clock.await_looks(f"{JOB}-tail")
    restore_while(lab, lambda: Phase.RESTORING in standby.phases)
    assert not any(Phase.FAILED in each.entered for each in standby.statuses())
    await_all_applied(lab, standby)
    standby.eventually(lambda: sum(0 in each.partitions for each in lab.kafka.readers) == 1)


@pytest.mark.parametrize("failure", [Unavailable("not allowed"), Transient("away"), RuntimeError("a bug")])
def test_a_reader_that_does_not_give_up_a_partition_is_replaced(
    make_lab: MakeLab, failure: Exception
) -> None:
    """A replica that has caught up was on no reader any more, and a promotion waited for its drain for ever."""
    lab = filled(make_lab, threads=1)
    lab.kafka.removal_failure = failure
    active, standby = in_step(lab)
    active.process(50)
    await_all_applied(lab, standby)
    standby.activate(1, 3, claimed=True)
    lab.produce(50)
    standby.await_processed()
    lab.assert_exact()
    lab.kafka.removal_failure = None
    # A client that is not closed ends where it is let go of.
    soon(lambda: all(each.is_closed or not each.partitions for each in lab.kafka.readers), "one is open")


# ---- a bound on bytes per second ----


def test_a_bound_lets_the_rate_through_and_saves_up_no_more_than_a_moment() -> None:
    now, taken = 0.0, 0
    limiter = RateLimiter(lambda: now)
    while now < 10:
        now += limiter.take(1_000, 50_000)
        taken += 1_000
    assert 490_000 <= taken <= 510_000
    for rest in (400, 500):
        now += rest
        assert limiter.take(1_000, 1_000) == pytest.approx(0.9)


def test_one_byte_a_second_is_a_bound_and_without_a_bound_nothing_waits() -> None:
    limiter = RateLimiter(lambda: 0.0)
    assert limiter.take(1 << 40, 0) == 0
    assert limiter.take(3, 1) == 3


# ---- a damaged changelog: named with its offset, never passed over, and no state wiped ----


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


@pytest.mark.parametrize("is_reported_once", [False, True])
@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
def test_a_restore_ends_at_it_and_says_where(lab: MemoryLab, role: Role, is_reported_once: bool) -> None:
    lab.begun(60).close()
    lab.kafka.names_damage_once = is_reported_once
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
