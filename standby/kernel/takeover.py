"""The one way to become active (design 4.1): record, fence, offsets, drain, claim, in this order."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from standby.config import JobConfig
from standby.errors import Unavailable
from standby.kernel.active import ActiveTask, Claim, Drained
from standby.kernel.active import Tell as TellActive
from standby.kernel.identity import Identity
from standby.kernel.lane import Run
from standby.kernel.ports import Broker, Writer, WriterLost
from standby.kernel.probes import CLAIMED, DRAINED, OFFSETS_READ, RECORD_READ, WRITER_INITIALISED, Probe
from standby.kernel.replay import Replay, Replayed
from standby.kernel.settling import Settling
from standby.model import ReplicaId
from standby.ports import RecordReader
from standby.replica.accepted import task_offsets
from standby.replica.claim import StateMismatch, check_committed, check_last, check_record
from standby.replica.failing import failures_at
from standby.replica.identity import RunTopics
from standby.replica.lifecycle import Signal
from standby.wire import JobDefinition

_INITIALISE_SECONDS: Final = 30.0

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


@dataclass(frozen=True, slots=True)
class Takeover:
    """Takes tasks of one job over, each on its own thread."""

    cluster: str
    config: JobConfig
    definition: JobDefinition
    topics: Callable[[], RunTopics]
    """What the run has recorded of its topics, which may come later than the definition."""
    broker: Broker
    identity: Identity
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
        # Answered while the producer is initialised. What is made again later shows at the first commit.
        answer = self.identity.ask()
        who.writer.initialise(who.run.is_cancelled, _INITIALISE_SECONDS)
        answer()
        run = self.topics()
        self._pass(who, WRITER_INITIALISED)
        tell(Signal.WRITER_FENCED)
        settling = Settling(
            replica=who.replica,
            epoch=who.epoch,
            writer=who.writer,
            run=who.run,
            cluster=self.cluster,
            config=self.config,
            definition=self.definition,
            broker=self.broker,
            records=self.records,
        )
        committed = settling.committed()
        if committed is not None:
            check_committed(committed, task, who.epoch)
        # Before the question: what is replayed while it is on its way belongs to the drain.
        applied = who.replayed.store.position.offset
        # Read uncommitted: an open transaction below it must be waited for, not stopped at (design 4.3).
        end = settling.changelog_end()
        if settling.end_tail(end, committed, record):
            committed, end = settling.committed(), settling.changelog_end()
        self._pass(who, OFFSETS_READ)
        self._drain(who, end)
        who.replayed.store.serve()
        last = who.replayed.store.last_commit()
        check_last(last, task, who.epoch)
        committed = settling.end_rest(last, end, committed)
        if applied > end:
            raise StateMismatch(
                f"{task}: its state is at {applied}, past the end {end} of its changelog: "
                "what was committed to that is lost (was it truncated by an unclean leader election?). Bring the "
                "changelog back, or delete the job and submit it anew"
            )
        offsets = task_offsets(
            committed,
            last,
            record,
            run,
            self.config.run_start,
            lambda: self.broker.input_bounds(task.partition),
        )
        self._pass(who, DRAINED)
        tell(Signal.DRAINED)
        active = ActiveTask(
            task,
            who.writer,
            who.replayed.store,
            offsets,
            Claim(who.epoch, self.definition.run, end, run.generation),
            tell=tell_active,
            clock=self.clock,
            probe=self.probe,
            failures=failures_at(record.failures, offsets.total),
            drained=Drained(applied, end),
            ask_topics=self.identity.ask,
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

    def _drain(self, who: Candidate, target: int) -> None:
        """Return once the store has everything up to ``target``, where nothing is open below (design 4.3)."""
        partition = who.replica.task.partition
        is_done = self.replay.drain(who.replayed, target)
        moved, position = time.monotonic(), -1
        while not _wait_slice(is_done, who.run):
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
