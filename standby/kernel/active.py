"""One task while it is active: exactly-once commits (design 4.4, 4.5, 4.7)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from standby.errors import BadConfiguration, BrokenLaw, StandfastError, Unavailable
from standby.kernel.lane import Lane, settle
from standby.kernel.ports import Writer, WriterLost
from standby.kernel.probes import AFTER_COMMIT, AFTER_STORE, BEFORE_COMMIT, Probe
from standby.kernel.store import TaskStore
from standby.model import InputFailures, Offsets, TaskId
from standby.replica.claim import epoch_in
from standby.replica.failing import failures_at
from standby.replica.lifecycle import Signal
from standby.replica.overlay import Changes, Emitted

#: Tells what ended the active: the signal, and why.
Tell = Callable[[Signal, str], None]


@dataclass(frozen=True, slots=True)
class Drained:
    """What a promotion had to replay (design 4.3)."""

    applied: int
    """Changelog position of the store when the fence held."""
    end: int
    """The changelog's end after the fence, open transactions included."""


class StoreLost(Unavailable):
    """The transaction is committed and the local store is not written: the replica is of no use any more."""


class ActiveTask:
    """Commits batches of one task on a thread of its own, so that a call that hangs can be given up.

    ``committed`` moves only after transaction *and* store: whoever reads it sees a state that matches.
    """

    def __init__(
        self,
        task: TaskId,
        writer: Writer,
        store: TaskStore,
        committed: Offsets,
        metadata: str,
        *,
        tell: Tell,
        clock: Callable[[], int],
        probe: Probe,
        failures: InputFailures | None = None,
        drained: Drained | None = None,
    ) -> None:
        """``failures`` are those at ``committed`` that earlier replicas had."""
        self.task: Final = task
        self.store: Final = store
        self.drained: Final = drained
        self.tell: Final = tell
        self.committed = committed
        """The input offsets of the next records to process."""
        self.first_commit_ms: int | None = None
        """Unix milliseconds of the first commit with input."""
        self.last_commit_ms = clock()
        """Unix milliseconds of the last commit with or without input, or of the beginning."""
        self.unsettled: Offsets | None = None
        """Where a batch ends whose transaction has begun and of whose end nothing is known; None: there is none."""
        self.failures = failures
        """Failures of the job's code at the committed offsets."""
        self.skipped = 0
        """Input records that were given up."""
        self.tries = 0
        """Failures of the job's code, whatever came of them: that they happen shows that the task is at work."""
        self.is_reported = False
        """Whether its status was asked for since it became active."""
        self._writer = writer
        self._metadata = metadata
        self._clock = clock
        self._probe = probe
        self._lane = Lane(f"commit-{task}")
        # Held while the store is written: whoever gives the task up must not hand the store on before.
        self._gate = threading.Lock()
        self._is_abandoned = False
        #: Why nothing more may be committed: the outcome of a commit is not known, or the store lacks it.
        self._lost: BaseException | None = None
        self._waiting: set[Future[None]] = set()

    def commit(
        self, start: Offsets, end: Offsets, outputs: Sequence[Emitted], changes: Changes
    ) -> Future[None]:
        """Commit exactly the input [start, end) with what came of it; done when the store has it too.

        The future fails with `WriterLost` (outcome unknown), `StoreLost`, or `BadConfiguration` for a record
        that Kafka refuses.
        """
        if start != self.committed or not end.reaches(start):
            raise BrokenLaw(
                f"{self.task}: a batch of [{start}, {end}), but {self.committed} is committed (design 4.4)"
            )
        return self._submit(lambda: self._commit(start, end, outputs, changes))

    @property
    def epoch(self) -> int:
        """The epoch that its commits carry."""
        return epoch_in(self._metadata)

    def present_failures(self) -> InputFailures | None:
        """Return the failures at the present offsets; None when it got past the last ones. From any thread."""
        return failures_at(self.failures, self.committed.total)

    def claim(self) -> Future[None]:
        """Commit the present offsets again: to claim the epoch, and so that Kafka does not forget them."""
        return self._submit(lambda: self._commit(self.committed, self.committed, (), {}))

    def abandon(self) -> None:
        """Give the task up: what is waited for fails at once, and nothing late reaches the store.

        Waits for a store write that has begun. The transaction, if one is open, is left to the fence of
        the next owner.
        """
        with self._gate:
            self._is_abandoned = True
            waiting = tuple(self._waiting)
        for outcome in waiting:
            settle(outcome, error=WriterLost(f"{self.task}: given up"))
        self._writer.close()
        self._lane.close()

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        outcome: Future[None] = Future()
        with self._gate:
            if self._is_abandoned:
                settle(outcome, error=WriterLost(f"{self.task}: given up"))
                return outcome
            self._waiting.add(outcome)
        self._lane.submit(lambda: self._carry_out(work, outcome))
        return outcome

    def _carry_out(self, work: Callable[[], None], outcome: Future[None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - whoever waits decides on it
            self._lost = self._lost or error
            settle(outcome, error=error)
        else:
            settle(outcome)
        with self._gate:
            self._waiting.discard(outcome)

    def _commit(self, start: Offsets, end: Offsets, outputs: Sequence[Emitted], changes: Changes) -> None:
        if self._lost is not None:
            # Whoever tries again from here might commit the same input twice.
            raise WriterLost(f"{self.task}: a commit failed before: {self._lost}")
        if start != self.committed:
            # What was committed on this thread since it was asked for may hold the same input.
            raise BrokenLaw(
                f"{self.task}: a commit of [{start}, {end}) although {self.committed} is committed (design 4.4)"
            )
        try:
            self._writer.prepare(outputs, changes, end, self._metadata)
            # Not before: as long as it is not certain that this one has begun, what is open may be of the one before,
            # which is committed.
            self.unsettled = end
            self._probe(BEFORE_COMMIT)
            position = self._writer.commit()
        except BadConfiguration:
            # A record was refused, and nothing else is wrong: whoever reads the same partitions need not wait until
            # the next owner's fence, or a time-out, ends the transaction.
            self._writer.abort()
            raise
        self.unsettled = None
        self._probe(AFTER_COMMIT)
        now_ms = self._clock()
        with self._gate:
            if self._is_abandoned:
                # The store may belong to somebody else by now, who finds the changes in the changelog.
                raise WriterLost(f"{self.task}: given up")
            self._write(changes, position, now_ms)
            self._probe(AFTER_STORE)
            if end != self.committed and self.first_commit_ms is None:
                self.first_commit_ms = now_ms
            self.committed = end
            self.last_commit_ms = now_ms

    def _write(self, changes: Changes, position: int | None, now_ms: int) -> None:
        try:
            if position is None:
                self.store.caught_up(now_ms)
            else:
                self.store.apply(changes.items(), position, now_ms)
        except StandfastError as error:
            raise StoreLost(
                f"{self.task}: the batch is committed, the store is not written: {error}"
            ) from error
