"""One task while it is active: exactly-once commits (rules `whole-batch`, `commit-first`, `committed-offsets`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from standby.errors import BadConfiguration, BrokenInvariant, StandfastError, Unavailable
from standby.kernel.active.identity import Answer, nothing_asked
from standby.kernel.active.markers import Markers
from standby.kernel.active.throughput import Throughput
from standby.kernel.ports import Broker, Place, Writer, WriterLost
from standby.kernel.probes import AFTER_COMMIT, AFTER_STORE, BEFORE_COMMIT, Probe
from standby.kernel.run import Tell
from standby.kernel.store.store import TaskStore
from standby.replica.claim import CommitRecord
from standby.replica.failing import failures_at
from standby.replica.lifecycle import Signal
from standby.replica.store.keys import COMMIT, OWN
from standby.replica.store.overlay import Changes, Emitted
from standby.shared.clock import Clock
from standby.shared.errortext import first_line
from standby.shared.model import GIVEN_UP_SECONDS, GivenUp, InputFailures, LeftOut, Offsets, TaskId
from standby.threads.worker import Worker, settle

#: So many of what was given up are told one by one; of more between two reports, how many.
_MOST_GIVEN_UP: Final = 8


@dataclass(frozen=True, slots=True)
class Drained:
    """What a promotion had to replay (rule `drain-target`)."""

    applied: int
    """Changelog position of the store when the fence held."""
    end: int
    """The changelog's end after the fence, open transactions included."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Under what a task's active commits, and what it begins with."""

    epoch: int
    run: str
    committed: Offsets
    """The input offsets of the first records to process."""
    first_batch: int = 0
    """The number of its first commit: above all that were written to the changelog before."""
    generation: int = 0
    """Of the run's topics (`standby.shared.wire.TopicIdentity`)."""
    failures: InputFailures | None = None
    """Those at ``committed`` that earlier replicas had."""
    drained: Drained | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What tells an active whether the markers of its commits are there."""

    broker: Broker
    changelog: Place
    answer_seconds: float


@dataclass(frozen=True, slots=True)
class Hooks:
    """What an active calls."""

    tell: Tell
    clock: Clock
    probe: Probe
    seen: Seen
    ask_topics: Callable[[], Answer] = nothing_asked
    """`standby.kernel.active.identity.Identity.ask`."""


class StoreLost(Unavailable):
    """The transaction is committed and the local store is not written: the replica is of no use any more."""


class ActiveTask:
    """Commits batches of one task on a thread of its own, so that a call that hangs can be given up.

    ``committed`` moves only after transaction *and* store: whoever reads it sees a state that matches.
    """

    def __init__(self, task: TaskId, writer: Writer, store: TaskStore, claim: Claim, hooks: Hooks) -> None:
        self.task: Final = task
        self.store: Final = store
        self.drained: Final = claim.drained
        self.tell: Final = hooks.tell
        self.committed = claim.committed
        """The input offsets of the next records to process."""
        self.first_commit_ms: int | None = None
        """Unix milliseconds of the first commit with input."""
        self.last_commit_ms = hooks.clock.now_ms()
        """Unix milliseconds of the last commit with or without input, or of the beginning."""
        self.failures = claim.failures
        """Failures of the job's code at the committed offsets."""
        self.traceback = ""
        """Where the job's code raised what it failed of last, at `failures` or for good."""
        self.skipped = 0
        """Input records that were given up."""
        self.dead_lettered = 0
        """Those that were written to `task.dead.letter`."""
        self.throughput = Throughput(hooks.clock.monotonic())
        """What it has processed."""
        self.tries = 0
        """Failures of the job's code, whatever came of them: that they happen shows that the task is at work."""
        self.has_narrowed = False
        """Whether its producer was lost of what was in a transaction: less is tried the next time, so it gets on."""
        self.is_reported = False
        """Whether its status was asked for since it became active."""
        self._writer = writer
        self._claim = claim
        self._next_batch = claim.first_batch
        self._ask_topics = hooks.ask_topics
        self._clock = hooks.clock
        self._probe = hooks.probe
        self._worker = Worker(f"commit-{task}").start()
        # Held while the store is written: whoever gives the task up must not hand the store on before.
        self._gate = threading.Lock()
        self._is_abandoned = False
        seen = hooks.seen
        self._markers = Markers(
            seen.broker, task, seen.changelog, seen.answer_seconds, lambda: self._is_abandoned, self._clock
        )
        #: Why nothing more may be committed: the outcome of a commit is not known, or the store lacks it.
        self._lost: BaseException | None = None
        self._waiting: set[Future[None]] = set()
        # Replaced as a whole: other threads read it.
        self._given_up: tuple[GivenUp, ...] = ()

    def commit(
        self, start: Offsets, end: Offsets, outputs: Sequence[Emitted], changes: Changes
    ) -> Future[None]:
        """Commit exactly the input [start, end) with what came of it; done when the store has it too.

        The future fails with `WriterLost` (outcome unknown), `StoreLost`, or `BadConfiguration` for a record
        that Kafka refuses, `RecordRefused` where it takes others; nothing may be committed after any of them.
        """
        if start != self.committed or not end.reaches(start):
            raise BrokenInvariant(
                f"{self.task}: a batch of [{start}, {end}), but {self.committed} is committed (rule `whole-batch`)"
            )
        # Its rows were read before. The answer comes while the transaction begins.
        answer = self._ask_topics()
        return self._submit(lambda: self._commit(start, end, outputs, changes, answer))

    @property
    def epoch(self) -> int:
        """The epoch that its commits carry."""
        return self._claim.epoch

    def present_failures(self) -> InputFailures | None:
        """Return the failures at the present offsets; None when it got past the last ones. From any thread."""
        return failures_at(self.failures, self.committed.total)

    def note_given_up(self, given_up: GivenUp) -> None:
        """Take note of input that was left out, and tell of it."""
        self.skipped += given_up.offsets
        self.dead_lettered += given_up.how is LeftOut.DEAD_LETTER
        self._given_up = (*self._given_up, given_up)[-_MOST_GIVEN_UP:]
        self.tell(Signal.INPUT_FAILED, "")

    def recently_given_up(self, now_ms: int) -> tuple[GivenUp, ...]:
        """Return the last few that were left out a short while ago. From any thread."""
        return tuple(each for each in self._given_up if each.at_ms > now_ms - GIVEN_UP_SECONDS * 1000)

    def claim(self) -> Future[None]:
        """Commit the present offsets again: to claim the epoch, and so that Kafka does not forget them."""
        return self._submit(self._commit_again)

    def abandon(self, why: str = "given up", *, is_late: bool = False) -> None:
        """Give the task up: what is waited for fails at once, and nothing late reaches the store.

        ``is_late`` is `WriterLost.is_late`.

        Waits for a store write that has begun. The transaction, if one is open, is left to the fence of
        the next owner.
        """
        with self._gate:
            self._is_abandoned = True
            waiting = tuple(self._waiting)
        for outcome in waiting:
            settle(outcome, error=WriterLost(f"{self.task}: {why}", is_late=is_late))
        self._writer.close()
        self._worker.close()

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        outcome: Future[None] = Future()
        with self._gate:
            if self._is_abandoned:
                settle(outcome, error=WriterLost(f"{self.task}: given up"))
                return outcome
            self._waiting.add(outcome)
        self._worker.submit(lambda: self._carry_out(work, outcome))
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
            is_over = self._is_abandoned or self._lost is not None
        if not is_over:
            # While the next batch is computed.
            self._markers.look()

    def _commit_again(self) -> None:
        self._commit(self.committed, self.committed, (), {}, nothing_asked())

    def _commit(
        self, start: Offsets, end: Offsets, outputs: Sequence[Emitted], changes: Changes, answer: Answer
    ) -> None:
        if self._lost is not None:
            # Whoever tries again from here might commit the same input twice.
            raise WriterLost(f"{self.task}: a commit failed before: {first_line(self._lost)}")
        if start != self.committed:
            # What was committed on this thread since it was asked for may hold the same input.
            raise BrokenInvariant(
                f"{self.task}: a commit of [{start}, {end}) although {self.committed} is committed (rule `whole-batch`)"
            )
        if self._markers.is_begun or end != start:
            # Lost, it would take along what hangs of the one before.
            self._markers.wait()
        try:
            said = CommitRecord(
                self._next_batch,
                self.epoch,
                self._claim.run,
                end,
                changes=len(changes),
                outputs=len(outputs),
                generation=self._claim.generation,
                unseen=self._markers.hanging(),
            )
            record = said.encode()
            # Before anything else is written: from now on something of it may be left open anywhere, and whoever comes
            # next finds its record. Until that has arrived, all that is open is of the one before.
            self._check_changelog(self._writer.begin(record))
            self._writer.prepare(outputs, changes, end, said.metadata)
            self._check_topics(answer)
            self._probe(BEFORE_COMMIT)
            position = self._writer.commit()
            self._markers.note(self._writer.places())
        except BadConfiguration:
            # A record was refused, and nothing else is wrong: whoever reads the same partitions need not wait until
            # the next owner's fence, or a time-out, ends the transaction.
            self._writer.abort()
            raise
        # Behind its marker.
        self._next_batch = position + 1
        self._probe(AFTER_COMMIT)
        now_ms = self._clock.now_ms()
        with self._gate:
            if self._is_abandoned:
                # The store may belong to somebody else by now, who finds the changes in the changelog.
                raise WriterLost(f"{self.task}: given up")
            own = {} if said.is_bare else {OWN: b"%d" % said.batch}
            self._write({**changes, COMMIT: record, **own}, position, now_ms)
            self._probe(AFTER_STORE)
            if end != self.committed and self.first_commit_ms is None:
                self.first_commit_ms = now_ms
            self.committed = end
            self.last_commit_ms = now_ms

    def _check_changelog(self, offset: int) -> None:
        """Raise `WriterLost` when a commit record went to an ``offset`` at which there was a record already.

        Then the changelog was made again or truncated; the way to active finds out. An offset one lower than expected
        is that of a marker that is missing.
        """
        if offset < self._next_batch - 1:
            self._writer.abort()
            raise WriterLost(
                f"{self.task}: its changelog ended at {self._next_batch - 1} or beyond, and goes on at {offset}"
            )

    def _check_topics(self, answer: Answer) -> None:
        """Raise `WriterLost` unless rows and transaction are of the run's own topics: the way to active tells."""
        try:
            answer()
        except StandfastError as error:
            self._writer.abort()
            raise WriterLost(f"{self.task}: {first_line(error)}") from error

    def _write(self, changes: Changes, position: int, now_ms: int) -> None:
        try:
            self.store.apply(changes.items(), position, now_ms)
        except StandfastError as error:
            raise StoreLost(
                f"{self.task}: the batch is committed, the store is not written: {error}"
            ) from error
