"""Where a batch may begin (rule `whole-batch`), and where it may be parted."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from standby.errors import BrokenInvariant
from standby.kernel.active.throughput import Throughput
from standby.kernel.marks import Marks
from standby.kernel.pipeline.batch import BatchRunner
from standby.kernel.pipeline.parts import head_rows, rows_before, split_part
from standby.kernel.probes import no_probe
from standby.ports import Deliver, TaskBatch
from standby.replica.outbox import Outputs
from standby.replica.store.overlay import BatchState, Changes, Postponed
from standby.shared.model import Offsets, StartStep, TaskId
from tests.fakes import ledger_job
from tests.fakes.clock import HandClock
from tests.fakes.feed import MemoryFeed
from tests.fakes.jobs import job_config
from tests.memory_lab import MakeLab


def test_a_batch_that_is_committed_already_is_refused_before_the_step_sees_it(make_lab: MakeLab) -> None:
    lab, lock = make_lab(), threading.Lock()
    refused: list[tuple[TaskBatch, ...]] = []
    seen: list[tuple[int, int]] = []

    def repeating(feed: MemoryFeed) -> None:
        """Deliver the first batch again after it was committed."""
        start = feed.start

        def start_repeating(positions: Any, deliver: Deliver, until: Any = None) -> None:
            def twice(batches: tuple[TaskBatch, ...]) -> None:
                deliver(batches)
                if not refused:
                    refused.append(batches)
                    with pytest.raises(BrokenInvariant, match=r"a batch of \[0, \d+\), but the task is at"):
                        deliver(batches)

            start(positions, twice, until)

        feed.start = start_repeating  # type: ignore[method-assign]

    def noting(rows: Any, state: Any, out: Any) -> None:
        with lock:
            seen.extend(zip(rows["_task"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
        ledger_job.step(rows, state, out)

    lab.container("a", script=repeating, step=noting).activate().process(40)
    assert refused, "nothing came again"
    assert len(seen) == len(set(seen)), "the step was called twice with the same input"
    lab.assert_exact()


class LateClock(HandClock):
    """Tells of a time-out although what was waited for ends just then; waits for nothing."""

    def completed(self, futures: Iterable[Future[Any]], seconds: float) -> Iterator[Future[Any]]:
        """Yield the first that has ended."""
        first, *_ = futures
        yield first
        raise concurrent.futures.TimeoutError


class PromptTask:
    """An active task, as far as a batch needs one, each of whose commits ends at once."""

    def __init__(self, task: TaskId) -> None:
        self.task, self.committed, self.store = task, Offsets.of(0), None
        self.throughput = Throughput(0)

    def note_step(self, step: StartStep) -> None:
        """Note nothing."""

    def commit(self, start: Offsets, end: Offsets, outputs: Outputs, changes: Changes) -> Future[None]:
        assert start == self.committed
        self.committed = end
        ended = Future[None]()
        ended.set_result(None)
        return ended


def test_a_commit_that_ends_with_its_time_out_is_followed_by_the_rest_of_the_batch() -> None:
    """The rest was dropped, the batch counted as done, and the next one was refused as a defect."""

    def step(rows: Any, state: BatchState, out: Any) -> None:
        if rows.num_rows > 1:
            raise Postponed(1, {})

    runner = BatchRunner(lambda: step, job_config(), 1, no_probe, Marks(), LateClock())
    tasks: dict[TaskId, Any] = {each: PromptTask(each) for each in (TASK, TaskId("j", "main", 1))}
    rows = pa.table({"_offset": [0, 1]})
    runner.run([TaskBatch(each, Offsets.of(0), Offsets.of(2), rows) for each in tasks], tasks)
    assert [each.committed for each in tasks.values()] == [Offsets.of(2)] * 2
    assert runner.commits == 4


# ---- never within a record, and with what was dropped on one side ----


TASK = TaskId("j", "main", 0)

#: Topic and offset of each row: records dropped, records of several rows, and two inputs merged.
SINGLE = [[0], [0, 1, 2], [3, 3, 5], [1, 1, 1], [0, 2, 2, 4, 4, 4, 7]]
MERGED = ["a0 b0 a1 b1", "a0 b0 b0 a0 a1", "b0 a0 a0 b1 b1 a3", "a0 a1 b5 b5 a2"]


def batch_of(rows: list[tuple[str, int]], inputs: int) -> TaskBatch:
    table = pa.table({"_offset": [offset for _, offset in rows], "_topic": [topic for topic, _ in rows]})
    return TaskBatch(TASK, Offsets((0,) * inputs), Offsets((9,) * inputs), table)


CASES = [batch_of([("", each) for each in rows], 1) for rows in SINGLE] + [
    batch_of([(each[0], int(each[1])) for each in text.split()], 2) for text in MERGED
]


def records_of(batch: TaskBatch) -> list[tuple[str, int]]:
    return list(zip(batch.rows["_topic"].to_pylist(), batch.rows["_offset"].to_pylist(), strict=True))


def inputs_of(batch: TaskBatch) -> list[str]:
    return [""] if len(batch.start.each) == 1 else ["a", "b"]


def may_be_cut(batch: TaskBatch, row: int) -> bool:
    records = records_of(batch)
    return not set(records[:row]) & set(records[row:])


@pytest.mark.parametrize("batch", CASES)
def test_a_cut_parts_no_record_be_it_the_first_or_the_last_one_before_a_row(batch: TaskBatch) -> None:
    cuts = [each for each in range(batch.rows.num_rows + 1) if may_be_cut(batch, each)]
    assert head_rows(batch) == cuts[1]
    for row in range(batch.rows.num_rows):
        assert rows_before(batch, row) == max(each for each in cuts if each <= row), row


@pytest.mark.parametrize("batch", CASES)
def test_parts_follow_each_other_and_have_their_own_rows_only(batch: TaskBatch) -> None:
    inputs = inputs_of(batch)
    for rows in (each for each in range(1, batch.rows.num_rows + 1) if may_be_cut(batch, each)):
        first, rest = split_part(batch, rows, inputs)
        parts = [first] if rest is None else [first, rest]
        assert [each for part in parts for each in records_of(part)] == records_of(batch)
        assert (parts[0].start, parts[-1].end) == (batch.start, batch.end)
        assert all(one.end == other.start for one, other in pairwise(parts))
        for part in parts:
            bounds = dict(zip(inputs, zip(part.start.each, part.end.each, strict=True), strict=True))
            for topic, offset in records_of(part):
                start, end = bounds[topic if len(inputs) > 1 else ""]
                assert start <= offset < end
