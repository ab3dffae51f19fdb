"""The kernel as a whole, on Kafka, disks and a feed in memory."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from standby.errors import BadConfiguration, Transient
from standby.kernel import probes
from standby.kernel.ports import WriterLost
from standby.kernel.restore.snapshots import NotNow
from standby.ports import StartCalledOff
from standby.replica.lifecycle import Effect
from standby.replica.store.origin import DATABASE, SIDE_FILE, decode_origin
from standby.shared.model import Phase, ReplicaId, Role, StartStep, TaskId, Wanted
from standby.shared.naming import state_path
from standby.shared.wire import JobDefinition
from tests.fakes import ledger_job
from tests.fakes.feed import FEED, MemoryFeed
from tests.fakes.kafka import Entry, Transaction
from tests.fakes.peers import by_source
from tests.meanwhile import Hold
from tests.memory_lab import COMMIT, JOB, WAYS, MakeLab, MemoryContainer, MemoryLab, having
from tests.patience import PATIENCE_SECONDS, soon

#: So many lost claims in a row end an active.
FENCES = 5

#: How long a feed may bring nothing of what is there.
DEAF = 15.0

#: More than the conductor's tick: after it the next turn looks at what is stuck, whatever commands have come.
#: A power of two, so that sums are exact.
TICK = 0.25


def tailing(lab: MemoryLab, **more: Any) -> MemoryContainer:
    """Return copy 0 on host a, which stands by."""
    return lab.container("a", **more).stand_by(0, 0)


def test_first_deploy_processes_from_the_start_and_a_standby_follows(lab: MemoryLab) -> None:
    # The first that is claimed waits for the other, however long that takes.
    lab.clock.hold()
    active = lab.container("a").activate()
    standby = lab.container("b").want(1, Role.STANDBY, 1)
    active.process(100)
    assert [len(each) for each in active.feeds.made[0].starts] == [2], "both tasks start in one feed"
    standby.await_phase(Phase.TAILING)
    lab.assert_exact()
    standby.await_all(
        lambda each: (
            each.applied == len(lab.kafka.logs["changelog", each.replica.task.partition])
            and (each.role, each.lag_records, each.lag_ms) == (Role.STANDBY, 0, 0)
        )
    )
    for each in active.statuses():
        assert each.role is Role.ACTIVE
        assert each.first_commit_ms is not None
        assert each.since_ms >= lab.now_ms
        assert [*each.start_steps] == [step.value for step in StartStep]
        times = [*each.start_steps.values(), each.first_commit_ms]
        assert times == sorted(times)


def test_a_transform_of_the_same_code_is_lent_with_and_without_actives_while_it_is_warm(
    lab: MemoryLab,
) -> None:
    container = tailing(lab)
    for job, run, revision in ((JOB, "other", 1), (JOB, "run", 2), ("another job", "run", 1)):
        with pytest.raises(NotNow, match="does not run here") as caught:
            container.replicas.lent(job, run, revision)
        assert not caught.value.is_soon
    soon(lambda: container.replicas.is_warm, "it is warm")
    lent = container.replicas.lent(JOB, "run", 1)
    assert (lent.run(b"rows"), lent.is_idle) == (b"rows", True)
    first, second = (ReplicaId(task, 0) for task in lab.tasks)
    lab.name(0, 1)
    container.obey((Wanted(first, Role.ACTIVE, 1), Wanted(second, Role.STANDBY, 1)))
    container.await_all(lambda each: each.phase is (Phase.ACTIVE if each.replica == first else Phase.TAILING))
    lent = container.replicas.lent(JOB, "run", 1)
    assert (lent.run(b"rows"), lent.is_idle) == (b"rows", False), "one active is enough"


def planted(*_: object) -> Any:
    """Fail unexpectedly."""
    raise ValueError("planted")


def test_replica_that_cannot_be_stopped_ends_the_container_and_is_not_said_to_have_stopped(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    active = lab.begun()
    (job,) = active.replicas._jobs.values()
    monkeypatch.setattr(job.pipeline, "leave", planted)
    active.want(0, Role.STANDBY, 1)
    active.eventually(lambda: active.replicas.broken is not None)
    assert "could not be stopped: ValueError: planted" in (active.replicas.broken or "")
    assert not any(each.phase is Phase.CLOSED for each in active.statuses())
    active.eventually(
        lambda: any("replica-" in each.getMessage() for each in caplog.records if each.exc_info)
    )
    # A process would end; the test's has to close it after all.
    monkeypatch.undo()
    for each in active.replicas.held():
        each.broken = None
        each._worker.put(each._halt)
        each._worker.put(partial(each._carry_out, Effect.CLOSE_STORE, each._run))


def test_producer_that_cannot_be_connected_beforehand_is_reported_once(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    standby = tailing(lab)
    (job,) = standby.replicas._jobs.values()
    tries: list[int] = []

    def away(partition: int) -> Any:
        tries.append(partition)
        raise Transient("Kafka is away")

    standby.eventually(lambda: all(each._writer is not None for each in standby.replicas.held()))
    monkeypatch.setattr(job.broker, "open_writer", away)
    for each in standby.replicas.held():
        each._writer = None
    standby.want(0, Role.STANDBY, 0, is_next=True)
    standby.eventually(lambda: tries.count(0) > 3 and tries.count(1) > 3)
    told = [each for each in caplog.messages if "cannot be connected ahead: Kafka is away" in each]
    assert len(told) == 2, "once for each task"


def test_a_run_may_begin_at_the_end_of_its_input(make_lab: MakeLab) -> None:
    lab = make_lab(**{"job.start.offset": "latest"})
    lab.produce(30)
    container = lab.container("a").activate().await_processed()
    assert {each.input_committed for each in container.statuses()} == {15}
    # The claim wrote it down: the next owner goes on there, whatever the input's end is then.
    assert {each.offset for each in lab.kafka.offsets.values()} == {15}


def test_a_promotion_that_the_record_does_not_name_stops_without_fencing_anybody(lab: MemoryLab) -> None:
    lab.container("a").activate(0, 5).await_phase(Phase.ACTIVE)
    fences = dict(lab.kafka.epochs)
    other = lab.container("b").want(1, Role.ACTIVE, 4).await_phase(Phase.FENCED)
    assert lab.kafka.epochs == fences
    assert all("names copy 0 at epoch 5" in each for each in other.details)


def test_a_promotion_that_cannot_read_the_record_waits_and_fences_nobody(lab: MemoryLab) -> None:
    lab.name(0, 1)
    lab.records.is_away = True
    active = lab.container("a").want(0, Role.ACTIVE, 1)
    active.eventually(lambda: any("cannot be read" in each for each in active.details))
    assert not lab.kafka.epochs
    lab.records.is_away = False
    active.await_phase(Phase.ACTIVE)


def test_every_thread_ends_with_its_container(lab: MemoryLab) -> None:
    # By identity: a test before this one may have given up a call that hangs on a broker it had killed.
    before = set(threading.enumerate())
    active = lab.container("a")
    for epoch in range(1, 5):
        active.activate(0, epoch).await_phase(Phase.ACTIVE)
        # At once, so that some are demoted between their claim and their first batch.
        active.stand_by(0, epoch)
    active.close()
    names = ("commit-", "replica-", f"{JOB}-", "conductor")
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith(names):
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), thread.name


def test_every_producer_that_is_given_up_is_closed(lab: MemoryLab) -> None:
    """What it has not sent yet holds a real one: threads and connections, each time that a way to active fails."""
    lab.kafka.unanswered["initialise"] = 3
    active = lab.container("a").activate().process(20)
    assert lab.kafka.timed_out["initialise"] == 3
    assert [each.is_closed for each in lab.kafka.writers].count(False) == len(lab.tasks)
    active.stand_by(0, 2)
    # One is connected for the next time.
    active.replicas.obey((), {JOB: lab.definition})
    active.await_phase(Phase.CLOSED)
    assert all(each.is_closed for each in lab.kafka.writers)


def test_fenced_again_and_again_it_stops_by_itself(lab: MemoryLab) -> None:
    active = lab.begun(0)

    def fence() -> None:
        raise WriterLost("fenced by the test", fenced=True)

    lab.kafka.before_commit = fence
    lab.produce(10)
    active.await_phase(Phase.FENCED)
    assert all("fenced by the test" in each for each in active.details)
    # Opened again it may lose as many claims as before: here one of each task.
    losses = iter([True] * len(lab.tasks))

    def fence_once_more() -> None:
        if next(losses, False):
            fence()

    lab.kafka.before_commit = fence_once_more
    active.activate(0, 2).await_processed()
    lab.assert_exact()


@pytest.mark.parametrize("is_back", [True, False])
def test_an_output_without_a_leader_is_waited_for_as_long_as_the_progress_time_out(
    make_lab: MakeLab, caplog: pytest.LogCaptureFixture, is_back: bool
) -> None:
    """Nobody is fenced by it. After that another copy is tried: perhaps only this host cannot reach the partition."""
    lab = make_lab(**{"job.transaction.timeout.ms": "1000"})
    active = lab.begun()
    lab.clock.hold(*WAYS)
    began = lab.clock.monotonic()
    lab.kafka.leaderless.add(("out", 0))
    # A record for each task, which is one transaction. Its marker is not seen, so the next one does not begin.
    active.process(2)
    if is_back:
        lab.clock.later(30, lab.kafka.leaderless.clear)
        lab.produce(10)
        active.await_processed()
        lab.assert_exact()
    else:
        lab.produce(10)
        active.eventually(lambda: active.status(0).phase in (Phase.FAILED, Phase.FENCED))
        assert active.status(0).phase is Phase.FAILED
        told = "its last commit is seen in out-0 has no answer in time: reading stable ends: no leader"
        assert active.status(0).detail.endswith(told)
        assert round(lab.clock.monotonic() - began) in range(60, 70)
        assert active.status(1).phase is Phase.ACTIVE
    ways = sum(lab.kafka.epochs.values())
    assert caplog.text.count("reading stable ends: no leader") <= 2 * ways, "once for each way to active"


def test_a_broker_away_freezes_membership_and_everything_goes_on_after(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    active.eventually(lambda: not any(each.is_cut_off for each in active.statuses()))
    lab.kafka.is_away = True
    lab.now_ms += 10_000
    standby.await_all(lambda each: each.end is None and each.lag_ms is None)
    active.await_all(lambda each: each.is_cut_off)
    assert standby.are(Phase.TAILING)
    lab.kafka.is_away = False
    active.eventually(lambda: not any(each.is_cut_off for each in active.statuses()))
    active.process(50)
    standby.await_all(lambda each: each.lag_records == 0)
    lab.assert_exact()


@pytest.mark.parametrize(("disks", "end"), [(1, Phase.FAILED), (2, Phase.ACTIVE)])
def test_a_disk_on_which_a_new_database_is_broken_does_not_do(
    make_lab: MakeLab, tmp_path: Path, disks: int, end: Phase
) -> None:
    directories = [tmp_path / f"disk-{each}" for each in range(disks)]
    lab = make_lab(1, **{"job.state.dir": ",".join(map(str, directories))})
    lab.disk.corrupt.add(directories[0] / state_path("cluster", "a", lab.tasks[0], "run") / DATABASE)
    active = lab.container("a").activate().await_phase(end)
    assert end is Phase.ACTIVE or active.status().detail.endswith("rocksdb: broken")
    assert active.replicas.known().directories == tuple(directories), "strays are looked for there"


def test_a_commit_that_hangs_is_given_up_and_the_task_goes_on(lab: MemoryLab) -> None:
    lab.clock.hold()
    active = lab.begun()
    fences = dict(lab.kafka.epochs)
    hanging: list[threading.Thread] = []
    hold = Hold()

    def stall() -> None:
        if not hanging:
            hanging.append(threading.current_thread())
            hold()

    lab.kafka.before_commit = stall
    lab.produce(20)
    hold.await_reached()
    # It waits for the commit, so its deadline is known.
    lab.clock.await_looks(FEED)
    lab.clock.let_pass(COMMIT - 1, FEED)
    assert lab.kafka.epochs == fences
    lab.clock.advance(1)
    active.await_processed()
    # It comes back into a world in which its producer is fenced.
    hold.let_go()
    hanging[0].join(PATIENCE_SECONDS)
    active.process(20)
    lab.assert_exact()


def pass_time(lab: MemoryLab, seconds: float) -> None:
    """Let so much time pass since the conductor has begun to count, which it may not have done yet."""
    lab.clock.await_looks("conductor")
    lab.clock.await_looks(f"{JOB}-ends")
    lab.pass_time(TICK)
    lab.pass_time(seconds - TICK)


def breaks_after(seconds: float, container: MemoryContainer, why: str) -> None:
    """Let time pass: the container is broken after so many seconds, and not one before."""
    pass_time(container.lab, seconds)
    assert container.replicas.broken is None
    container.lab.pass_time(1)
    container.eventually(lambda: why in str(container.replicas.broken))


def test_user_code_that_never_returns_breaks_the_container(lab: MemoryLab) -> None:
    lab.clock.hold()
    hold = Hold()
    active = lab.container("a", step=hold).activate()
    lab.produce(2)
    active.await_phase(Phase.ACTIVE)
    hold.await_reached()
    active.want(0, Role.STANDBY, 2).await_phase(*set(Phase) - {Phase.ACTIVE})
    breaks_after(COMMIT + 10, active, "did not stop")
    hold.let_go()


def test_a_state_that_does_not_close_ends_the_container(lab: MemoryLab) -> None:
    """Otherwise its next holder waits for ever; with the process its lock is gone."""
    lab.clock.hold()
    standby = tailing(lab)
    lab.disk.on_flush = hold = Hold()
    standby.replicas.obey((), {JOB: lab.definition})
    # One that had not stopped yet would be given up for that, and earlier.
    standby.eventually(lambda: all(each.closing_since is not None for each in standby.replicas.held()))
    breaks_after(COMMIT + 60, standby, "did not close its state")
    hold.let_go()


def test_a_write_that_waits_for_a_disk_does_not_keep_a_replica(lab: MemoryLab) -> None:
    active = lab.begun()
    lab.disk.is_behind = True
    lab.produce(20)
    assert lab.disk.has_waited.wait(PATIENCE_SECONDS)
    # What the waiting write leaves out is in the changelog, and is replayed as soon as the disk has caught up.
    active.want(0, Role.STANDBY, 1).await_phase(Phase.RESTORING)
    active.eventually(lambda: all(each.halting_since is None for each in active.replicas.held()))
    lab.disk.is_behind = False
    active.await_phase(Phase.TAILING)
    active.activate(0, 2).process(10)
    lab.assert_exact()
    lab.disk.has_waited.clear()
    lab.disk.is_behind = True
    lab.produce(20)
    assert lab.disk.has_waited.wait(PATIENCE_SECONDS)
    active.replicas.obey((), {JOB: lab.definition})
    active.await_phase(Phase.CLOSED)


def test_a_claim_that_is_called_off_while_it_is_written_keeps_no_closed_producer(make_lab: MakeLab) -> None:
    lab = make_lab(1)

    def fall_behind(point: str) -> None:
        if point == probes.AFTER_COMMIT:
            lab.disk.is_behind = True

    replica = lab.container("a", probe=fall_behind).activate()
    assert lab.disk.has_waited.wait(PATIENCE_SECONDS)
    replica.want(0, Role.STANDBY, 1, is_next=True).await_phase(Phase.RESTORING)
    replica.eventually(lambda: all(each.halting_since is None for each in replica.replicas.held()))
    lab.disk.is_behind = False
    replica.eventually(lambda: replica.status().is_prepared)
    assert [each.is_closed for each in lab.kafka.writers] == [True, False]


def in_a_flush(lab: MemoryLab) -> tuple[MemoryContainer, Hold]:
    """Return a container with standbys whose disk does not answer to a flush until that is let go; time is held."""
    lab.clock.hold()
    standby = tailing(lab)
    lab.disk.on_flush = hold = Hold()
    lab.now_ms += 400_000
    hold.await_reached()
    return standby, hold


def test_a_promotion_that_waits_for_a_disk_ends_the_container(make_lab: MakeLab) -> None:
    """It stands in line behind a flush that does not come back, and so does not even begin."""
    # Of two tasks one may be promoted before the other's flush.
    lab = make_lab(1)
    standby, hold = in_a_flush(lab)
    standby.activate().await_phase(Phase.FENCING)
    breaks_after(COMMIT + 60, standby, "though Kafka answers")
    hold.let_go()


def test_an_active_that_commits_nothing_while_input_waits_has_failed(make_lab: MakeLab) -> None:
    lab = make_lab(**{"task.progress.timeout.ms": "10000"})
    lab.clock.hold()
    active, hold = lab.begun(10), Hold()
    (feed,) = active.feeds.made
    feed.on_look = hold
    # It brings nothing any more: it does not stand between its look and its read.
    hold.await_reached()
    lab.produce(10)
    active.eventually(lambda: {each.input_end for each in active.statuses()} == {*lab.ends().values()})
    pass_time(lab, 10)
    assert active.are(Phase.ACTIVE)
    lab.pass_time(1)
    active.await_phase(Phase.FAILED)
    assert all("nothing was committed" in each for each in active.details)
    hold.let_go()


@pytest.mark.parametrize("point", [probes.RECORD_READ, probes.CLAIMED])
def test_a_way_to_active_that_hangs_ends_the_container(make_lab: MakeLab, point: str) -> None:
    lab, hold = make_lab(1, **{"task.progress.timeout.ms": "1000"}), Hold(point)
    lab.clock.hold()
    container = lab.container("a", probe=hold).activate()
    hold.await_reached()
    breaks_after(COMMIT + 60, container, "though Kafka answers")
    hold.let_go()


def test_warming_up_gives_way_to_a_promotion(lab: MemoryLab) -> None:
    warming = threading.Event()

    def warm(cancelled: threading.Event) -> None:
        warming.set()
        cancelled.wait()

    standby = tailing(lab, script=having(on_warm=warm))
    assert warming.wait(PATIENCE_SECONDS)
    standby.activate().process(10)


def test_a_warm_pipeline_is_reported_and_kept_while_there_is_a_job(lab: MemoryLab) -> None:
    standby = lab.container("a")
    assert not standby.replicas.is_warm
    standby.replicas.obey((), {JOB: lab.definition})
    standby.eventually(lambda: standby.replicas.is_warm)
    standby.replicas.obey((), {})
    standby.eventually(lambda: standby.feeds.made[0].is_closed)
    assert not standby.replicas.is_warm


def test_a_standby_reports_what_a_start_would_take_and_an_active_does_not(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    standby.await_all(lambda each: each.start_ms == 0)
    assert all(each.start_ms is None for each in active.statuses())


@pytest.mark.parametrize("runs_in_child", [True, False])
def test_the_death_of_a_feeds_process_breaks_the_container(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch, runs_in_child: bool
) -> None:
    """And only input that it has had is blamed for it."""
    kept: list[tuple[TaskId, ...]] = []
    # It runs until its input is closed.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:

        def script(feed: MemoryFeed) -> None:
            feed.pids, feed.runs_in_child = (child.pid,), runs_in_child

        active = lab.container("a", script=script).activate().process(10)
        assert active.replicas.broken is None
        marks = active.replicas._environment.marks
        monkeypatch.setattr(marks, "_keep", lambda ran, _: kept.append(tuple(each.task for each in ran)))
        # Not waited for: a zombie is dead, too.
        child.kill()

        def is_seen() -> bool:
            # It asks, and so orders, every 10 ms.
            active.want(0, Role.ACTIVE, 1)
            return str(child.pid) in str(active.replicas.broken)

        active.eventually(is_seen)
    assert kept[-1] == (tuple(lab.tasks) if runs_in_child else ())


@pytest.mark.parametrize("runs_in_child", [True, False])
def test_only_input_that_a_child_has_had_is_blamed_for_a_feed_that_does_not_end(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch, runs_in_child: bool
) -> None:
    """For example not for a session that takes long to start."""
    lab.clock.hold()
    begun, go_on = threading.Event(), threading.Event()

    def script(feed: MemoryFeed) -> None:
        def hang() -> None:
            begun.set()
            assert go_on.wait(PATIENCE_SECONDS)

        feed.pids, feed.runs_in_child, feed.on_start = (os.getpid(),), runs_in_child, hang

    active = lab.container("a", script=script).activate()
    assert begun.wait(PATIENCE_SECONDS)
    kept: list[tuple[TaskId, ...]] = []
    marks = active.replicas._environment.marks
    monkeypatch.setattr(marks, "_keep", lambda ran, _: kept.append(tuple(each.task for each in ran)))
    active.want(0, Role.STANDBY, 2).await_phase(*set(Phase) - {Phase.ACTIVE})
    breaks_after(COMMIT + 10, active, "did not stop")
    go_on.set()
    assert bool(kept[-1]) is runs_in_child


def test_a_task_leaves_while_a_start_of_the_feed_waits_and_the_others_are_fed(lab: MemoryLab) -> None:
    begun = threading.Event()

    def script(feed: MemoryFeed) -> None:
        def wait() -> None:
            if not begun.is_set():
                begun.set()
                assert feed.called_off.wait(PATIENCE_SECONDS)
                raise StartCalledOff("by the test")

        feed.on_start = wait

    active = lab.container("a", script=script).activate()
    assert begun.wait(PATIENCE_SECONDS)
    one, two = (ReplicaId(each, 0) for each in lab.tasks)
    active.obey((Wanted(one, Role.STANDBY, 2), Wanted(two, Role.ACTIVE, 1)))
    active.eventually(lambda: active.status(0).phase is Phase.TAILING and bool(active.feeds.made[0].starts))
    assert active.feeds.made[0].starts[-1].keys() == {two.task}


def test_the_end_of_a_feeds_process_with_its_job_breaks_nothing(lab: MemoryLab) -> None:
    with ExitStack() as children:

        def script(feed: MemoryFeed) -> None:
            child = children.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
            children.callback(child.kill)
            end, feed.pids = feed.close, (child.pid,)

            def close() -> None:
                end()
                child.kill()
                child.wait()

            feed.close = close  # type: ignore[method-assign]

        standby = tailing(lab, script=script)
        standby.eventually(lambda: len(standby.feeds.made) == 1)
        # Only a child that was seen while it lived could be missed.
        lab.clock.await_looks("conductor")
        lab.definition = msgspec.structs.replace(lab.definition, run="run 2")
        standby.want(0, Role.STANDBY, 1)
        standby.eventually(lambda: len(standby.feeds.made) == 2)
        standby.await_phase(Phase.TAILING)
        lab.clock.await_looks("conductor")
        assert standby.replicas.broken is None


def test_a_feed_that_cannot_be_made_breaks_the_container(lab: MemoryLab) -> None:
    def script(feed: MemoryFeed) -> None:
        raise RuntimeError("no JVM here")

    standby = lab.container("a", script=script).want(0, Role.STANDBY, 1)
    standby.eventually(lambda: "no JVM here" in str(standby.replicas.broken))
    # It can be closed all the same: stores must be flushed.
    standby.await_phase(Phase.TAILING)
    assert standby.replicas.close(PATIENCE_SECONDS)


def test_a_changelog_that_never_gets_a_replica_anywhere_is_no_loop(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = tailing(lab)

    def outside(self: object, partition: int) -> tuple[int, int]:
        return 0, 1000

    monkeypatch.setattr("tests.fakes.kafka.MemoryBroker.changelog_bounds", outside)
    lab.kafka.starts["changelog", 0] = lab.kafka.starts["changelog", 1] = 100
    standby.await_phase(Phase.FAILED)
    told = "has nothing at 0 (or no longer): it begins at 100 and ends at 0"
    assert all(told in each for each in standby.details)


def test_a_hanging_transaction_below_the_end_is_an_error_and_no_shorter_drain(lab: MemoryLab) -> None:
    lab.clock.hold(*WAYS)
    standby = tailing(lab)
    hanging = Transaction()
    for partition in (0, 1):
        lab.kafka.logs["changelog", partition].append(Entry(b"\x06countsk", b"1", hanging))
    began = lab.clock.monotonic()
    standby.activate().await_phase(Phase.FAILED)
    waited = lab.clock.monotonic() - began
    assert waited * 1_000 > lab.config.transaction_timeout_ms, "after that a broker ends it"
    assert "changelog-0: a transaction that began at 0" in standby.status(0).detail
    assert "standfast__cluster__ledger__main__0 is fenced" in standby.status(0).detail


def test_a_hanging_transaction_that_ends_is_waited_for(lab: MemoryLab) -> None:
    lab.clock.hold()
    standby = tailing(lab)
    hanging = Transaction()
    lab.kafka.logs["changelog", 0].append(Entry(b"\x06countsk", b"41", hanging))
    standby.activate()
    standby.eventually(lambda: Phase.DRAINING in {*standby.phases})
    with lab.kafka.lock:
        hanging.outcome = True
        lab.kafka.lock.notify_all()
    standby.await_phase(Phase.ACTIVE)
    lab.kafka.append("in", 0, b"k", b"v")
    standby.await_processed()
    ((_, value),) = lab.kafka.committed_records("out", 0)
    assert (value or b"").startswith(b"42 0 ")


def test_an_idle_active_commits_its_offset_again_every_hour(lab: MemoryLab) -> None:
    active = lab.begun()
    commits: list[int] = []
    lab.kafka.before_commit = lambda: commits.append(1)
    lab.now_ms += 3_500_000
    lab.now_ms += 200_000
    active.eventually(lambda: len(commits) == len(lab.tasks))
    assert {each.offset for each in lab.kafka.offsets.values()} == {10}
    assert active.are(Phase.ACTIVE)


@pytest.mark.parametrize("then", ["loses its producer", "is demoted"])
def test_the_state_of_an_idle_active_never_becomes_too_old(make_lab: MakeLab, then: str) -> None:
    """It would have to be restored as a whole, although nobody else has written anything."""
    lab = make_lab(1, **{"job.changelog.delete.retention.ms": "60000"})
    lab.clock.hold()
    active = lab.begun()
    lab.clock.let_pass(57, f"{JOB}-ends", f"{JOB}-pipeline")
    if then == "is demoted":
        active.want(0, Role.STANDBY, 2).await_phase(Phase.TAILING)
    else:
        losses = [WriterLost("lost by the test")]

        def lose() -> None:
            if losses:
                raise losses.pop()

        lab.kafka.before_commit = lose
        active.process(10)
        assert not losses
    assert by_source(active.restores) == {"changelog": 1}


def test_an_idle_active_that_loses_its_producer_now_and_then_goes_on(make_lab: MakeLab) -> None:
    """Only losses in a row end it, and it commits its offsets every hour between."""
    lab = make_lab(1)
    losses: list[WriterLost] = []

    def lose() -> None:
        if losses:
            raise losses.pop()

    active = lab.container("a").activate().await_phase(Phase.ACTIVE)
    lab.kafka.before_commit = lose
    (held,) = active.replicas.held()

    def stands_at(ways: int, commits: int) -> bool:
        is_there = held.active is not None and (held._ways, held.active.commits) == (ways, commits)
        return active.are(Phase.FENCED) or (active.are(Phase.ACTIVE) and is_there)

    for way in range(1, 2 * FENCES):
        lab.now_ms += 3_700_000
        active.eventually(lambda way=way: stands_at(way, 2))  # type: ignore[misc]
        losses.append(WriterLost("lost by the test"))
        lab.now_ms += 3_700_000
        active.eventually(lambda way=way: stands_at(way + 1, 1))  # type: ignore[misc]
        assert active.are(Phase.ACTIVE), active.statuses()


def test_what_is_kept_of_a_clock_that_was_ahead_is_gone_once_it_is_right(
    lab: MemoryLab, tmp_path: Path
) -> None:
    """Or state would count as young for so long more, and be used when the changelog has no tombstones any more."""
    active, standby = lab.pair()
    ahead_ms = 12 * 3_600_000
    lab.now_ms += ahead_ms
    side_files = [
        tmp_path / state_path("cluster", host, task, "run") / SIDE_FILE for host in "ab" for task in lab.tasks
    ]

    def caught_up_ms() -> list[int]:
        return [decode_origin(each.read_bytes()).caught_up_ms for each in side_files]

    lab.produce(20)
    active.eventually(lambda: min(caught_up_ms()) > lab.now_ms)
    lab.now_ms -= ahead_ms
    active.eventually(lambda: max(caught_up_ms()) < lab.now_ms + ahead_ms)
    active.close()
    standby.close()
    assert max(caught_up_ms()) <= lab.clock.now_ms()


def test_a_full_disk_is_not_flushed_to_at_each_look(lab: MemoryLab, caplog: pytest.LogCaptureFixture) -> None:
    lab.clock.hold()
    active = lab.begun()
    # A new state is flushed at the first look, which must not find all that there will be.
    lab.pass_time(TICK)
    replicas = active.replicas.held()
    assert all(each._worker.flush(PATIENCE_SECONDS) for each in replicas)
    active.process(20)
    lab.disk.is_full = True
    lab.now_ms += 1_000_000
    for each in replicas:
        for _ in range(20):
            each.flush_if_due(lab.clock.now_ms())
    # What was asked of them is done.
    assert all(each._worker.flush(PATIENCE_SECONDS) for each in replicas)
    assert sum("flushing" in each for each in caplog.messages) == len(lab.tasks)


def test_a_disk_that_does_not_answer_is_asked_for_one_flush(make_lab: MakeLab) -> None:
    """Or one more for each look would wait for it: a container beside such a disk would grow for days."""
    lab = make_lab(1)
    standby, hold = in_a_flush(lab)
    lab.pass_time(10 * TICK)
    (held,) = standby.replicas.held()
    waits_for_more = held._worker.has_commands
    hold.let_go()
    assert not waits_for_more


def test_a_revoked_replica_is_reported_closed_until_the_next_order(lab: MemoryLab) -> None:
    standby = tailing(lab)
    standby.replicas.obey((), {JOB: lab.definition})
    standby.await_phase(Phase.CLOSED)
    standby.replicas.obey((), {JOB: lab.definition})
    standby.eventually(lambda: standby.statuses() == [])
    standby.stand_by(1, 2)


def test_a_job_created_again_runs_as_it_is_defined_now(lab: MemoryLab) -> None:
    standby = tailing(lab)
    config = {**lab.definition.config, "task.batch.max.records": "9"}
    lab.definition = type(lab.definition)(JOB, "run 2", config, "changelog", "group", 2, revision=4)
    standby.want(0, Role.STANDBY, 1)
    standby.eventually(lambda: len(standby.feeds.made) == 2 and standby.feeds.made[0].is_closed)
    standby.await_phase(Phase.TAILING)
    assert standby.replicas.revisions == {JOB: 4}


def test_a_job_that_does_not_close_keeps_no_other_job_from_its_next_run(lab: MemoryLab) -> None:
    """The jobs of a container were closed by one thread, one after the other."""
    lab.clock.hold()
    container, hold = lab.container("a"), Hold()

    def runs(run: str) -> dict[str, JobDefinition]:
        return {
            name: msgspec.structs.replace(lab.definition, name=name, run=run) for name in ("another", JOB)
        }

    def running() -> dict[str, str]:
        return {name: job.definition.run for name, job in container.replicas._jobs.items()}

    container.replicas.obey((), runs("run"))
    container.eventually(lambda: running().keys() == {"another", JOB} and len(container.feeds.made) == 2)
    closed = container.replicas._jobs["another"].pipeline._effects.feed
    assert isinstance(closed, MemoryFeed)
    closed.close = hold  # type: ignore[method-assign]
    container.replicas.obey((), runs("run 2"))
    container.eventually(lambda: running() == {JOB: "run 2"})
    # Its own next run cannot begin in this process.
    breaks_after(COMMIT + 60, container, "job another did not close within")
    hold.let_go()


def test_the_same_run_and_revision_is_the_same_whatever_else_differs(lab: MemoryLab) -> None:
    # Both tasks start in one feed, however long the second takes.
    lab.clock.hold()
    active = lab.begun()
    since = {each.replica: each.since_ms for each in active.statuses()}
    config = {**lab.definition.config, "job.hotstandby.lag.time.ms": "9999"}
    lab.definition = type(lab.definition)(JOB, "run", config, "changelog", "group", 7)
    active.want(0, Role.ACTIVE, 1).eventually(lambda: active.replicas._jobs[JOB].definition.tasks == 7)
    active.process(20)
    assert {each.replica: each.since_ms for each in active.statuses()} == since, "nothing was closed"
    assert [len(each.starts) for each in active.feeds.made] == [1]


def test_another_revision_of_what_is_loaded_is_ignored_and_the_old_one_goes_on(
    lab: MemoryLab, caplog: pytest.LogCaptureFixture
) -> None:
    active = lab.begun()
    first = lab.definition
    lab.definition = msgspec.structs.replace(first, revision=2, code="c0de")
    for _ in range(3):
        active.want(0, Role.ACTIVE, 1)
        # Each order is taken by itself; of several that wait only the last one counts.
        lab.clock.await_looks("conductor")
    active.process(20)
    assert active.replicas.revisions == {JOB: 1}
    assert active.replicas._jobs[JOB].definition == first
    assert len(active.feeds.made) == 1
    told = f"job {JOB}: revision 2 of run run is ignored: this process has loaded revision 1 of run run"
    ignored = [each for each in caplog.messages if "is ignored" in each]
    assert ignored == [f"{told}, and cannot load another one's code"]
    # Also once nothing of the job is held any more: Python has its modules.
    active.replicas.obey((), {})
    active.eventually(lambda: not active.replicas._jobs)
    active.want(0, Role.ACTIVE, 1)
    lab.definition = first
    active.replicas.obey((), {})
    active.want(0, Role.ACTIVE, 1).await_processed()
    assert active.replicas.revisions == {JOB: 1}
    assert len(active.feeds.made) == 2, "none for the other revision"
    lab.assert_exact()


def test_a_job_created_again_with_other_code_is_closed_and_not_opened(lab: MemoryLab) -> None:
    standby = tailing(lab)
    lab.definition = msgspec.structs.replace(lab.definition, run="run 2", code="c0de")
    standby.want(0, Role.STANDBY, 1)
    standby.eventually(lambda: standby.statuses() == [] and standby.feeds.made[0].is_closed)
    # The new run's revision has the same number. The leader took the container for one that can run it.
    standby.eventually(lambda: standby.replicas.revisions == {JOB: 0})
    assert standby.replicas.broken is None
    assert len(standby.feeds.made) == 1


def test_code_is_loaded_once_before_anything_of_the_job_and_tried_again_while_zookeeper_is_away(
    lab: MemoryLab,
) -> None:
    loads, hold = list[str](), Hold()

    def load(definition: JobDefinition) -> None:
        loads.append(definition.code)
        if len(loads) == 1:
            raise Transient("no ZooKeeper")
        hold()

    lab.definition = msgspec.structs.replace(lab.definition, revision=3, code="c0de")
    active = lab.container("a", load_code=load).activate()
    hold.await_reached()
    assert (active.replicas.revisions, active.statuses(), active.feeds.made) == ({}, [], [])
    hold.let_go()
    active.process(20)
    assert active.replicas.revisions == {JOB: 3}
    active.replicas.obey((), {})
    active.eventually(lambda: not active.replicas._jobs)
    active.want(0, Role.ACTIVE, 1).await_processed()
    assert loads == ["c0de", "c0de"], "once for good"


def test_code_that_cannot_be_had_ends_the_container_naming_the_job(lab: MemoryLab) -> None:
    def load(definition: JobDefinition) -> None:
        raise BadConfiguration(f"there is no bundle {definition.code}")

    lab.definition = msgspec.structs.replace(lab.definition, code="c0de")
    standby = lab.container("a", load_code=load).want(0, Role.STANDBY, 1)
    standby.eventually(lambda: standby.replicas.broken is not None)
    assert standby.replicas.broken == f"job {JOB}: there is no bundle c0de"


def test_code_that_cannot_be_had_and_is_not_wanted_any_more_ends_nothing(lab: MemoryLab) -> None:
    hold = Hold()

    def load(definition: JobDefinition) -> None:
        if definition.revision == 1:
            hold()
            raise BadConfiguration("there is no such bundle")

    active = lab.container("a", load_code=load).activate()
    hold.await_reached()
    lab.definition = msgspec.structs.replace(lab.definition, revision=2, code="c0de")
    active.activate()
    hold.let_go()
    active.process(20)
    assert active.replicas.revisions == {JOB: 2}


def test_who_holds_a_store_is_reported_and_an_active_does_not_wait_for_ever(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    lab = make_lab(**{"task.progress.timeout.ms": "1000"})
    lab.clock.hold()
    first, second = lab.container("a"), lab.container("b")
    # As when the second host's directory is a link to the first one's.
    for task in lab.tasks:
        shared, own = (tmp_path / state_path("cluster", host, task, "run") for host in ("b", "a"))
        shared.parent.mkdir(parents=True, exist_ok=True)
        shared.symlink_to(own)
    first.stand_by(0, 1)
    lab.name(1, 1)
    second.want(1, Role.STANDBY, 1)
    told = "is in use by a container of host a (process"
    second.eventually(lambda: len(second.statuses()) == 2 and all(told in each for each in second.details))
    assert all("must not be shared by several hosts" in each for each in second.details)
    assert all(f"waiting: {each.waits_for}" == each.detail for each in second.statuses())
    second.want(1, Role.ACTIVE, 1)
    second.eventually(lambda: {each.role for each in second.statuses()} == {Role.ACTIVE})
    for task in lab.tasks:
        lab.clock.await_looks(f"replica-{ReplicaId(task, 1)}")
    lab.clock.advance(COMMIT + 60)
    assert second.are(Phase.OPENING)
    lab.clock.advance(1)
    second.eventually(lambda: second.are(Phase.FAILED))
    assert all(told in each for each in second.details)
    assert first.are(Phase.TAILING)


def test_a_feed_that_brings_nothing_of_a_partition_any_more_is_begun_anew_but_not_for_a_step_that_takes_long(
    lab: MemoryLab,
) -> None:
    """After how long it is begun anew: `tests/unit/standby/feeding/test_core.py`."""
    lab.clock.hold()
    takes_long = iter((True,))

    def step(rows: Any, state: Any, out: Any) -> None:
        if next(takes_long, False):
            lab.clock.let_pass(2 * DEAF, f"{JOB}-ends", f"{JOB}-pipeline")
        ledger_job.step(rows, state, out)

    active = lab.begun(100, script=having(batch=20), step=step)
    (feed,) = active.feeds.made
    assert len(feed.starts) == 1
    feed.deaf.add(0)
    lab.produce(100)
    active.pass_time_until(active.is_processed)
    lab.assert_exact()
    assert len(feed.starts) == 2
