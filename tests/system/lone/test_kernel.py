"""The kernel on a real broker: exact whatever dies where, one owner at a time, and left-over state."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from standby.kernel import probes
from standby.replica.store.keys import prefix
from standby.replica.store.origin import SIDE_FILE
from standby.shared.model import Phase, Role
from tests.fakes.records import MemoryRecords
from tests.kernel_lab import Lab, Transactions
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.deaths import Death, StartChild, named, succeed_one_that_dies_in_a_batch

#: Points a batch passes, with the passing that is deadly: in the midst of the run, not at its first step.
IN_A_BATCH = (
    (probes.BEFORE_COMMIT, 5),
    # Committed, and in the midst of the write, or of what comes after it.
    (probes.STORE_BATCH, 6, {"goes_on": True}),
    # Exactly one of the tasks: two claims and one batch are committed, and no task gets further than that.
    (probes.TASK_COMMITTED, 1, {"hold_at": probes.BEFORE_COMMIT, "hold_from": 4, "delay_ms": 50}),
)

#: Points on the way to active; two tasks pass them side by side.
ON_THE_WAY = ((probes.WRITER_INITIALISED, 2), (probes.CLAIMED, 1))


@pytest.fixture
def lab(kafka_bootstrap: str, tmp_path: Path) -> Lab:
    return Lab(kafka_bootstrap, tmp_path)


@pytest.mark.parametrize("death", IN_A_BATCH, ids=named)
def test_exact_when_the_active_dies_in_a_batch(lab: Lab, start_child: StartChild, death: Death) -> None:
    succeed_one_that_dies_in_a_batch(lab, start_child, death)


@pytest.mark.parametrize(("point", "hit"), ON_THE_WAY)
def test_exact_when_a_promotion_dies(lab: Lab, start_child: StartChild, point: str, hit: int) -> None:
    lab.name(0, 1)
    first = lab.local("host-a")
    with first:
        first.want(0, Role.ACTIVE, 1)
        doomed = start_child(lab, "host-b", kill_at=point, hit=hit)
        doomed.want(1, Role.STANDBY, 1)
        lab.produce(300)
        first.await_processed()
        doomed.await_phase(Phase.TAILING)
        lab.promote(doomed, 1, 2)
        assert doomed.await_death() == -signal.SIGKILL
        lab.produce(100)
        # The next decision falls back on the first, which may or may not have noticed that it was fenced.
        lab.promote(first, 0, 3)
        first.await_processed()
    lab.assert_exact()
    lab.assert_local_state("host-a")


def test_a_zombie_writes_nothing_and_steps_down_by_itself(lab: Lab) -> None:
    stop, go = threading.Event(), threading.Event()

    def stall(point: str) -> None:
        # As a stopped process: in an open transaction, its records already with the broker.
        if point == probes.BEFORE_COMMIT and stop.is_set():
            assert go.wait(PATIENCE_SECONDS)

    with lab.local("host-a", stall) as zombie, lab.local("host-b") as successor:
        lab.settle(zombie, successor)
        stop.set()
        lab.produce(200)
        lab.promote(successor, 1, 2)
        successor.await_processed()
        go.set()
        # Its own commits tell it, or the newer claim; no order comes.
        lab.produce(100)
        zombie.await_phase(Phase.FENCED)
        assert all("at epoch 2" in each.detail for each in zombie.statuses().values())
        successor.await_processed()
        # Ordered to its new role, it is a standby again.
        zombie.want(0, Role.STANDBY, 2)
        zombie.await_phase(Phase.TAILING)
    lab.assert_exact()
    lab.assert_local_state("host-a")
    lab.assert_local_state("host-b")


@pytest.mark.parametrize("step", [probes.RECORD_READ, probes.DRAINED])
def test_a_stalled_promotee_stops_at_the_newer_claim(lab: Lab, step: str) -> None:
    """Its view of the records is stale for good: only the epoch in offsets and changelog can stop it."""
    stalled, go = threading.Semaphore(0), threading.Event()

    def stall(point: str) -> None:
        if point == step:
            stalled.release()
            assert go.wait(PATIENCE_SECONDS)

    old_records = MemoryRecords()
    for task in lab.task_ids:
        old_records.name(task, 1, 2)
    lab.name(0, 3)
    with lab.local("host-b", stall, old_records) as promotee, lab.local("host-a") as rightful:
        promotee.want(1, Role.ACTIVE, 2)
        for _ in lab.task_ids:
            assert stalled.acquire(timeout=PATIENCE_SECONDS)
        rightful.want(0, Role.ACTIVE, 3)
        lab.produce(200)
        rightful.await_processed()
        go.set()
        promotee.await_phase(Phase.FENCED)
        assert all("at epoch 3, newer than 2" in each.detail for each in promotee.statuses().values())
        # The promotee has fenced the rightful active, which finds its way back by itself.
        lab.produce(200)
        rightful.await_processed()
        assert {each.epoch for each in rightful.statuses().values()} == {3}
    lab.assert_exact()


K = prefix("counts") + b"k"

#: What the changelog ends with: transactions, with whether they were committed; and what the key is then.
TAILS: tuple[tuple[Transactions, bytes | None], ...] = (
    # A commit's marker.
    ([([(K, b"1")], True)], b"1"),
    ([([(K, b"1")], True), ([(K, b"2")], False)], b"1"),
    # An abort of nothing.
    ([([(K, b"1"), (K, None)], True), ([], False)], None),
    ([([(K, b"2")], False)], None),
    ([], None),
)


def test_any_changelog_tail_is_replayed_to_its_end(kafka_bootstrap: str, tmp_path: Path) -> None:
    """And a standby can be promoted from there: the drain passes the same tail."""
    lab = Lab(kafka_bootstrap, tmp_path, tasks=len(TAILS))
    ends = {}
    for partition, (tail, _) in enumerate(TAILS):
        lab.raw_changelog(tail, partition)
        ends[partition] = sum(len(records) + bool(records) for records, _ in tail)
    with lab.local("host-a") as container:
        container.want(0, Role.STANDBY, 1)
        container.await_phase(Phase.TAILING)
        container.await_all(
            lambda each: each.end == each.applied == ends[each.replica.task.partition] and each.lag_ms == 0
        )
        assert all(each.lag_records == 0 for each in container.statuses().values())
        lab.name(0, 2)
        container.want(0, Role.ACTIVE, 2)
        container.await_phase(Phase.ACTIVE)
        found = {}
        for held in container.replicas.held():
            assert held.active is not None
            found[held.replica.id.task.partition] = held.active.store.get_many([K])
        assert found == {partition: [expected] for partition, (_, expected) in enumerate(TAILS)}


def test_left_over_state_is_used_and_that_of_another_run_is_not(lab: Lab) -> None:
    with lab.local("host-a") as container:
        lab.promote(container, 0, 1)
        lab.produce(300)
        container.await_processed()
    replayed: list[str] = []

    def note(point: str) -> None:
        if point == probes.STORE_BATCH:
            replayed.append(point)

    sides = [lab.state_of("host-a", task) / SIDE_FILE for task in lab.task_ids]
    offsets = [json.loads(each.read_text())["offset"] for each in sides]
    assert all(offsets)
    with lab.local("host-a", note) as container:
        container.want(0, Role.STANDBY, 1)
        container.await_phase(Phase.TAILING)
        # Only the last commit's marker lies beyond the position: one batch without records for each task.
        assert len(replayed) == lab.tasks
    for each in sides:
        each.write_text(each.read_text().replace("run-1", "run-0"))
    marker = lab.state_of("host-a", lab.task_ids[0]) / "of-the-old-run"
    marker.touch()
    with lab.local("host-a") as container:
        container.want(0, Role.STANDBY, 1)
        container.await_phase(Phase.TAILING)
        assert not marker.exists(), "the directory of another run was not wiped"
    lab.assert_local_state("host-a")


def test_a_changelog_cut_off_below_the_position_is_never_restored_from(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    # A purely compacted topic cannot be cut; somebody's operations may have made it another.
    lab = Lab(kafka_bootstrap, tmp_path, changelog_policy="compact,delete")
    told = f"changelog {lab.definition.changelog}-0 has lost its beginning: it begins at offset"
    with lab.local("host-a") as active, lab.local("host-b") as standby:
        lab.settle(active, standby)
        standby.close()
        marks = [lab.state_of("host-b", task) / "not-wiped" for task in lab.task_ids]
        for each in marks:
            each.touch()
        lab.produce(200)
        active.await_processed()
        end = next(each.applied for each in active.statuses().values() if each.replica.task.partition == 0)
        assert end is not None
        for future in lab.admin.delete_records([TopicPartition(lab.definition.changelog, 0, end)]).values():
            future.result(PATIENCE_SECONDS)
        with lab.local("host-b") as again:
            again.want(1, Role.STANDBY, 1)
            again.await_all(
                lambda each: (
                    told in each.detail if each.replica.task.partition == 0 else each.lag_records == 0
                )
            )
            assert all(each.exists() for each in marks), "what there is of the state is left alone"
            # The active's state is whole.
            lab.produce(50)
            active.await_processed()
    outputs = lab.committed_records(f"{lab.definition.name}-out")
    lab.produce(50)
    with lab.local("host-c") as without_state:
        lab.promote(without_state, 2, 2)
        without_state.await_all(
            lambda each: (
                each.phase is Phase.FAILED and told in each.detail
                if each.replica.task.partition == 0
                else each.phase is Phase.ACTIVE
            )
        )

    def of_first(records: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        return [each for each in records if each[0].startswith(b"0/")]

    assert of_first(lab.committed_records(f"{lab.definition.name}-out")) == of_first(outputs)
