"""Ends what former transactions of a task have left open, each the way that it ended (docs/decisions/0016)."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from standby.errors import Unavailable
from standby.kernel.job import JobKernel
from standby.kernel.ports import Ended, OffsetsUnstable, Place, Writer, WriterLost
from standby.kernel.run import Run
from standby.model import Offsets, ReplicaId, TaskRecord
from standby.naming import transactional_id
from standby.replica.accepted import known_generation
from standby.replica.claim import (
    CommitRecord,
    Committed,
    StateMismatch,
    check_aborted,
    check_record,
    decode_commit,
    is_committed,
    lost_commit,
    offsets_of,
)

_log: Final = logging.getLogger(__name__)

#: Above the transaction's time-out by the broker's own interval for looking for such transactions.
_STABLE_GRACE_SECONDS: Final = 15.0

#: For so long what is open in a partition may be a transaction of somebody else, which ends by itself. Those of the
#: task have ended when its producer is initialised.
_OPEN_SECONDS: Final = 1.0

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
                    self._sweep()
            elif is_committed([each.batch for each in open_ones], committed, record):
                self._commit(offsets_of(committed), end, known_generation(committed, None))
            else:
                self._sweep()
        self._await_stable(end)
        return True

    def end_rest(self, last: CommitRecord | None, end: int, committed: _Answer) -> Sequence[Committed | None]:
        """End what hangs among the offsets and in the outputs; return the committed offsets.

        Nothing hangs in the changelog below ``end``, so ``last`` is the last commit. What was begun after it, there,
        was aborted. Where none of that had outputs, all that hangs there is of the last commit, and is seen with the
        next one.
        """
        later = self._later(last, end) if last is not None and last.end < end else []
        is_later = any(each.outputs for each in later)
        if last is not None:
            check_aborted(later, last, self.replica.task)
        if committed is not None:
            if is_later and self._do_outputs_hang():
                self._sweep()
            return committed
        if last is None or is_later:
            # Of a release without commit records it is nearly always a batch that was aborted.
            self._check_decided(later)
            self._sweep()
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
        """Raise `StateMismatch` when the coordinator has committed one that was aborted in the changelog."""
        ended = self._ended(len(later)) if later else ()
        if any(each.is_committed for each in ended):
            raise lost_commit(later, self.replica.task)

    def _ended(self, count: int) -> Sequence[Ended]:
        """Return how those ended that have the last ``count`` commit records; one more where that is not sure."""
        ended = self.job.broker.ended(self._partition, count + 1)
        if ended and not ended[0].is_committed and ended[0].topics <= {self.job.definition.changelog}:
            # Its own commit record may not have arrived; then it is of those before it.
            count += 1
        return ended[:count]

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
        if not any(each.outputs for each in open_ones):
            # Nobody has seen anything of it, whatever became of it.
            return False
        ended = self._ended(len(open_ones))
        fates = {each.is_committed for each in ended}
        if len(ended) < len(open_ones) or len(fates) != 1:
            told = ", ".join(str(each.batch) for each in open_ones)
            why = "its coordinator's log, __transaction_state, may not be read, or does not tell"
            raise StateMismatch(
                f"{self.replica.task}: Kafka has left out the markers of commit {told} in changelog and offsets, and "
                f"{why}, so nobody knows whether it was committed. Abort it in both with kafka-transactions.sh "
                f"({self._transactional_id}): its input is processed again then, and what "
                "it has written to the outputs may be there twice"
            )
        return fates.pop()

    def _do_outputs_hang(self) -> bool:
        """Return whether what is open in some output now does not end."""
        ends = self.job.broker.output_ends()
        return bool(self._await_ends(ends, _OPEN_SECONDS))

    def _sweep(self) -> None:
        """End all that hangs by a transaction that aborts; return when its marker is seen in each partition."""
        self._check_owner()
        swept = self.writer.sweep()
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
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
        while True:
            stable = self.job.broker.changelog_ends((self._partition,), is_stable=True)[self._partition]
            if stable >= end or time.monotonic() > deadline:
                return stable
            pause = self._pause(pause)

    def _await_ends(self, ends: Mapping[Place, int], seconds: float) -> Collection[Place]:
        """Return the places whose last stable offset has not reached its end when the time is over."""
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
        while True:
            stable = self.job.broker.stable_ends(ends) if ends else {}
            behind = [place for place, end in ends.items() if stable.get(place, -1) < end]
            if not behind or time.monotonic() > deadline:
                return behind
            pause = self._pause(pause)

    def _pause(self, seconds: float) -> float:
        """Wait; return how long to wait the next time. Raises `WriterLost` when it is called off."""
        if self.run.pause(seconds):
            raise WriterLost(f"{self.replica}: called off")
        return min(2 * seconds, _PAUSE_SECONDS)
