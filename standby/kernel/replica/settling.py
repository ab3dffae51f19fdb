"""Ends transactions that a task's former producers left open, as they were decided (docs/decisions/0016)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from standby.errors import Unavailable
from standby.kernel.cancel_scope import CancelScope
from standby.kernel.job import JobKernel
from standby.kernel.ports import OffsetsUnstable, Place, TransactionOutcome, Writer, WriterLost
from standby.replica.accepted import known_generation
from standby.replica.claim import (
    CommitRecord,
    Committed,
    StateMismatch,
    check_aborted,
    check_record,
    decode_commit,
    fate,
    is_committed,
    lost_commit,
    lost_outputs,
    offsets_of,
)
from standby.replica.outbox import Outputs
from standby.shared.model import Offsets, ReplicaId, TaskRecord
from standby.shared.naming import transactional_id

_log: Final = logging.getLogger(__name__)

#: Added to the transaction time-out: the interval at which the broker looks for timed-out transactions.
_STABLE_GRACE_SECONDS: Final = 15.0

#: How long an open transaction in a partition may belong to another producer and end by itself. The task's own
#: transactions have ended once its producer is initialised.
_OPEN_SECONDS: Final = 1.0

#: How many of the task's last transactions are looked up in the coordinator's log. A task begins only a few between
#: two batches.
_FEW: Final = 20

#: Poll interval: the first, and the maximum. What is polled for usually ends within moments.
_FIRST_PAUSE_SECONDS: Final = 0.002
_PAUSE_SECONDS: Final = 0.1

#: The committed offsets of the inputs, in order; None instead of the sequence: they are not stable.
_Answer = Sequence["Committed | None"] | None


@dataclass(frozen=True, slots=True)
class TransactionSettlement:
    """Settles open transactions for one replica after its fence, when the task has no running transaction.

    Kafka treats a partition without a leader as deleted, and skips it when it writes the markers that end a
    transaction. In that partition the transaction stays open, and readers wait below it, until another marker of
    the same producer id ends it, together with everything else of that producer. So an aborted transaction must be
    ended by one that aborts (a sweep), or the next commit would make it visible. A committed transaction must be
    ended by one that commits, or its records would be lost. The commit records and the committed offsets show which
    of the two applies. It is never inferred from a request that was not answered.
    """

    job: JobKernel
    replica: ReplicaId
    epoch: int
    writer: Writer
    run: CancelScope

    def committed(self) -> _Answer:
        """Return the committed offset of each input; None when a transaction is open in the offsets topic.

        Raises `Transient` when there is no answer.
        """
        try:
            return self.job.broker.committed((self._partition,))[self._partition]
        except OffsetsUnstable as unstable:
            _log.warning("%s: %s", self.replica, unstable)
            return None

    def changelog_end(self) -> int:
        """Return the changelog's end, read uncommitted."""
        return self.job.broker.changelog_ends((self._partition,))[self._partition]

    def end_tail(self, end: int, committed: _Answer, record: TaskRecord) -> bool:
        """End hanging transactions in the changelog below ``end`` as decided; return whether there were any.

        Nothing is open below ``end`` afterwards. Raises `StateMismatch` when the outcome cannot be determined, and
        `Unavailable` for transactions that are not the task's.
        """
        stable = self._stable_end(end, _OPEN_SECONDS)
        if stable >= end:
            return False
        values = self.job.broker.commit_records(self._partition, stable, end)
        open_ones = [decode_commit(each) for each in values]
        if open_ones:
            _log.warning("%s: commits %s have no end", self.replica, [each.batch for each in open_ones])
            if committed is None:
                if self._were_committed(open_ones):
                    self._commit(open_ones[-1].offsets, end, open_ones[-1].generation)
                else:
                    self._sweep(open_ones)
            elif is_committed(open_ones, committed, record):
                self._commit(offsets_of(committed), end, known_generation(committed, None))
            else:
                self._sweep(open_ones)
        self._await_stable(end)
        return True

    def check_own(self, last: CommitRecord | None, own: int | None, end: int) -> None:
        """Raise `StateMismatch` when the last commit of the state is missing in the changelog.

        This can only happen to a commit that the replica made itself; ``own`` is the last one. Nothing may be open
        below ``end``.
        """
        if last is None or last.batch != own:
            return
        there = self.job.broker.commit_records(self._partition, max(0, last.batch - 1), end, is_stable=True)
        if all(decode_commit(each).batch != last.batch for each in there):
            raise lost_commit((last,), self.replica.task)

    def end_rest(
        self, last: CommitRecord | None, end: int, committed: _Answer, record: TaskRecord
    ) -> Sequence[Committed | None]:
        """End hanging transactions in the offsets topic and the outputs; return the committed offsets.

        Nothing hangs in the changelog below ``end``, so ``last`` is the last commit. Transactions that began after
        it in the changelog were aborted. If those contained only offsets, everything that hangs belongs to the last
        commit, and becomes visible with the next one.
        """
        later = self._later(last, end) if last is not None and last.end < end else []
        is_later = not all(each.is_bare for each in later)
        if last is not None:
            check_aborted(later, last, self.replica.task)
            self._check_outputs(later)
        if committed is not None:
            if any(each.outputs for each in later) and self._do_outputs_hang(later):
                self._sweep(later)
            return committed
        if last is None or is_later:
            # No commit in the changelog is newer than ``last``: what hangs is an aborted batch. Before the first claim
            # there is no batch.
            self._check_decided(later)
            self._sweep(later, may_be_batch=last is not None or record.claimed)
        else:
            self._commit(last.offsets, last.batch + 1, last.generation)
        committed = self.job.broker.committed((self._partition,))[self._partition]
        return (
            committed if last is None else tuple(Committed(each, last.metadata) for each in last.offsets.each)
        )

    @property
    def _partition(self) -> int:
        return self.replica.task.partition

    @property
    def _transactional_id(self) -> str:
        return transactional_id(self.job.environment.cluster, self.replica.task)

    def _later(self, last: CommitRecord, end: int) -> list[CommitRecord]:
        """Return the commit records of transactions after the last commit, which were aborted in the changelog."""
        values = self.job.broker.commit_records(self._partition, last.batch, end)
        return [each for each in map(decode_commit, values) if each.batch > last.batch]

    def _check_decided(self, later: Sequence[CommitRecord]) -> None:
        """Raise `StateMismatch` when the coordinator committed the newest one, but it was aborted in the changelog.

        The newest commit record shows the outcome of those before it (`check_aborted`).
        """
        if (
            later
            and not later[-1].is_bare
            and (ended := self._end_of_newest()) is not None
            and ended.is_committed
        ):
            raise lost_commit(later, self.replica.task)

    def _check_outputs(self, later: Sequence[CommitRecord]) -> None:
        """Raise `StateMismatch` when output of a commit was hanging and was aborted together with the next batch.

        Also when both hang in the same output now, one committed and the other not.
        """
        newest = _newest(later)
        if newest is None or not newest.unseen:
            return
        ends = {(topic, number): offset + 1 for topic, number, offset in newest.unseen}
        behind = self._await_ends(ends, _OPEN_SECONDS)
        touched = self._aborted_places() if behind else None
        if behind and (touched is None or touched & {*behind}):
            # The open transaction may belong to another task; Kafka aborts it after its time-out.
            behind = self._await_ends(ends, self._stable_seconds)
        # None: it is open, or was compacted. It is lost if a marker of the lost batch has ended it, or will end it.
        seen = [
            None if (topic, number) in behind else self.job.broker.is_visible((topic, number), offset)
            for topic, number, offset in newest.unseen
        ]
        if None in seen and not behind:
            touched = self._aborted_places()
        lost = [
            (topic, number, offset)
            for (topic, number, offset), is_seen in zip(newest.unseen, seen, strict=True)
            if is_seen is False or (is_seen is None and (touched is None or (topic, number) in touched))
        ]
        if lost:
            raise lost_outputs(lost, newest.batch, self.replica.task)

    def _aborted_places(self) -> frozenset[Place] | None:
        """Return the partitions that the task's transactions wrote to since its last commit; None when not known."""
        places: set[Place] = set()
        for each in self.job.broker.ended(self._partition, _FEW):
            if each.is_committed:
                return frozenset(places)
            places |= each.places
        return None

    def _end_of_newest(self) -> TransactionOutcome | None:
        """Return how the batch with the newest commit record ended, according to its coordinator; None: not known.

        A batch is always preceded by a committed transaction of the same producer. So a transaction that follows
        one of another producer, and was aborted before it wrote anywhere but the changelog, is not a batch: its
        commit record did not arrive.
        """
        ended = self.job.broker.ended(self._partition, _FEW)
        for each, former in itertools.zip_longest(ended, ended[1:]):
            is_alone = former is None or former.writer is None or former.writer != each.writer
            if each.is_committed or not each.topics <= {self.job.definition.changelog} or not is_alone:
                return each
        return None

    def _were_committed(self, open_ones: Sequence[CommitRecord]) -> bool:
        """Return whether the open transactions in the changelog were committed, if the offsets do not show it.

        Outputs show nothing: a marker in one partition may be missing in another, and an open transaction may be
        another task's. So the coordinator's decision is used. Raises `StateMismatch` when it cannot be determined.
        """
        _log.warning(
            "%s: commits %s have no end in changelog and offsets",
            *(self.replica, [each.batch for each in open_ones]),
        )
        if all(each.is_bare for each in open_ones):
            # They contain only what the coming claim commits again. A sweep could leave a transaction open where
            # none is now.
            return True
        if not any(each.outputs for each in open_ones):
            # None of it was visible to any reader, whatever its outcome.
            return False
        fates = {fate(open_ones, at) for at, each in enumerate(open_ones) if not each.is_bare}
        if None in fates:
            ended = self._end_of_newest()
            fates = fates - {None} | ({ended.is_committed} if ended is not None else {None})
        if None in fates or len(fates) != 1:
            listed = ", ".join(str(each.batch) for each in open_ones)
            why = "its coordinator's log, __transaction_state, may not be read, or does not tell"
            raise StateMismatch(
                f"{self.replica.task}: Kafka has left out the markers of commit {listed} in changelog and offsets, and "
                f"{why}, so it is unknown whether it was committed. Abort it in both with kafka-transactions.sh "
                f"({self._transactional_id}): its input is processed again then, and what "
                "it has written to the outputs may be there twice"
            )
        return bool(fates.pop())

    def _do_outputs_hang(self, later: Sequence[CommitRecord]) -> bool:
        """Return whether a transaction hangs in some output, not counting those that hung before ``later``."""
        ends = self.job.broker.output_ends()
        return not {*self._await_ends(ends, _OPEN_SECONDS)} <= _spared(later)

    def _sweep(self, later: Sequence[CommitRecord], *, may_be_batch: bool = True) -> None:
        """End what hangs with an aborted transaction; return once its marker is visible in each partition.

        Excepted is what hung in outputs before the ``later`` transactions began, because it was committed. If none
        of the ``later`` transactions had outputs, no output is written to: the sweep's own record might be left
        open there, too.
        """
        self._check_owner()
        has_outputs = may_be_batch and (not later or any(each.outputs for each in later))
        swept = self.writer.sweep(_spared(later) if has_outputs else self.job.broker.output_ends().keys())
        # Kafka may skip markers of this transaction as well.
        behind = self._await_ends(
            {place: offset + 1 for place, offset in swept.items()}, self._stable_seconds
        )
        if behind:
            listed = ", ".join(f"{topic}-{number}" for topic, number in sorted(behind))
            raise WriterLost(
                f"{self.replica}: no marker of the transaction that aborts what hangs is seen in {listed}; it is "
                "written again (kafka-transactions.sh find-hanging shows whose it is, if it never comes)"
            )

    def _commit(self, offsets: Offsets | None, batch: int, generation: int) -> None:
        """Make hanging committed transactions visible by committing the same offsets in another transaction."""
        assert offsets is not None, "they were committed as one"
        self._check_owner()
        said = CommitRecord(batch, self.epoch, self.job.definition.run, offsets, generation=generation)
        self.writer.begin(said.encode())
        self.writer.prepare(Outputs(), {}, offsets, said.metadata)
        self.writer.commit()

    def _check_owner(self) -> None:
        """Raise `Fenced` when the record now names another replica, or this one at another epoch.

        In that case, the open transactions may be that replica's. A replica that is named later fences this
        producer.
        """
        task = self.replica.task
        check_record(self.job.environment.records.read(task), task, self.replica.copy, self.epoch)

    @property
    def _stable_seconds(self) -> float:
        return self.job.config.transaction_timeout_ms / 1000 + _STABLE_GRACE_SECONDS

    def _await_stable(self, target: int) -> None:
        """Return once no open transaction keeps readers of the changelog below ``target``."""
        stable = self._stable_end(target, self._stable_seconds)
        if stable < target:
            raise Unavailable(
                f"{self.job.definition.changelog}-{self._partition}: a transaction that began at {stable} does not "
                f"end, though {self._transactional_id} is fenced: it is another producer's, or "
                f"its marker was lost; readers get no further towards {target} until it is ended "
                "(kafka-transactions.sh find-hanging)"
            )

    def _stable_end(self, end: int, seconds: float) -> int:
        """Return the changelog's last stable offset once it has reached ``end``, or when the time is up."""
        deadline, pause = self._now() + seconds, _FIRST_PAUSE_SECONDS
        while True:
            stable = self.job.broker.changelog_ends((self._partition,), is_stable=True)[self._partition]
            if stable >= end or self._now() > deadline:
                return stable
            pause = self._pause(pause)

    def _await_ends(self, ends: Mapping[Place, int], seconds: float) -> Collection[Place]:
        """Return the partitions whose last stable offset has not reached its end when the time is up."""
        deadline, pause = self._now() + seconds, _FIRST_PAUSE_SECONDS
        while True:
            stable = self.job.broker.stable_ends(ends) if ends else {}
            behind = [place for place, end in ends.items() if place not in stable or stable[place] < end]
            if not behind or self._now() > deadline:
                return behind
            pause = self._pause(pause)

    def _now(self) -> float:
        return self.job.environment.clock.monotonic()

    def _pause(self, seconds: float) -> float:
        """Wait; return how long to wait next time. Raises `WriterLost` when the run is cancelled."""
        if self.run.pause(seconds):
            raise WriterLost(f"{self.replica}: cancelled")
        return min(2 * seconds, _PAUSE_SECONDS)


def _newest(later: Sequence[CommitRecord]) -> CommitRecord | None:
    """Return the last batch among these commit records."""
    return next((each for each in reversed(later) if not each.is_bare), None)


def _spared(later: Sequence[CommitRecord]) -> frozenset[Place]:
    """Return the output partitions with hanging committed records, as recorded by the last batch of these."""
    newest = _newest(later)
    return frozenset() if newest is None else frozenset((topic, number) for topic, number, _ in newest.unseen)
