"""Ends what former transactions of a task have left open, each the way that it ended (docs/decisions/0016)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from standby.errors import Unavailable
from standby.kernel.job import JobKernel
from standby.kernel.ports import Ended, OffsetsUnstable, Place, Writer, WriterLost
from standby.kernel.run import Run
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
from standby.shared.model import Offsets, ReplicaId, TaskRecord
from standby.shared.naming import transactional_id

_log: Final = logging.getLogger(__name__)

#: Above the transaction's time-out by the broker's own interval for looking for such transactions.
_STABLE_GRACE_SECONDS: Final = 15.0

#: For so long what is open in a partition may be a transaction of somebody else, which ends by itself. Those of the
#: task have ended when its producer is initialised.
_OPEN_SECONDS: Final = 1.0

#: So many of the task's last transactions are looked for in the coordinator's log. Those that it begins between two
#: batches are a few.
_FEW: Final = 20

#: Between the first two looks at what ends in a moment, as a rule, and between two at most.
_FIRST_PAUSE_SECONDS: Final = 0.002
_PAUSE_SECONDS: Final = 0.1

#: The committed offsets of the inputs, in their order; None for all: they are not stable.
_Answer = Sequence["Committed | None"] | None


@dataclass(frozen=True, slots=True)
class Settling:
    """One replica's, after its fence: no transaction of the task goes on any more.

    Kafka takes a partition without a leader for a deleted one, and skips it when it writes the markers that end a
    transaction. There it stays open, and readers wait below it, until another marker of the same producer id ends it,
    together with all else of that producer. So what was aborted must be ended by a transaction that aborts (a sweep),
    or the next commit would show it; and what was committed by one that commits, or it would be gone. Which it is,
    is known by the commit records and the committed offsets, and never guessed by a question without an answer.
    """

    job: JobKernel
    replica: ReplicaId
    epoch: int
    writer: Writer
    run: Run

    def committed(self) -> _Answer:
        """Return the committed offset of each input, None when a transaction is open among them.

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
        """End what hangs in the changelog below ``end``, as it ended; return whether there was any.

        Nothing is open from then on. Raises `StateMismatch` when it cannot be told how it ended, and `Unavailable`
        for what is not the task's, or of a release without commit records.
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

        That can be where the replica has made it itself: ``own`` is the last of those. Nothing is open below ``end``.
        """
        if last is None or last.batch != own:
            return
        there = self.job.broker.commit_records(self._partition, max(0, last.batch - 1), end, is_stable=True)
        if all(decode_commit(each).batch != last.batch for each in there):
            raise lost_commit((last,), self.replica.task)

    def end_rest(
        self, last: CommitRecord | None, end: int, committed: _Answer, record: TaskRecord
    ) -> Sequence[Committed | None]:
        """End what hangs among the offsets and in the outputs; return the committed offsets.

        Nothing hangs in the changelog below ``end``, so ``last`` is the last commit. What was begun after it, there,
        was aborted. Where that had nothing but offsets, all that hangs is of the last commit, and is seen with the next
        one.
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
            # Of a release without commit records it is nearly always a batch that was aborted. Before the first claim
            # there is no batch.
            self._check_decided(later)
            self._sweep(later, may_be_batch=last is not None or record.claimed)
        else:
            self._commit(last.offsets, last.batch + 1, last.generation)
        told = self.job.broker.committed((self._partition,))[self._partition]
        return told if last is None else tuple(Committed(each, last.metadata) for each in last.offsets.each)

    @property
    def _partition(self) -> int:
        return self.replica.task.partition

    @property
    def _transactional_id(self) -> str:
        return transactional_id(self.job.environment.cluster, self.replica.task)

    def _later(self, last: CommitRecord, end: int) -> list[CommitRecord]:
        """Return what was begun after the last commit, and aborted in the changelog."""
        values = self.job.broker.commit_records(self._partition, last.batch, end)
        return [each for each in map(decode_commit, values) if each.batch > last.batch]

    def _check_decided(self, later: Sequence[CommitRecord]) -> None:
        """Raise `StateMismatch` when the coordinator has committed the newest, though it was aborted in the changelog.

        What became of those before it is known by it (`check_aborted`).
        """
        if (
            later
            and not later[-1].is_bare
            and (ended := self._end_of_newest()) is not None
            and ended.is_committed
        ):
            raise lost_commit(later, self.replica.task)

    def _check_outputs(self, later: Sequence[CommitRecord]) -> None:
        """Raise `StateMismatch` when what hung in outputs of a commit was aborted there, together with the next batch.

        Or when both hang there now, the one committed, and the other not.
        """
        newest = _newest(later)
        if newest is None or not newest.unseen:
            return
        ends = {(topic, number): offset + 1 for topic, number, offset in newest.unseen}
        behind = self._await_ends(ends, _OPEN_SECONDS)
        touched = self._aborted_places() if behind else frozenset()
        if behind and (touched is None or touched & {*behind}):
            # It may be another task's that holds readers back, which Kafka aborts in time.
            behind = self._await_ends(ends, self._stable_seconds)
        lost = [
            (topic, number, offset)
            for topic, number, offset in newest.unseen
            if (
                touched is None or (topic, number) in touched
                if (topic, number) in behind
                else not self.job.broker.is_visible((topic, number), offset)
            )
        ]
        if lost:
            raise lost_outputs(lost, newest.batch, self.replica.task)

    def _aborted_places(self) -> frozenset[Place] | None:
        """Return where the task's transactions since its last commit have written to; None when that is not known."""
        places: set[Place] = set()
        for each in self.job.broker.ended(self._partition, _FEW):
            if each.is_committed:
                return frozenset(places)
            places |= each.places
        return None

    def _end_of_newest(self) -> Ended | None:
        """Return how that with the newest commit record, a batch, has ended, by its coordinator; None: it is not known.

        A batch has a transaction of the same producer before it, which was committed. So one of another producer than
        that before, aborted before it wrote anywhere else, is no batch: its commit record did not arrive.
        """
        ended = self.job.broker.ended(self._partition, _FEW)
        for each, former in itertools.zip_longest(ended, ended[1:]):
            is_alone = former is None or former.writer is None or former.writer != each.writer
            if each.is_committed or not each.topics <= {self.job.definition.changelog} or not is_alone:
                return each
        return None

    def _were_committed(self, open_ones: Sequence[CommitRecord]) -> bool:
        """Return whether what is open in the changelog was committed, where the offsets do not tell.

        Outputs tell nothing: a marker that is there may be one that another partition lacks, and what is open in one
        may be another task's. So it is what the coordinator has decided. Raises `StateMismatch` when that cannot be
        told.
        """
        _log.warning(
            "%s: commits %s have no end in changelog and offsets",
            *(self.replica, [each.batch for each in open_ones]),
        )
        if all(each.is_bare for each in open_ones):
            # Nothing but what the claim to come commits again. A sweep could leave something open where nothing is.
            return True
        if not any(each.outputs for each in open_ones):
            # Nobody has seen anything of it, whatever became of it.
            return False
        fates = {fate(open_ones, at) for at, each in enumerate(open_ones) if not each.is_bare}
        if None in fates:
            ended = self._end_of_newest()
            fates = fates - {None} | ({ended.is_committed} if ended is not None else {None})
        if None in fates or len(fates) != 1:
            told = ", ".join(str(each.batch) for each in open_ones)
            why = "its coordinator's log, __transaction_state, may not be read, or does not tell"
            raise StateMismatch(
                f"{self.replica.task}: Kafka has left out the markers of commit {told} in changelog and offsets, and "
                f"{why}, so nobody knows whether it was committed. Abort it in both with kafka-transactions.sh "
                f"({self._transactional_id}): its input is processed again then, and what "
                "it has written to the outputs may be there twice"
            )
        return bool(fates.pop())

    def _do_outputs_hang(self, later: Sequence[CommitRecord]) -> bool:
        """Return whether what is open in some output now does not end, beside what hung before ``later``."""
        ends = self.job.broker.output_ends()
        return not {*self._await_ends(ends, _OPEN_SECONDS)} <= _spared(later)

    def _sweep(self, later: Sequence[CommitRecord], *, may_be_batch: bool = True) -> None:
        """End all that hangs by a transaction that aborts; return when its marker is seen in each partition.

        Not what hung in outputs before those that were begun ``later``: it was committed. So no output is written to
        where none of those had any; the sweep's own record might stay open there, too.
        """
        self._check_owner()
        has_outputs = may_be_batch and (not later or any(each.outputs for each in later))
        swept = self.writer.sweep(_spared(later) if has_outputs else self.job.broker.output_ends().keys())
        # The marker of this very transaction may be left out as well.
        behind = self._await_ends(
            {place: offset + 1 for place, offset in swept.items()}, self._stable_seconds
        )
        if behind:
            told = ", ".join(f"{topic}-{number}" for topic, number in sorted(behind))
            raise WriterLost(
                f"{self.replica}: no marker of the transaction that aborts what hangs is seen in {told}; it is "
                "written again (kafka-transactions.sh find-hanging shows whose it is, if it never comes)"
            )

    def _commit(self, offsets: Offsets | None, batch: int, generation: int) -> None:
        """Have what hangs of committed transactions be seen: by another one that commits the same offsets."""
        assert offsets is not None, "they were committed as one"
        self._check_owner()
        said = CommitRecord(batch, self.epoch, self.job.definition.run, offsets, generation=generation)
        self.writer.begin(said.encode())
        self.writer.prepare((), {}, offsets, said.metadata)
        self.writer.commit()

    def _check_owner(self) -> None:
        """Raise `Fenced` when the record names another replica, or this one at another epoch, by now.

        Then what hangs may be its. One that is named later fences this producer.
        """
        task = self.replica.task
        check_record(self.job.environment.records.read(task), task, self.replica.copy, self.epoch)

    @property
    def _stable_seconds(self) -> float:
        return self.job.config.transaction_timeout_ms / 1000 + _STABLE_GRACE_SECONDS

    def _await_stable(self, target: int) -> None:
        """Return once no open transaction holds readers of the changelog below ``target``."""
        stable = self._stable_end(target, self._stable_seconds)
        if stable < target:
            raise Unavailable(
                f"{self.job.definition.changelog}-{self._partition}: a transaction that began at {stable} does not "
                f"end, though {self._transactional_id} is fenced: it is another producer's, or "
                f"its marker was lost; readers get no further towards {target} until it is ended "
                "(kafka-transactions.sh find-hanging)"
            )

    def _stable_end(self, end: int, seconds: float) -> int:
        """Return the changelog's last stable offset, once it has reached ``end`` or the time is over."""
        deadline, pause = self._now() + seconds, _FIRST_PAUSE_SECONDS
        while True:
            stable = self.job.broker.changelog_ends((self._partition,), is_stable=True)[self._partition]
            if stable >= end or self._now() > deadline:
                return stable
            pause = self._pause(pause)

    def _await_ends(self, ends: Mapping[Place, int], seconds: float) -> Collection[Place]:
        """Return the places whose last stable offset has not reached its end when the time is over."""
        deadline, pause = self._now() + seconds, _FIRST_PAUSE_SECONDS
        while True:
            stable = self.job.broker.stable_ends(ends) if ends else {}
            behind = [place for place, end in ends.items() if stable.get(place, -1) < end]
            if not behind or self._now() > deadline:
                return behind
            pause = self._pause(pause)

    def _now(self) -> float:
        return self.job.environment.clock.monotonic()

    def _pause(self, seconds: float) -> float:
        """Wait; return how long to wait the next time. Raises `WriterLost` when it is called off."""
        if self.run.pause(seconds):
            raise WriterLost(f"{self.replica}: called off")
        return min(2 * seconds, _PAUSE_SECONDS)


def _newest(later: Sequence[CommitRecord]) -> CommitRecord | None:
    """Return the last batch among these."""
    return next((each for each in reversed(later) if not each.is_bare), None)


def _spared(later: Sequence[CommitRecord]) -> frozenset[Place]:
    """Return where something committed hangs in outputs, as far as the last batch among these tells."""
    newest = _newest(later)
    return frozenset() if newest is None else frozenset((topic, number) for topic, number, _ in newest.unseen)
