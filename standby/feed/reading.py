"""What one query reads on its way to the tasks, held back until it is known from where on it counts.

A promotion spends most of its time on the start of a streaming query. A planned one is known beforehand, so
its query is started ahead, at offsets that the present active is still moving on from; a batch waits at the
gate until all of it is known to be committed by that one, or the task is claimed here. Then the gate opens, and
what lies below the claimed offsets is dropped: so what is delivered begins exactly at them, as the batch law
asks (design 4.4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from standby.feed.batches import from_offsets, split
from standby.feed.inputs import reached
from standby.model import InputPartition, Offsets, TaskId
from standby.ports import Deliver

if TYPE_CHECKING:
    import pyarrow as pa

#: Given what a query failed with and the tasks' positions then; returns what the feed's user is to be told.
Judge = Callable[[BaseException, Mapping[TaskId, Offsets]], BaseException]


class Reading:
    """One query's rows; `receive` and `end` are called by the query, all else by the feed."""

    def __init__(
        self,
        positions: Mapping[TaskId, Offsets],
        inputs: Sequence[str],
        transform: str,
        judge: Judge,
    ) -> None:
        """``positions`` are where the query reads the ``inputs`` from; ``transform`` names the job's, for errors."""
        self._inputs = inputs
        self.positions = dict(positions)
        """Where the query reads from, or what it brings next begins, when that is nearer."""
        self._transform = transform
        self._judge = judge
        self._next = dict(positions)
        #: Task → claimed offsets, while the query may still bring rows below them.
        self._behind: dict[TaskId, Offsets] = {}
        self._deliver: Deliver | None = None
        #: Task → offsets below which another has committed everything.
        self._passed: Mapping[TaskId, Offsets] = {}
        self._is_open = False
        self._gate = threading.Condition()
        self._arrived = threading.Event()
        self._ended = threading.Event()
        self.failure: BaseException | None = None
        """What ended it, as the feed's user is to be told; None while it runs, and when it was stopped."""

    @property
    def has_arrived(self) -> bool:
        """Whether a batch has come as far as the gate."""
        return self._arrived.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether its query has ended."""
        return self._ended.is_set()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until its query has ended, at most so long; return whether it has."""
        return self._ended.wait(timeout_seconds)

    def records_below(self, positions: Mapping[TaskId, Offsets]) -> int | None:
        """Return how many offsets would be dropped if it counted from ``positions`` on.

        None when it cannot: it has ended, it reads other tasks, or it began above one of the positions.
        """
        if self.has_ended or positions.keys() != self.positions.keys():
            return None
        if not all(positions[task].reaches(began) for task, began in self.positions.items()):
            return None
        return sum(positions[task].total - began.total for task, began in self.positions.items())

    def open(self, positions: Mapping[TaskId, Offsets], deliver: Deliver) -> None:
        """Let it count from ``positions`` on, none of which is below where its query began."""
        with self._gate:
            self._next = dict(positions)
            self._behind = {
                task: position for task, position in positions.items() if position != self.positions[task]
            }
            self._deliver = deliver
            self._is_open = True
            self._gate.notify_all()

    def drop(self) -> None:
        """Let nothing of it count, unless it was opened; whatever waits at the gate goes away."""
        with self._gate:
            self._is_open = True
            self._gate.notify_all()

    def pass_below(self, positions: Mapping[TaskId, Offsets]) -> None:
        """Let batches that are wholly below ``positions`` go, uncounted: it will not count from below them."""
        with self._gate:
            self._passed = dict(positions)
            self._gate.notify_all()

    def receive(self, rows: pa.Table, ends: Mapping[InputPartition, int]) -> None:
        """Take a micro-batch: its rows, and the offset after its last record per partition."""
        self._arrived.set()
        with self._gate:
            self._gate.wait_for(lambda: self._is_open or self._is_passed(ends))
            if not self._is_open:
                self.positions = self._reached(ends, self.positions)
            if self._deliver is None:
                return
        come = self._reached(ends, self._next)
        if self._behind:
            below = {task.partition: position for task, position in self._behind.items()}
            rows = from_offsets(rows, below, self._inputs, self._transform)
            reached_now = self._reached(ends, self.positions)
            self._behind = {
                task: position
                for task, position in self._behind.items()
                if not reached_now[task].reaches(position)
            }
            # What was claimed may be ahead of what the query has come to.
            come = {task: offsets.at_least(self._next[task]) for task, offsets in come.items()}
        spans = {task: (start, come[task]) for task, start in self._next.items()}
        batches = split(rows, spans, self._inputs, self._transform)
        if batches:
            self._deliver(batches)
            self._next.update((batch.task, batch.end) for batch in batches)

    def _reached(
        self, ends: Mapping[InputPartition, int], before: Mapping[TaskId, Offsets]
    ) -> dict[TaskId, Offsets]:
        return {task: reached(ends, self._inputs, task, offsets) for task, offsets in before.items()}

    def _is_passed(self, ends: Mapping[InputPartition, int]) -> bool:
        come = self._reached(ends, self.positions)
        return bool(self._passed) and all(self._passed[task].reaches(each) for task, each in come.items())

    def end(self, failure: BaseException | None) -> None:
        """Take note that the query has ended."""
        try:
            if failure is not None:
                self.failure = failure
                self.failure = self._judge(failure, dict(self._next))
        finally:
            self._ended.set()
