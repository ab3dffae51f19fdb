"""What one query reads on its way to the tasks, held back until it is known from where on it counts.

A promotion spends most of its time on the start of a streaming query. So the query of a standby is started ahead, at
offsets that the present active is still moving on from; a batch waits at the gate until that one has committed all of
it and more, or the task is claimed here. Then the gate opens, and what lies below the claimed offsets is dropped: so
what is delivered begins exactly at them, as the rule `whole-batch` asks.

"And more" keeps a batch at the gate while the input stands still: a query without one asks Kafka for input a hundred
times a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from standby.errors import StandfastError, Transient
from standby.feed.batches import from_offsets, split
from standby.feed.inputs import reached
from standby.ports import Deliver
from standby.shared.clock import REAL
from standby.shared.errortext import first_line
from standby.shared.model import InputPartition, Offsets, TaskId

if TYPE_CHECKING:
    import pyarrow as pa

#: Of a query that is far from its start, one batch in so many seconds is computed.
COMPUTE_SECONDS: Final = 10.0

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
        clock: Callable[[], float] = REAL.monotonic,
    ) -> None:
        """``positions`` are where the query reads the ``inputs`` from; ``transform`` names the job's, for errors."""
        self._clock = clock
        #: When it was begun, or a batch of it was let go last.
        self._going_since = clock()
        self.step_seconds: float | None = None
        """What it took last to have a batch at the gate, since it was begun or the one before was let go."""
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
        self._is_near = True
        #: When a batch came to the gate with its rows last.
        self._computed_at: float | None = None
        self._has_waited = False
        self._has_delivered = False
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

    @property
    def has_waited(self) -> bool:
        """Whether the batch that was received last was held up at the gate: what it took says nothing then."""
        return self._has_waited

    @property
    def is_open(self) -> bool:
        """Whether what it brings counts, or it was dropped."""
        return self._is_open

    @property
    def is_far(self) -> bool:
        """Whether it is held back, and its start is not near: there is time for what helps later."""
        return not (self._is_open or self._is_near)

    def told(self) -> str:
        """Return where it is, for people."""
        where = ", ".join(f"{task}: {offsets}" for task, offsets in sorted(self.positions.items()))
        if self.has_ended:
            return f"ended at {where}: {self.failure}"
        return f"with a batch from {where}" if self.has_arrived else f"on its way to {where}"

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

    def pass_below(self, positions: Mapping[TaskId, Offsets], *, is_near: bool = True) -> None:
        """Let batches that ``positions`` are wholly beyond go, uncounted: it will not count from below them.

        When its start ``is_near`` the batch at the gate is computed, whichever it is.
        """
        with self._gate:
            self._passed = dict(positions)
            self._is_near = is_near
            self._gate.notify_all()

    def is_below(self, ends: Mapping[InputPartition, int]) -> bool:
        """Return whether nothing of a micro-batch up to ``ends`` counts, so that its rows are not needed.

        Most batches of a query that is far from its start wait here, and are never computed. A few are: that keeps in
        place all that it takes.
        """
        with self._gate:
            if not self._is_open:
                if not self._is_worth_computing():
                    self._gate.wait_for(
                        lambda: self._is_open or self._is_passed(ends) or self._is_worth_computing()
                    )
                if not self._is_open:
                    # The first one comes as far as the gate with its rows, in any case.
                    is_below = self.has_arrived and self._is_passed(ends)
                    if is_below:
                        self._go_on(ends)
                    return is_below
            come = self._reached(ends, self.positions)
            return self._deliver is None or all(
                position.reaches(come[task]) for task, position in self._next.items()
            )

    def receive(self, rows: pa.Table, ends: Mapping[InputPartition, int]) -> None:
        """Take a micro-batch: its rows, and the offset after its last record per partition."""
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
            # What was claimed may be ahead of what the query has come to.
            come = {task: offsets.at_least(self._next[task]) for task, offsets in come.items()}
        spans = {task: (start, come[task]) for task, start in self._next.items()}
        batches = split(rows, spans, self._inputs, self._transform)
        if batches:
            self._has_delivered = True
            self._deliver(batches)
            self._next.update((batch.task, batch.end) for batch in batches)

    def _reached(
        self, ends: Mapping[InputPartition, int], before: Mapping[TaskId, Offsets]
    ) -> dict[TaskId, Offsets]:
        return {task: reached(ends, self._inputs, task, offsets) for task, offsets in before.items()}

    def _is_worth_computing(self) -> bool:
        since = self._computed_at
        return self._is_near or since is None or self._clock() - since >= COMPUTE_SECONDS

    def _go_on(self, ends: Mapping[InputPartition, int]) -> None:
        """Let a batch go that was at the gate."""
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
        """Take note that the query has ended."""
        try:
            if failure is not None:
                self.failure = failure
                self.failure = self._judge(failure, dict(self._next))
                if self._behind and not self._has_delivered and not isinstance(self.failure, StandfastError):
                    # Of input that is done, perhaps, and that the former active may have left out.
                    self.failure = Transient(f"a query that was begun ahead failed: {first_line(failure)}")
                    self.failure.__cause__ = failure
        finally:
            self._ended.set()
