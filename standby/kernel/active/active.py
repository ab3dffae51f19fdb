"""An active task and its exactly-once commits (rules `whole-batch`, `commit-first`, `committed-offsets`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from standby.errors import BadConfiguration, BrokenInvariant, StandfastError, Unavailable
from standby.kernel.active.markers import Markers
from standby.kernel.active.throughput import Throughput
from standby.kernel.active.topic_ids import TopicAnswer, ask_nothing
from standby.kernel.cancel_scope import ReportSignal
from standby.kernel.ports import Broker, Place, Writer, WriterLost
from standby.kernel.probes import AFTER_COMMIT, AFTER_STORE, BEFORE_COMMIT, Probe
from standby.kernel.store.store import TaskStore
from standby.replica.claim import CommitRecord
from standby.replica.failing import failures_at
from standby.replica.lifecycle import Signal
from standby.replica.outbox import Outputs
from standby.replica.store.keys import COMMIT, OWN
from standby.replica.store.overlay import Changes
from standby.shared.clock import Clock
from standby.shared.errortext import first_line
from standby.shared.model import GIVEN_UP_SECONDS, GivenUp, InputFailures, LeftOut, Offsets, StartStep, TaskId
from standby.threads.worker import Worker, settle

#: At most this many given-up records are reported individually between two reports; the others are only counted.
_MOST_GIVEN_UP: Final = 8


@dataclass(frozen=True, slots=True)
class Drained:
    """What a promotion had to replay (rule `drain-target`)."""

    applied: int
    """Changelog position of the store once the fence was in place."""
    end: int
    """The changelog's end after the fence, open transactions included."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The identity under which an active commits, and its initial state."""

    epoch: int
    run: str
    committed: Offsets
    """The input offsets of the first records to process."""
    first_batch: int = 0
    """The number of its first commit: higher than all numbers written to the changelog before."""
    generation: int = 0
    """Of the run's topics (`standby.shared.wire.TopicIdentity`)."""
    failures: InputFailures | None = None
    """Failures of earlier replicas at ``committed``."""
    drained: Drained | None = None


@dataclass(frozen=True, slots=True)
class MarkerLookup:
    """What an active needs to check whether the markers of its commits are present."""

    broker: Broker
    changelog: Place
    answer_seconds: float


@dataclass(frozen=True, slots=True)
class ActiveHooks:
    """Callbacks of an active."""

    tell: ReportSignal
    clock: Clock
    probe: Probe
    seen: MarkerLookup
    ask_topics: Callable[[], TopicAnswer] = ask_nothing
    """`standby.kernel.active.topic_ids.TopicIdCheck.ask`."""


class StoreLost(Unavailable):
    """The transaction is committed, but the local store was not written, or only what is before it.

    The task can go on only from its changelog, from the store's position on.
    """


