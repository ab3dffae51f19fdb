"""A batch that does not begin where its task has committed never reaches the job's step (rule `whole-batch`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from standby.errors import BrokenInvariant
from standby.ports import Deliver, TaskBatch
from standby.shared.model import Offsets, Phase, TaskId
from tests.fakes import ledger_job
from tests.fakes.feed import MemoryFeed
from tests.memory_lab import MakeLab


class Repeating:
    """A feed's script: the first batch is delivered again after it was committed."""

    def __init__(self) -> None:
        self.refused: list[tuple[TaskBatch, ...]] = []

    def __call__(self, feed: MemoryFeed) -> None:
        start = feed.start

        def start_repeating(
            positions: Mapping[TaskId, Offsets],
            deliver: Deliver,
            until: Mapping[TaskId, Offsets] | None = None,
        ) -> None:
            def twice(batches: tuple[TaskBatch, ...]) -> None:
                deliver(batches)
                if not self.refused:
                    self.refused.append(batches)
                    with pytest.raises(BrokenInvariant, match=r"a batch of \[0, \d+\), but the task is at"):
                        deliver(batches)

            start(positions, twice, until)

        feed.start = start_repeating  # type: ignore[method-assign]


def test_a_batch_that_is_committed_already_is_refused_before_the_step_sees_it(make_lab: MakeLab) -> None:
    lab, repeating, lock = make_lab(), Repeating(), threading.Lock()
    seen: list[tuple[int, int]] = []

    def noting(rows: Any, state: Any, out: Any) -> None:
        with lock:
            seen.extend(zip(rows["_task"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
        ledger_job.step(rows, state, out)

    active = lab.container("a", script=repeating, step=noting).activate().await_phase(Phase.ACTIVE)
    active.process(40)
    assert repeating.refused, "nothing came again"
    assert len(seen) == len(set(seen)), "the step was called twice with the same input"
    lab.assert_exact()
