"""A batch that a feed brings again after it failed half-way, as Spark may: never committed twice."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from standby.kernel.batch import TaskFailed
from standby.kernel.ports import WriterLost
from standby.model import Phase, Role, TaskId
from standby.ports import Deliver, TaskBatch
from tests.fakes.feed import MemoryFeed
from tests.memory_lab import MemoryLab

#: Where the commit of one task's part fails: it did not happen, or nobody knows.
WHERE = ("before", "after")


class Again:
    """A feed's script: a batch that failed is delivered again, with more input where ``is_larger``."""

    def __init__(self, *, is_larger: bool) -> None:
        self._is_larger = is_larger
        self.repeated: list[tuple[TaskBatch, ...]] = []

    def __call__(self, feed: MemoryFeed) -> None:
        start = feed.start

        def start_again(
            positions: Mapping[TaskId, int], deliver: Deliver, until: Mapping[TaskId, int] | None = None
        ) -> None:
            def insist(batches: tuple[TaskBatch, ...]) -> None:
                try:
                    deliver(batches)
                except TaskFailed:
                    more = tuple(self._grown(feed, each) if self._is_larger else each for each in batches)
                    self.repeated.append(more)
                    deliver(more)

            start(positions, insist, until)

        feed.start = start_again  # type: ignore[method-assign]

    @staticmethod
    def _grown(feed: MemoryFeed, batch: TaskBatch) -> TaskBatch:
        end = feed._end(batch.task, None)
        return TaskBatch(batch.task, batch.start, end, feed._rows(batch.task.partition, batch.start, end))


@pytest.mark.parametrize("is_larger", [False, True], ids=["same", "larger"])
@pytest.mark.parametrize("where", WHERE)
def test_what_is_committed_of_a_batch_that_comes_again_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str, is_larger: bool
) -> None:
    lab, again, lock = MemoryLab(tmp_path), Again(is_larger=is_larger), threading.Lock()
    armed: list[str] = []

    def strike(now: str) -> None:
        with lock:
            if now not in armed:
                return
            armed.remove(now)
        raise WriterLost(f"{now} the commit")

    lab.kafka.before_commit = lambda: strike("before")
    lab.kafka.after_commit = lambda: strike("after")
    lab.name(0, 1)
    active = lab.container("a", script=again)
    active.want(0, Role.ACTIVE, 1)
    active.await_phase(Phase.ACTIVE)
    # Each round one of the two tasks fails, whichever commits first.
    for _ in range(4):
        with lab.kafka.lock:
            lab.produce(20)
            armed.append(where)
        active.await_processed()
        active.eventually(lambda: not armed)
    lab.assert_exact()
    assert again.repeated, "nothing came again"
    assert not [each for each in caplog.records if "BrokenLaw" in each.getMessage()]
    assert any("brought input again" in each.getMessage() for each in caplog.records)
    active.close()