class ActiveTask:
    """Commits batches of one task on a thread of its own, so that a hanging call can be abandoned.

    ``committed`` advances only after both the transaction and the store: readers of it see a matching state.
    """

    def __init__(
        self, task: TaskId, writer: Writer, store: TaskStore, claim: Claim, hooks: ActiveHooks
    ) -> None:
        self.task: Final = task
        self.store: Final = store
        self.drained: Final = claim.drained
        self.tell: Final = hooks.tell
        self.committed = claim.committed
        """The input offsets of the next records to process."""
        self.first_commit_ms: int | None = None
        """Unix milliseconds of the first commit with input."""
        self.start_steps: Final[dict[str, int]] = {}
        """The values of `StartStep` that it has passed → Unix milliseconds."""
        self.last_commit_ms = hooks.clock.now_ms()
        """Unix milliseconds of the last commit, with or without input, or of the start."""
        self.commits = 0
        """Number of commits, with or without input; the first is the claim."""
        self.batches = 0
        """Number of commits that contained more than offsets committed before."""
        self.failures = claim.failures
        """Failures of the job's code at the committed offsets."""
        self.traceback = ""
        """Traceback of the last error of the job's code, whether it is counted in `failures` or was final."""
        self.skipped = 0
        """Number of input records that were given up."""
        self.dead_lettered = 0
        """Number of records that were written to `task.dead.letter`."""
        self.throughput = Throughput(hooks.clock.monotonic())
        """Input processed recently."""
        self.tries = 0
        """Number of failures of the job's code, whatever their outcome: they show that the task is making attempts."""
        self.has_narrowed = False
        """Whether its producer was lost due to a transaction's content; the next attempt is smaller."""
        self.reported: InputFailures | None = None
        """The failures in the last report to the leader that has left this process."""
        self._writer = writer
        self._claim = claim
        self._next_batch = claim.first_batch
        self._ask_topics = hooks.ask_topics
        self._clock = hooks.clock
        self._probe = hooks.probe
        self._worker = Worker(f"commit-{task}").start()
        # Held while the store is written: `abandon` must not return, and the store not be passed on, before that.
        self._gate = threading.Lock()
        self._is_abandoned = False
        seen = hooks.seen
        self._markers = Markers(
            seen.broker, task, seen.changelog, seen.answer_seconds, lambda: self._is_abandoned, self._clock
        )
        #: Why no further commit is allowed: the outcome of a commit is unknown, or the store lacks it.
        self._lost: BaseException | None = None
        self._waiting: set[Future[None]] = set()
        # Only ever replaced as a whole, because other threads read it.
        self._given_up: tuple[GivenUp, ...] = ()

    def commit(self, start: Offsets, end: Offsets, outputs: Outputs, changes: Changes) -> Future[None]:
        """Commit exactly the input [start, end) with its outputs and changes; done once the store has it too.

        The future fails with `WriterLost` (outcome unknown), `StoreLost`, or `BadConfiguration` for a record that
        Kafka refuses (`RecordRefused` if Kafka accepts other records). No commit is allowed after any of these.
        """
        if start != self.committed or not end.reaches(start):
            raise BrokenInvariant(
                f"{self.task}: a batch of [{start}, {end}), but {self.committed} is committed (rule `whole-batch`)"
            )
        # The rows of the batch were read before this request. Its answer arrives while the transaction begins.
        answer = self._ask_topics()
        return self._submit(lambda: self._commit(start, end, outputs, changes, answer))

    def note_step(self, step: StartStep) -> None:
        """Record the time of a step on the way to the first commit, the first time it is passed. Thread-safe."""
        if self.first_commit_ms is None:
            self.start_steps.setdefault(step.value, self._clock.now_ms())

    @property
    def epoch(self) -> int:
        """The epoch of its commits."""
        return self._claim.epoch

    @property
    def is_unanswered(self) -> bool:
        """Whether its next batch waits for an answer about the markers of a former one. Thread-safe."""
        return self._markers.is_awaited

    def present_failures(self) -> InputFailures | None:
        """Return the failures at the current offsets; None once it has advanced past them. Thread-safe."""
        return failures_at(self.failures, self.committed.total)

    @property
    def is_reported(self) -> bool:
        """Whether a report with its present failures has left this process. Thread-safe."""
        return self.reported is not None and self.reported == self.present_failures()

    def note_given_up(self, given_up: GivenUp) -> None:
        """Record input that was given up, and report it."""
        self._given_up = (*self._given_up, given_up)[-_MOST_GIVEN_UP:]
        self.dead_lettered += given_up.how is LeftOut.DEAD_LETTER
        # Last: a status that counts the record, which another thread may make now, also has the rest.
        self.skipped += given_up.offsets
        self.tell(Signal.INPUT_FAILED, "")

    def recently_given_up(self, now_ms: int) -> tuple[GivenUp, ...]:
        """Return the last few inputs that were given up recently. Thread-safe."""
        return tuple(each for each in self._given_up if each.at_ms > now_ms - GIVEN_UP_SECONDS * 1000)

    def claim(self) -> Future[None]:
        """Commit the current offsets again, to claim the epoch and so that Kafka does not expire them."""
        return self._submit(self._commit_again)

    def abandon(self, why: str = "given up", *, is_late: bool = False) -> None:
        """Abandon the task: pending commits fail at once, and no late commit reaches the store.

        ``is_late`` is `WriterLost.is_late`.

        Waits for a store write that has begun. An open transaction is left to the fence of the next owner.
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
        self._worker.put(lambda: self._carry_out(work, outcome))
        return outcome

    def _carry_out(self, work: Callable[[], None], outcome: Future[None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the waiting caller decides on it
            self._lost = self._lost or error
            settle(outcome, error=error)
        else:
            settle(outcome)
        with self._gate:
            self._waiting.discard(outcome)
            is_over = self._is_abandoned or self._lost is not None
        if not is_over:
            # Check for markers while the next batch is computed.
            self._markers.look()

    def _commit_again(self) -> None:
        self._commit(self.committed, self.committed, Outputs(), {}, ask_nothing())

    def _commit(
        self, start: Offsets, end: Offsets, outputs: Outputs, changes: Changes, answer: TopicAnswer
    ) -> None:
        if self._lost is not None:
            # A retry from here might commit the same input twice.
            raise WriterLost(f"{self.task}: a commit failed before: {first_line(self._lost)}")
        if start != self.committed:
            # A commit on this thread since the request may contain the same input.
            raise BrokenInvariant(
                f"{self.task}: a commit of [{start}, {end}) although {self.committed} is committed (rule `whole-batch`)"
            )
        if self._markers.is_begun or end != start:
            # If this transaction were aborted, it would abort the hanging parts of the previous one, too.
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
            # The record is written before anything else. From now on, parts of the transaction may be left open
            # anywhere, and the next owner finds the record. Until it has arrived, everything open belongs to the
            # previous transaction.
            self._check_changelog(self._writer.begin(record))
            if end != start:
                self.note_step(StartStep.BEGUN)
            self._writer.prepare(outputs, changes, end, said.metadata)
            self._check_topics(answer)
            self._probe(BEFORE_COMMIT)
            position = self._writer.commit()
            self._markers.note(self._writer.places())
        except BadConfiguration:
            # Only a record was refused. Abort, so that readers of the same partitions need not wait until the next
            # owner's fence, or a time-out, ends the transaction.
            self._writer.abort()
            raise
        # The offset after the marker of this commit.
        self._next_batch = position + 1
        self._probe(AFTER_COMMIT)
        now_ms = self._clock.now_ms()
        with self._gate:
            if self._is_abandoned:
                # The store may have another owner by now, which finds the changes in the changelog.
                raise WriterLost(f"{self.task}: given up")
            own = {} if said.is_bare else {OWN: b"%d" % said.batch}
            self._write({**changes, COMMIT: record, **own}, position, now_ms)
            self._probe(AFTER_STORE)
            if end != self.committed and self.first_commit_ms is None:
                self.first_commit_ms = now_ms
            self.batches += end != self.committed or not said.is_bare
            self.committed = end
            self.last_commit_ms = now_ms
            self.commits += 1

    def _check_changelog(self, offset: int) -> None:
        """Raise `WriterLost` when a commit record was written at an ``offset`` that was already in use.

        In that case, the changelog was recreated or truncated; the takeover determines which. An offset that is one
        lower than expected means that a marker is missing.
        """
        if offset < self._next_batch - 1:
            self._writer.abort()
            raise WriterLost(
                f"{self.task}: its changelog ended at {self._next_batch - 1} or later, but continues at {offset}"
            )

    def _check_topics(self, answer: TopicAnswer) -> None:
        """Raise `WriterLost` unless rows and transaction are of the run's own topics; the takeover finds out."""
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
                f"{self.task}: the batch is committed, but the store is not written: {error}"
            ) from error
