"""What one query reads on its way to the tasks, held back until it is known from where on it counts.

A promotion spends most of its time on the start of a streaming query. A planned one is known beforehand, so
its query is started ahead, at offsets that the present active is still moving on from; a batch waits at the
gate until all of it is known to be committed by that one, or the task is claimed here. Then the gate opens, and
what lies below the claimed offsets is dropped: so what is delivered begins exactly at them, as the batch law
asks (design 4.4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from standby.feed.batches import from_offsets, split
from standby.model import TaskId
from standby.ports import Deliver

if TYPE_CHECKING:
    import pyarrow as pa

#: Given what a query failed with and the tasks' positions then; returns what the feed's user is to be told.
Judge = Callable[[BaseException, Mapping[TaskId, int]], BaseException]


class Reading:
    """One query's rows; `receive` and `end` are called by the query, all else by the feed."""

    def __init__(self, positions: Mapping[TaskId, int], transform: str, judge: Judge) -> None:
        """``positions`` are where the query reads from; ``transform`` names the job's, for errors."""
        self.positions = dict(positions)
        """Where the query reads from, or what it brings next begins, when that is nearer."""
        self._transform = transform
        self._judge = judge
        self._next = dict(positions)
        #: Partition → claimed offset, while the query may still bring rows below it.
        self._behind: dict[int, int] = {}
        self._deliver: Deliver | None = None
        #: Partition → offset below which another has committed everything.
        self._passed: dict[int, int] = {}
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

    def records_below(self, positions: Mapping[TaskId, int]) -> int | None:
        """Return how many offsets would be dropped if it counted from ``positions`` on.

        None when it cannot: it has ended, it reads other tasks, or it began above one of the positions.
        """
        if self.has_ended or positions.keys() != self.positions.keys():
            return None
        ahead = [positions[task] - began for task, began in self.positions.items()]
        return sum(ahead) if all(each >= 0 for each in ahead) else None

    def open(self, positions: Mapping[TaskId, int], deliver: Deliver) -> None:
        """Let it count from ``positions`` on, none of which is below where its query began."""
        with self._gate:
            self._next = dict(positions)
            self._behind = {
                task.partition: position
                for task, position in positions.items()
                if position > self.positions[task]
            }
            self._deliver = deliver
            self._is_open = True
            self._gate.notify_all()

    def drop(self) -> None:
        """Let nothing of it count, unless it was opened; whatever waits at the gate goes away."""
        with self._gate:
            self._is_open = True
            self._gate.notify_all()

    def pass_below(self, positions: Mapping[TaskId, int]) -> None:
        """Let batches that are wholly below ``positions`` go, uncounted: it will not count from below them."""
        with self._gate:
            self._passed = {task.partition: position for task, position in positions.items()}
            self._gate.notify_all()

    def receive(self, rows: pa.Table, ends: Mapping[int, int]) -> None:
        """Take a micro-batch: its rows, and the offset after its last record per partition."""
        self._arrived.set()
        with self._gate:
            self._gate.wait_for(lambda: self._is_open or self._is_passed(ends))
            if not self._is_open:
                self.positions.update(
                    (task, ends[task.partition]) for task in self.positions if task.partition in ends
                )
            if self._deliver is None:
                return
        if self._behind:
            rows = from_offsets(rows, self._behind, self._transform)
            self._behind = {
                each: position
                for each, position in self._behind.items()
                if ends.get(each, position) < position
            }
        spans = {task: (start, ends.get(task.partition, start)) for task, start in self._next.items()}
        batches = split(rows, spans, self._transform)
        if batches:
            self._deliver(batches)
            self._next.update((batch.task, batch.end) for batch in batches)

    def _is_passed(self, ends: Mapping[int, int]) -> bool:
        return bool(self._passed) and all(end <= self._passed[each] for each, end in ends.items())

    def end(self, failure: BaseException | None) -> None:
        """Take note that the query has ended."""
        try:
            if failure is not None:
                self.failure = failure
                self.failure = self._judge(failure, dict(self._next))
        finally:
            self._ended.set()
