"""A batch that a feed brings again after it failed half-way, as Spark may: never committed twice."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from standby.feed.batches import ROWS_OF_SEVERAL
from standby.kernel.pipeline.batch import TaskFailed
from standby.kernel.pipeline.repeats import uncommitted
from standby.kernel.ports import WriterLost
from standby.ports import Deliver, TaskBatch
from standby.shared.model import Offsets, Phase, TaskId
from tests.fakes.feed import MemoryFeed
from tests.memory_lab import MakeLab

if TYPE_CHECKING:
    from standby.kernel.active.active import ActiveTask

TASK = TaskId("j", "main", 0)

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
            positions: Mapping[TaskId, Offsets],
            deliver: Deliver,
            until: Mapping[TaskId, Offsets] | None = None,
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
        where = (feed._inputs[0], batch.task.partition)
        end = feed._end(where, None)
        rows = feed._rows(where, batch.start.total, end)
        return TaskBatch(batch.task, batch.start, Offsets.of(end), rows)


@pytest.mark.parametrize("is_larger", [False, True], ids=["same", "larger"])
@pytest.mark.parametrize("where", WHERE)
def test_what_is_committed_of_a_batch_that_comes_again_is_left_out(
    make_lab: MakeLab, caplog: pytest.LogCaptureFixture, where: str, is_larger: bool
) -> None:
    lab, again, lock = make_lab(), Again(is_larger=is_larger), threading.Lock()
    armed: list[str] = []

    def strike(now: str) -> None:
        with lock:
            if now not in armed:
                return
            armed.remove(now)
        raise WriterLost(f"{now} the commit")

    lab.kafka.before_commit = lambda: strike("before")
    lab.kafka.after_commit = lambda: strike("after")
    active = lab.container("a", script=again).activate().await_phase(Phase.ACTIVE)
    # Each round one of the two tasks fails, whichever commits first.
    for _ in range(4):
        with lab.kafka.lock:
            lab.produce(20)
            armed.append(where)
        active.await_processed()
        active.eventually(lambda: not armed)
    lab.assert_exact()
    assert again.repeated, "nothing came again"
    assert not [each for each in caplog.records if "BrokenInvariant" in each.getMessage()]
    assert any("delivered input" in each.getMessage() for each in caplog.records)


def test_what_comes_again_of_two_inputs_is_left_out_input_by_input() -> None:
    def batch(start: Offsets, end: Offsets) -> TaskBatch:
        places = [("a", each) for each in range(start.each[0], end.each[0])]
        places += [("b", each) for each in range(start.each[1], end.each[1])]
        columns = {
            "key": [None] * len(places),
            "value": [None] * len(places),
            "timestamp": [0] * len(places),
            "_task": [0] * len(places),
            "_offset": [offset for _, offset in places],
            "_topic": [topic for topic, _ in places],
        }
        return TaskBatch(TASK, start, end, pa.table(columns, schema=ROWS_OF_SEVERAL))

    active = cast("ActiveTask", SimpleNamespace(committed=Offsets.of(3, 1)))
    at = Offsets.of

    def rest(start: Offsets, end: Offsets) -> tuple[TaskBatch, ...]:
        return uncommitted([batch(start, end)], {TASK: active}, ("a", "b"))

    assert rest(at(1, 0), at(3, 1)) == ()
    (left,) = rest(at(1, 0), at(4, 3))
    assert (left.start, left.end) == (at(3, 1), at(4, 3))
    assert left.rows.column("_offset").to_pylist() == [3, 1, 2]
    # It reaches less far in one of them than what is committed by now.
    (left,) = rest(at(1, 0), at(2, 3))
    assert (left.start, left.end) == (at(3, 1), at(3, 3))
    assert left.rows.column("_offset").to_pylist() == [1, 2]
    # Ahead in one of them: a gap, which whoever runs it refuses.
    (left,) = rest(at(1, 2), at(4, 3))
    assert left.start == at(1, 2)
