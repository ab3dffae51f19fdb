"""The one way to become active (rule `one-way`): record, fence, offsets, drain, claim, in this order."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from standby.errors import Unavailable
from standby.kernel.active.active import ActiveTask, Claim, Drained, Hooks, Seen
from standby.kernel.job import JobKernel
from standby.kernel.ports import Writer, WriterLost
from standby.kernel.probes import CLAIMED, DRAINED, OFFSETS_READ, RECORD_READ, WRITER_INITIALISED
from standby.kernel.replay.router import Replayed
from standby.kernel.replica.settling import Settling
from standby.kernel.run import Run, Tell
from standby.replica.accepted import task_offsets
from standby.replica.claim import StateMismatch, check_committed, check_last, check_record
from standby.replica.failing import failures_at
from standby.replica.lifecycle import Signal
from standby.shared.clock import Clock
from standby.shared.model import ReplicaId

_INITIALISE_SECONDS: Final = 30.0

#: A replay that does not move for so long while the broker answers will not move at all.
_STALL_SECONDS: Final = 30.0

_SLICE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Promotee:
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

    job: JobKernel

    def go(self, promotee: Promotee, tell: Callable[[Signal], None], tell_active: Tell) -> ActiveTask:
        """Return the active task once it is claimed; ``tell`` hears of each step on the way.

        The replay goes on until the changelog is drained, and has ended then.
        Raises `Fenced` when a newer owner exists, `WriterLost` and `Transient` when the whole way is worth
        another try, anything else of ours when it is not.
        """
        job, task = self.job, promotee.replica.task
        record = check_record(job.environment.records.read(task), task, promotee.replica.copy, promotee.epoch)
        self._pass(promotee, RECORD_READ)
        # Answered while the producer is initialised. What is made again later shows at the first commit.
        answer = job.identity.ask()
        promotee.writer.initialise(promotee.run.is_cancelled, _INITIALISE_SECONDS)
        answer()
        run = job.topics()
        self._pass(promotee, WRITER_INITIALISED)
        tell(Signal.WRITER_FENCED)
        settling = Settling(job, promotee.replica, promotee.epoch, promotee.writer, promotee.run)
        committed = settling.committed()
        if committed is not None:
            check_committed(committed, task, promotee.epoch)
        # Before the question: what is replayed while it is on its way belongs to the drain.
        applied = promotee.replayed.store.position.offset
        # Read uncommitted: an open transaction below it must be waited for, not stopped at (rule `drain-target`).
        end = settling.changelog_end()
        if settling.end_tail(end, committed, record):
            committed, end = settling.committed(), settling.changelog_end()
        self._pass(promotee, OFFSETS_READ)
        self._drain(promotee, end)
        promotee.replayed.store.serve()
        last = promotee.replayed.store.last_commit()
        check_last(last, task, promotee.epoch)
        settling.check_own(last, promotee.replayed.store.own_commit(), end)
        committed = settling.end_rest(last, end, committed, record)
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
            job.config.run_start,
            lambda: job.broker.input_bounds(task.partition),
        )
        self._pass(promotee, DRAINED)
        tell(Signal.DRAINED)
        claim = Claim(
            epoch=promotee.epoch,
            run=job.definition.run,
            committed=offsets,
            first_batch=end,
            generation=run.generation,
            failures=failures_at(record.failures, offsets.total),
            drained=Drained(applied, end),
        )
        environment = job.environment
        seen = Seen(
            job.broker, (job.definition.changelog, task.partition), job.config.transaction_timeout_ms / 1000
        )
        hooks = Hooks(tell_active, environment.clock, environment.probe, seen, job.identity.ask)
        active = ActiveTask(task, promotee.writer, promotee.replayed.store, claim, hooks)
        try:
            _wait(
                active.claim(), job.config.transaction_timeout_ms / 1000 + 5, promotee.run, environment.clock
            )
            self._pass(promotee, CLAIMED)
        except BaseException:
            active.abandon()
            raise
        tell(Signal.CLAIMED)
        return active

    def _pass(self, promotee: Promotee, point: str) -> None:
        """Go past a point of the way, unless it is called off."""
        self.job.environment.probe(point)
        if promotee.run.is_cancelled():
            raise WriterLost(f"{promotee.replica}: called off")

    def _drain(self, promotee: Promotee, target: int) -> None:
        """Return once the store has everything up to ``target``, where nothing is open below (rule `drain-target`)."""
        partition = promotee.replica.task.partition
        clock = self.job.environment.clock
        is_done = self.job.replay.drain(promotee.replayed, target)
        moved, position = clock.monotonic(), -1
        while not _wait_slice(is_done, promotee.run):
            now = clock.monotonic()
            if promotee.replayed.store.position.offset != position:
                moved, position = now, promotee.replayed.store.position.offset
            elif now - moved > _STALL_SECONDS:
                # Raises Transient, and so another try, while the broker is away.
                self.job.broker.changelog_ends((partition,))
                raise Unavailable(
                    f"{self.job.definition.changelog}-{partition}: the replay does not move on from {position} "
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


def _wait(future: Future[None], seconds: float, run: Run, clock: Clock) -> None:
    """Return once the future is done; raise what it failed with, `WriterLost` when that takes too long."""
    deadline = clock.monotonic() + seconds
    while not _wait_slice(future, run):
        if clock.monotonic() > deadline:
            raise WriterLost(f"no end of a transaction after {seconds:.0f} s")
