"""Kafka for one task: input, committed offset, changelog, transactions and their fence, with the invariants of data.

"The last init wins": `init` ends every earlier producer, whatever its epoch. Commits are checked here, where they take
effect: every input record once, in order, from a state that contains all earlier ones; and never for an older epoch
than one that was claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from standby.errors import Transient
from standby.kernel.ports import WriterLost
from standby.replica.claim import Committed, epoch_in
from standby.shared.model import TaskId
from tests.simulation.clock import Clock

#: After which the broker ends an abandoned transaction.
TRANSACTION_TIMEOUT_MS = 3_000


@dataclass
class _Open:
    """A transaction under way."""

    producer: int
    first: int | None = None
    """Offset of its first changelog record; None while it wrote none."""


class Log:
    """All that the broker keeps of one task."""

    def __init__(self, clock: Clock, task: TaskId) -> None:
        self.clock = clock
        self.task = task
        self.input_end = 0
        self.entries: list[int | None] = []
        """Changelog: how many input records the state has seen after this change; None: a marker, or aborted."""
        self.committed: Committed | None = None
        self.claimed_epoch = 0
        self.owners: dict[int, str] = {}
        """Epoch → the container that claimed it."""
        self.done = 0
        """How many input records have taken effect."""
        self.is_away = False
        self.is_flaky = False
        """Answers to commits get lost."""
        self._producer = 0
        self._open: _Open | None = None
        self._hanging: int | None = None
        self.readers: list[Callable[[], None]] = []
        """Called once when the stable end moves."""
        self.consumers: list[Callable[[], None]] = []
        """Called once when there is more input."""

    # ---- input ----

    def grow(self, count: int) -> None:
        """Add input records."""
        self.input_end += count
        self._wake(self.consumers)

    # ---- reading ----

    @property
    def end(self) -> int:
        """Return the end that a read-uncommitted reader sees (the high watermark)."""
        return len(self.entries)

    @property
    def stable_end(self) -> int:
        """Return the last stable offset: no reader of committed records gets past an open transaction."""
        ends = [len(self.entries)]
        if self._hanging is not None:
            ends.append(self._hanging)
        if self._open is not None and self._open.first is not None:
            ends.append(self._open.first)
        return min(ends)

    def read_ends(self) -> tuple[int, int]:
        """Return both ends; raises `Transient` while the broker is away."""
        self._answer()
        return self.end, self.stable_end

    def read_committed(self) -> Committed | None:
        """Return the committed offset; raises `Transient` while the broker is away."""
        self._answer()
        return self.committed

    # ---- writing ----

    def init(self) -> int:
        """Return the number of a new producer; the transactions of all before it are aborted."""
        self._answer()
        self._abort()
        self._producer += 1
        return self._producer

    def produce(self, producer: int, values: list[int]) -> None:
        """Write changes into the producer's transaction, which begins now."""
        self._answer()
        self._check_producer(producer)
        if self._open is None:
            self._open = _Open(producer)
            self.clock.after(TRANSACTION_TIMEOUT_MS, self._time_out, self._open)
        if values and self._open.first is None:
            self._open.first = len(self.entries)
        self.entries.extend(values)

    def commit(self, producer: int, who: str, start: int, state: int, offset: Committed) -> int | None:
        """End the producer's transaction with the input offset; return the changelog position after it.

        ``start`` is the first input record it covers, ``state`` how many the state has seen afterwards.
        """
        self._answer()
        self._check_producer(producer)
        transaction, self._open = self._open, None
        if transaction is None:
            raise WriterLost("no transaction", fenced=False)
        self._check_invariants(who, start, state, offset)
        self.committed = offset
        self.done = offset.offset
        if transaction.first is None:
            return None
        self.entries.append(None)
        self._wake(self.readers)
        return len(self.entries)

    def hang(self, for_ms: int) -> None:
        """Have a stray producer's transaction hold readers back for a while."""
        if self._hanging is None:
            self._hanging = len(self.entries)
            self.entries.append(None)
            self.clock.after(for_ms, self._hang_no_more)

    def _hang_no_more(self) -> None:
        self._hanging = None
        self._wake(self.readers)

    def _answer(self) -> None:
        if self.is_away:
            raise Transient("the broker is away")

    def _check_producer(self, producer: int) -> None:
        if producer != self._producer:
            raise WriterLost("the producer is fenced", fenced=True)

    def _abort(self) -> None:
        transaction, self._open = self._open, None
        if transaction is None or transaction.first is None:
            return
        for each in range(transaction.first, len(self.entries)):
            self.entries[each] = None
        self.entries.append(None)
        self._wake(self.readers)

    def _time_out(self, transaction: _Open) -> None:
        if self._open is transaction:
            self._abort()
            self._producer += 1  # as the broker does, so that the slow producer cannot go on

    def _check_invariants(self, who: str, start: int, state: int, offset: Committed) -> None:
        check, task, epoch = self.clock.check, self.task, epoch_in(offset.metadata)
        check(
            epoch >= self.claimed_epoch,
            "no_older_epoch_after_a_newer_claim",
            "{}: {} commits for epoch {} after {}",
            *(task, who, epoch, self.claimed_epoch),
        )
        owner = self.owners.setdefault(epoch, who)
        check(owner == who, "one_owner_of_an_epoch", "{} at {}: {} and {}", task, epoch, owner, who)
        self.claimed_epoch = epoch
        check(
            start == self.done,
            "every_record_once",
            "{}: {} covers input from {}, {} is next",
            *(task, who, start, self.done),
        )
        check(
            state == offset.offset,
            "state_has_all_before",
            "{}: the state of {} has seen {} of {} input records",
            *(task, who, state, offset.offset),
        )

    @staticmethod
    def _wake(waiters: list[Callable[[], None]]) -> None:
        woken = waiters[:]
        waiters.clear()
        for each in woken:
            each()
