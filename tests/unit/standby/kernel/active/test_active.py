"""An active that is given up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from standby.kernel.active.active import ActiveTask, Claim, Hooks, Seen
from standby.kernel.ports import WriterLost
from standby.kernel.probes import AFTER_COMMIT
from standby.kernel.store.store import TaskStore
from standby.model import Offsets
from tests.memory_lab import MemoryLab
from tests.patience import PATIENCE_SECONDS


class Store:
    """Takes note of what reaches it; for `standby.kernel.store.store.TaskStore`."""

    def __init__(self) -> None:
        self.positions: list[int] = []

    def apply(self, changes: object, position: int, now_ms: int) -> None:
        self.positions.append(position)


@pytest.mark.parametrize("is_given_up", [True, False])
def test_nothing_reaches_the_store_after_the_task_was_given_up(tmp_path: Path, is_given_up: bool) -> None:
    """Another one may have it by then, and finds the changes in the changelog (rule `commit-first`)."""
    lab, store = MemoryLab(tmp_path, 1), Store()
    committed, go_on = threading.Event(), threading.Event()
    workers: list[threading.Thread] = []

    def stall(point: str) -> None:
        if point == AFTER_COMMIT:
            workers.append(threading.current_thread())
            committed.set()
            assert go_on.wait(PATIENCE_SECONDS)

    broker = lab.kafka.connect("cluster", lab.config, lab.definition)
    writer = broker.open_writer(0)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    hooks = Hooks(lambda *_: None, lab.clock, stall, Seen(broker, ("changelog", 0), PATIENCE_SECONDS))
    claim = Claim(1, "run", Offsets.of(0))
    active = ActiveTask(lab.tasks[0], writer, cast("TaskStore", cast("Any", store)), claim, hooks)
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
