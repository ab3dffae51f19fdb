"""What an active leaves behind when a commit does not go well."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from standby.kernel.active.active import ActiveHooks, ActiveTask, Claim, MarkerLookup
from standby.kernel.active.stall_detectors import InputStallDetector
from standby.kernel.ports import RecordTooLarge, WriterLost
from standby.kernel.probes import AFTER_COMMIT, Probe, no_probe
from standby.kernel.replay.ends import EndOffset
from standby.kernel.store.store import TaskStore
from standby.replica.outbox import Emitted, Outputs
from standby.replica.store.overlay import Changes
from standby.shared.model import Offsets
from tests.memory_lab import MakeLab, MemoryLab
from tests.patience import PATIENCE_SECONDS


class Store:
    """Takes note of what reaches it; for `standby.kernel.store.store.TaskStore`."""

    def __init__(self) -> None:
        self.positions: list[int] = []

    def apply(self, changes: object, position: int, now_ms: int) -> None:
        self.positions.append(position)


@pytest.fixture
def lab(make_lab: MakeLab) -> MemoryLab:
    return make_lab(1)


def active_on(lab: MemoryLab, store: Store, probe: Probe = no_probe) -> ActiveTask:
    broker = lab.kafka.connect("cluster", lab.config, lab.definition)
    writer = broker.open_writer(0)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    hooks = ActiveHooks(
        lambda *_: None, lab.clock, probe, MarkerLookup(broker, ("changelog", 0), PATIENCE_SECONDS)
    )
    claim = Claim(1, "run", Offsets.of(0))
    return ActiveTask(lab.tasks[0], writer, cast("TaskStore", cast("Any", store)), claim, hooks)


@pytest.mark.parametrize("is_given_up", [True, False])
def test_nothing_reaches_the_store_after_the_task_was_given_up(lab: MemoryLab, is_given_up: bool) -> None:
    """Another one may have it by then, and finds the changes in the changelog (rule `commit-first`)."""
    store, workers = Store(), list[threading.Thread]()
    committed, go_on = threading.Event(), threading.Event()

    def stall(point: str) -> None:
        if point == AFTER_COMMIT:
            workers.append(threading.current_thread())
            committed.set()
            assert go_on.wait(PATIENCE_SECONDS)

    active = active_on(lab, store, stall)
    outcome = active.claim()
    assert committed.wait(PATIENCE_SECONDS)
    if is_given_up:
        active.abandon()
        with pytest.raises(WriterLost, match="given up"):
            outcome.result(PATIENCE_SECONDS)
    go_on.set()
    if not is_given_up:
        outcome.result(PATIENCE_SECONDS)
        active.abandon()
    workers[0].join(PATIENCE_SECONDS)
    assert not workers[0].is_alive()
    assert len(store.positions) == (0 if is_given_up else 1)


def test_a_record_that_is_refused_leaves_no_transaction_open(lab: MemoryLab) -> None:
    """Readers of what it has written so far, perhaps beside other tasks, would stand still until it times out."""
    lab.kafka.largest = {"out": 1_000}
    active = active_on(lab, Store())
    outputs = Outputs.of(Emitted("out", b"k", each) for each in (b"small", bytes(2_000)))
    with pytest.raises(RecordTooLarge):
        active.commit(Offsets.of(0), Offsets.of(2), outputs, {}).result(PATIENCE_SECONDS)
    active.abandon()
    assert not lab.kafka.open
    assert lab.kafka.committed_records("out", 0) == []
    assert lab.kafka.stable_end(("out", 0)) == len(lab.kafka.logs["out", 0]) > 0


@pytest.mark.parametrize(("hook", "committed"), [("before_commit", 0), ("after_commit", 1)])
def test_nothing_is_committed_after_an_unknown_outcome(lab: MemoryLab, hook: str, committed: int) -> None:
    """Only the way to active finds out what came of it; until then the store has none of it."""
    store = Store()
    active = active_on(lab, store)
    changes: Changes = {b"\1sk": b"v"}
    batch = Offsets.of(0), Offsets.of(2), Outputs.of([Emitted("out", b"k", b"v")]), changes
    setattr(lab.kafka, hook, lambda: raise_lost(hook))
    with pytest.raises(WriterLost, match=hook):
        active.commit(*batch).result(PATIENCE_SECONDS)
    setattr(lab.kafka, hook, lambda: None)
    with pytest.raises(WriterLost, match="a commit failed before"):
        active.commit(*batch).result(PATIENCE_SECONDS)
    active.abandon()
    assert len(lab.kafka.committed_records("out", 0)) == committed
    assert store.positions == []
    assert active.committed == Offsets.of(0)


def raise_lost(where: str) -> None:
    raise WriterLost(where)


def test_offsets_that_are_committed_again_are_no_progress(lab: MemoryLab) -> None:
    """Once an hour they are; an active of which more than an hour is expected would never be found stuck."""
    active, progress, hours = active_on(lab, Store()), InputStallDetector(), iter(range(100))
    offsets, end = Offsets.of(0), EndOffset(10, 0)
    active.claim().result(PATIENCE_SECONDS)

    def is_stuck() -> bool:
        return progress.is_stuck(active, end, 3_600.0 * next(hours), 2.5 * 3_600)

    def stuck_for_hours() -> list[bool]:
        found = []
        for _ in range(4):
            found.append(is_stuck())
            active.claim().result(PATIENCE_SECONDS)
            lab.now_ms += 3_600_000
        return found

    assert stuck_for_hours() == [False, False, False, True]
    # The first part of what one record brings.
    active.commit(offsets, offsets, Outputs(), {b"key": b"value"}).result(PATIENCE_SECONDS)
    assert stuck_for_hours() == [False, False, False, True]
    active.commit(offsets, Offsets.of(1), Outputs(), {}).result(PATIENCE_SECONDS)
    assert stuck_for_hours() == [False, False, False, True]
    active.abandon()
