"""The one way to become active (design 4.1): record, fence, offsets, drain, claim, in this order."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from standby.config import JobConfig
from standby.errors import Transient, Unavailable
from standby.kernel.active import ActiveTask, Drained
from standby.kernel.active import Tell as TellActive
from standby.kernel.lane import Run
from standby.kernel.ports import Broker, Writer, WriterLost
from standby.kernel.probes import CLAIMED, DRAINED, OFFSETS_READ, RECORD_READ, WRITER_INITIALISED, Probe
from standby.kernel.replay import Replay, Replayed
from standby.model import Offsets, ReplicaId
from standby.naming import transactional_id
from standby.ports import RecordReader
from standby.replica.claim import Committed, check_committed, check_record, claim_text, first_offsets
from standby.replica.failing import failures_at
from standby.replica.lifecycle import Signal
from standby.wire import JobDefinition

_INITIALISE_SECONDS: Final = 30.0

#: Above the transaction's time-out by the broker's own interval for looking for such transactions.
_STABLE_GRACE_SECONDS: Final = 15.0

#: A replay that does not move for so long while the broker answers will not move at all.
_STALL_SECONDS: Final = 30.0

_SLICE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who wants to become active, and on what."""

    replica: ReplicaId
    epoch: int
    replayed: Replayed
    """Its replay, which must be running."""
    writer: Writer
    run: Run
    unsettled: Offsets | None = None
    """Where the last batch ends that was begun here, if nothing is known of its end."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """Takes tasks of one job over, each on its own thread."""

    cluster: str
    config: JobConfig
    definition: JobDefinition
    broker: Broker
    replay: Replay
    records: RecordReader
    clock: Callable[[], int]
    probe: Probe

    def go(self, who: Candidate, tell: Callable[[Signal], None], tell_active: TellActive) -> ActiveTask:
        """Return the active task once it is claimed; ``tell`` hears of each step on the way.

        The replay goes on until the changelog is drained, and has ended then.
        Raises `Fenced` when a newer owner exists, `WriterLost` and `Transient` when the whole way is worth
        another try, anything else of ours when it is not.
        """
        task = who.replica.task
        record = check_record(self.records.read(task), task, who.replica.copy, who.epoch)
        self._pass(who, RECORD_READ)
        who.writer.initialise(who.run.is_cancelled, _INITIALISE_SECONDS)
        self._pass(who, WRITER_INITIALISED)
        tell(Signal.WRITER_FENCED)
        committed = self._committed(who)
        check_committed(committed, task, who.epoch)
        offsets = first_offsets(
            committed, record, self.config.run_start, lambda: self.broker.input_bounds(task.partition)
        )
        if who.unsettled is not None and not offsets.reaches(who.unsettled):
            self._sweep(who)
        self._pass(who, OFFSETS_READ)
        drained = self._drain(who)
        who.replayed.store.serve()
        self._pass(who, DRAINED)
        tell(Signal.DRAINED)
        active = ActiveTask(
            task,
            who.writer,
            who.replayed.store,
            offsets,
            claim_text(who.epoch, self.definition.run),
            tell=tell_active,
            clock=self.clock,
            probe=self.probe,
            failures=failures_at(record.failures, offsets.total),
            drained=drained,
        )
        try:
            _wait(active.claim(), self.config.transaction_timeout_ms / 1000 + 5, who.run)
            self._pass(who, CLAIMED)
        except BaseException:
            active.abandon()
            raise
        tell(Signal.CLAIMED)
        return active

    def _pass(self, who: Candidate, point: str) -> None:
        """Go past a point of the way, unless it is called off."""
        self.probe(point)
        if who.run.is_cancelled():
            raise WriterLost(f"{who.replica}: called off")

    def _committed(self, who: Candidate) -> Sequence[Committed | None]:
        """Return the stable committed offset of each input; raises `Transient` when there is no answer.

        There may be none for good: the marker that ends a transaction may be missing among the offsets (`_sweep`).
        """
        partition = who.replica.task.partition
        try:
            return self.broker.committed((partition,))[partition]
        except Transient:
            self._sweep(who)
            raise

    def _sweep(self, who: Candidate) -> None:
        """End what may be left of the task's last transaction, which was not committed.

        Kafka takes a partition without a leader for a deleted one, and skips it when it writes the markers that end a
        transaction (docs/decisions/0016). There it stays open: readers wait below it. Only another marker of the same
        producer id ends it, and it must be one that aborts: the next commit's would show, and so double, what hangs.
        """
        who.writer.sweep()

    def _drain(self, who: Candidate) -> Drained:
        """Return once the store has everything up to the changelog's end after the fence (design 4.3)."""
        partition = who.replica.task.partition
        # Before the question: what is replayed while it is on its way belongs to the drain.
        applied = who.replayed.store.position.offset
        # Read uncommitted: an open transaction below it must be waited for, not stopped at.
        target = self.broker.changelog_ends((partition,))[partition]
        self._await_stable(who, target)
        drained = self.replay.drain(who.replayed, target)
        moved, position = time.monotonic(), -1
        while not _wait_slice(drained, who.run):
            now = time.monotonic()
            if who.replayed.store.position.offset != position:
                moved, position = now, who.replayed.store.position.offset
            elif now - moved > _STALL_SECONDS:
                # Raises Transient, and so another try, while the broker is away.
                self.broker.changelog_ends((partition,))
                raise Unavailable(
                    f"{self.definition.changelog}-{partition}: the replay does not move on from {position} "
                    f"towards {target} for {_STALL_SECONDS:.0f} s"
                )
        return Drained(applied, target)

    def _await_stable(self, who: Candidate, target: int) -> None:
        """Return once no open transaction holds readers below ``target``."""
        task = who.replica.task
        deadline = time.monotonic() + self.config.transaction_timeout_ms / 1000 + _STABLE_GRACE_SECONDS
        pause = 0.002
        while True:
            stable = self.broker.changelog_ends((task.partition,), is_stable=True)[task.partition]
            if stable >= target:
                return
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{self.definition.changelog}-{task.partition}: a transaction that began at {stable} does not "
                    f"end, though {transactional_id(self.cluster, task)} is fenced: it is another producer's, or its "
                    f"marker was lost; readers get no further towards {target} until it is ended "
                    "(kafka-transactions.sh find-hanging)"
                )
            if who.run.pause(pause):
                raise WriterLost(f"{who.replica}: called off")
            pause = min(2 * pause, 0.1)


def _wait_slice(future: Future[None], run: Run) -> bool:
    """Wait a little for the future; return whether it is done, raise what it failed with or `WriterLost`."""
    done, _ = concurrent.futures.wait((future,), _SLICE_SECONDS)
    if done:
        future.result()
        return True
    if run.is_cancelled():
        raise WriterLost("called off")
    return False


def _wait(future: Future[None], seconds: float, run: Run) -> None:
    """Return once the future is done; raise what it failed with, `WriterLost` when that takes too long."""
    deadline = time.monotonic() + seconds
    while not _wait_slice(future, run):
        if time.monotonic() > deadline:
            raise WriterLost(f"no end of a transaction after {seconds:.0f} s")
