"""The rows of one query, held at a gate until it is known from which offsets on they are delivered.

A promotion spends most of its time on the start of a streaming query. So the query of a standby is started ahead,
while the current active is still advancing. A batch waits at the gate until the active has committed all of it and
more, or until the task is claimed here. Then the gate opens, and rows below the claimed offsets are dropped. So
delivery begins exactly at the claimed offsets, as rule `whole-batch` requires.

"And more" keeps a batch at the gate while there is no new input: a query without a pending batch polls Kafka a
hundred times per second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from standby.errors import StandfastError, Transient
from standby.feed.batches import from_offsets, split
from standby.feed.inputs import reached_offsets
from standby.ports import Deliver
from standby.shared.clock import REAL
from standby.shared.errortext import first_line
from standby.shared.model import InputPartition, Offsets, TaskId

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger(__name__)

#: While a query's start is not near, one batch is computed per this interval.
COMPUTE_SECONDS: Final = 10.0

#: Maps a query's failure, and the tasks' positions at that time, to the error to report to the feed's user.
Judge = Callable[[BaseException, Mapping[TaskId, Offsets]], BaseException]


class QueryBuffer:
    """The rows of one query. `receive` and `end` are called by the query, everything else by the feed."""

    def __init__(
        self,
        positions: Mapping[TaskId, Offsets],
        inputs: Sequence[str],
        transform: str,
        judge: Judge,
        clock: Callable[[], float] = REAL.monotonic,
    ) -> None:
        """``positions``: where the query starts in the ``inputs``. ``transform``: the job's function, for errors."""
        self._clock = clock
        #: When the query started, or its last batch passed the gate.
        self._going_since = clock()
        self.step_seconds: float | None = None
        """Last measured time until a batch was at the gate, since the start or since the previous batch passed."""
        self._inputs = inputs
        self.positions = dict(positions)
        """Where the query started, or where its next batch begins, if that is later."""
        self._transform = transform
        self._judge = judge
        self._next = dict(positions)
        #: Task → claimed offsets, while the query may still deliver rows below them.
        self._behind: dict[TaskId, Offsets] = {}
        self._deliver: Deliver | None = None
        #: Task → offsets below which another active has committed everything.
        self._passed: Mapping[TaskId, Offsets] = {}
        self._is_open = False
        self._is_near = True
        #: When the last computed batch arrived at the gate.
        self._computed_at: float | None = None
        self._has_waited = False
        self._has_delivered = False
        #: When the gate was opened, and when the current batch was planned.
        self._opened_at = self._planned_at = clock()
        self._gate = threading.Condition()
        self._arrived = threading.Event()
        self._ended = threading.Event()
        self.failure: BaseException | None = None
        """The failure to report to the feed's user; None while the query is running, and when it was stopped."""

    @property
    def has_arrived(self) -> bool:
        """Whether a batch has arrived at the gate."""
        return self._arrived.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether the query has ended."""
        return self._ended.is_set()

    @property
    def has_waited(self) -> bool:
        """Whether the last batch was held at the gate: its duration is meaningless then."""
        return self._has_waited

    @property
    def is_open(self) -> bool:
        """Whether its rows are delivered, or the reading was dropped."""
        return self._is_open

    @property
    def is_far(self) -> bool:
        """Whether it is held, and its start is not near: there is time for preparations."""
        return not (self._is_open or self._is_near)

    def describe(self) -> str:
        """Return a description of its progress."""
        where = ", ".join(f"{task}: {offsets}" for task, offsets in sorted(self.positions.items()))
        if self.has_ended:
            return f"ended at {where}: {self.failure}"
        return f"with a batch from {where}" if self.has_arrived else f"on its way to {where}"

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the query has ended, at most for the time-out; return whether it has."""
        return self._ended.wait(timeout_seconds)

    def records_below(self, positions: Mapping[TaskId, Offsets]) -> int | None:
        """Return how many offsets would be dropped if delivery began at ``positions``.

        None when that is impossible: the query has ended, reads other tasks, or started above one of the positions.
        """
        if self.has_ended or positions.keys() != self.positions.keys():
            return None
        if not all(positions[task].reaches(began) for task, began in self.positions.items()):
            return None
        return sum(positions[task].total - began.total for task, began in self.positions.items())

    def open(self, positions: Mapping[TaskId, Offsets], deliver: Deliver) -> None:
        """Open the gate and deliver from ``positions`` on, none of which may be below the query's start."""
        with self._gate:
            self._next = dict(positions)
            self._behind = {
                task: position for task, position in positions.items() if position != self.positions[task]
            }
            self._deliver = deliver
            self._opened_at = self._clock()
            self._is_open = True
            self._gate.notify_all()

    def drop(self) -> None:
        """Discard everything, unless it was opened; a batch at the gate is released."""
        with self._gate:
            self._is_open = True
            self._gate.notify_all()

    def pass_below(self, positions: Mapping[TaskId, Offsets], *, is_near: bool = True) -> None:
        """Release batches that are entirely below ``positions``, undelivered: delivery will not begin below them.

        When the start ``is_near``, the batch at the gate is computed in any case.
        """
        with self._gate:
            self._passed = dict(positions)
            self._is_near = is_near
            self._gate.notify_all()

    def is_below(self, ends: Mapping[InputPartition, int]) -> bool:
        """Return whether nothing of a micro-batch up to ``ends`` is delivered, so that its rows are not needed.

        While the start is not near, most batches wait here and are never computed. A few are computed, to keep
        everything involved warm.
        """
        self._planned_at = self._clock()
        with self._gate:
            if not self._is_open:
                if not self._is_worth_computing():
                    self._gate.wait_for(
                        lambda: self._is_open or self._is_passed(ends) or self._is_worth_computing()
                    )
                if not self._is_open:
                    # The first batch is computed in any case.
                    is_below = self.has_arrived and self._is_passed(ends)
                    if is_below:
                        self._go_on(ends)
                    return is_below
            come = self._reached(ends, self.positions)
            return self._deliver is None or all(
                position.reaches(come[task]) for task, position in self._next.items()
            )

    def receive(self, rows: pa.Table, ends: Mapping[InputPartition, int]) -> None:
        """Receive a micro-batch: its rows, and the offset after its last record per partition."""
        came_at = self._clock()
        with self._gate:
            self._has_waited = not self._is_open
            if self._has_waited:
                self._computed_at = self._clock()
                self.step_seconds = self._computed_at - self._going_since
            self._arrived.set()
            self._gate.wait_for(lambda: self._is_open or self._is_passed(ends))
            if not self._is_open:
                self._go_on(ends)
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
            # The claimed offsets may be ahead of the query.
            come = {task: offsets.at_least(self._next[task]) for task, offsets in come.items()}
        spans = {task: (start, come[task]) for task, start in self._next.items()}
        batches = split(rows, spans, self._inputs, self._transform)
        if batches:
            if not self._has_delivered:
                self._log_first(sum(each.rows.num_rows for each in batches), came_at)
            self._has_delivered = True
            self._deliver(batches)
            self._next.update((batch.task, batch.end) for batch in batches)

    def _log_first(self, rows: int, came_at: float) -> None:
        now = self._clock()
        _LOG.info(
            "the first batch, of %d rows, was planned at %+.0f ms, computed at %+.0f ms and delivered at %+.0f ms from "
            "the opening of the gate",
            *(rows, *((at - self._opened_at) * 1000 for at in (self._planned_at, came_at, now))),
        )

    def _reached(
        self, ends: Mapping[InputPartition, int], before: Mapping[TaskId, Offsets]
    ) -> dict[TaskId, Offsets]:
        return {task: reached_offsets(ends, self._inputs, task, offsets) for task, offsets in before.items()}

    def _is_worth_computing(self) -> bool:
        since = self._computed_at
        return self._is_near or since is None or self._clock() - since >= COMPUTE_SECONDS

    def _go_on(self, ends: Mapping[InputPartition, int]) -> None:
        """Release the batch at the gate."""
        self.positions = self._reached(ends, self.positions)
        self._going_since = self._clock()

    def _is_passed(self, ends: Mapping[InputPartition, int]) -> bool:
        come = self._reached(ends, self.positions)
        return (
            bool(self._passed)
            and all(self._passed[task].reaches(each) for task, each in come.items())
            and self._passed != come
        )

    def end(self, failure: BaseException | None) -> None:
        """Record that the query has ended."""
        try:
            if failure is not None:
                self.failure = failure
                self.failure = self._judge(failure, dict(self._next))
                if self._behind and not self._has_delivered and not isinstance(self.failure, StandfastError):
                    # The failing input may be processed already; the former active may have skipped it.
                    self.failure = Transient(f"a query that was started ahead failed: {first_line(failure)}")
                    self.failure.__cause__ = failure
        finally:
            self._ended.set()
