"""The only way to become active (rule `one-way`): record, fence, offsets, drain, claim, in this order."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from standby.errors import Unavailable
from standby.kernel.active.active import ActiveHooks, ActiveTask, Claim, Drained, MarkerLookup
from standby.kernel.cancel_scope import CancelScope, ReportSignal
from standby.kernel.job import JobKernel
from standby.kernel.ports import Writer, WriterLost
from standby.kernel.probes import CLAIMED, DRAINED, OFFSETS_READ, RECORD_READ, WRITER_INITIALISED
from standby.kernel.replay.replayer import Replayed
from standby.kernel.replica.settling import TransactionSettlement
from standby.replica.accepted import task_offsets
from standby.replica.claim import StateMismatch, check_committed, check_last, check_record
from standby.replica.failing import failures_at
from standby.replica.lifecycle import Signal
from standby.shared.clock import Clock
from standby.shared.model import ReplicaId

_log: Final = logging.getLogger(__name__)

_INITIALISE_SECONDS: Final = 30.0

#: A replay without progress for this long, while the broker answers, is considered stuck.
_STALL_SECONDS: Final = 30.0

_SLICE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Promotee:
    """The replica that is to become active, and its resources."""

    replica: ReplicaId
    epoch: int
    replayed: Replayed
    """The replay of its changelog, which must be running."""
    writer: Writer
    run: CancelScope


@dataclass(frozen=True, slots=True)
class Takeover:
    """Takes over tasks of one job, each on its own thread."""

    job: JobKernel

    def go(self, promotee: Promotee, tell: Callable[[Signal], None], tell_active: ReportSignal) -> ActiveTask:
        """Return the active task once it is claimed; ``tell`` is called after each step.

        The replay continues until the changelog is drained, and then ends. Raises `Fenced` when a newer owner
        exists, `WriterLost` and `Transient` when the whole takeover may be retried, and other `StandfastError` when
        it may not.
        """
        job, task = self.job, promotee.replica.task
        took = _Course(job.environment.clock)
        record = check_record(job.environment.records.read(task), task, promotee.replica.copy, promotee.epoch)
        self._pass(promotee, RECORD_READ, took)
        # The requests run while the producer is initialised. A topic that is recreated later is detected at the
        # first commit.
        job.broker.connect()
        answer = job.identity.ask()
        promotee.writer.initialise(promotee.run.is_cancelled, _INITIALISE_SECONDS)
        answer()
        run = job.topics()
        self._pass(promotee, WRITER_INITIALISED, took)
        tell(Signal.WRITER_FENCED)
        settling = TransactionSettlement(job, promotee.replica, promotee.epoch, promotee.writer, promotee.run)
        committed = settling.committed()
        if committed is not None:
            check_committed(committed, task, promotee.epoch)
        # Read before the end is requested: what is replayed during that request belongs to the drain.
        applied = promotee.replayed.store.position.offset
        # Read uncommitted: the drain must wait for an open transaction below the end, not stop at it (rule
        # `drain-target`).
        end = settling.changelog_end()
        if settling.end_tail(end, committed, record):
            committed, end = settling.committed(), settling.changelog_end()
        self._pass(promotee, OFFSETS_READ, took)
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
        self._pass(promotee, DRAINED, took)
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
        seen = MarkerLookup(
            job.broker, (job.definition.changelog, task.partition), job.config.transaction_timeout_ms / 1000
        )
        hooks = ActiveHooks(tell_active, environment.clock, environment.probe, seen, job.identity.ask)
        active = ActiveTask(task, promotee.writer, promotee.replayed.store, claim, hooks)
        try:
            _wait(
                active.claim(), job.config.transaction_timeout_ms / 1000 + 5, promotee.run, environment.clock
            )
            self._pass(promotee, CLAIMED, took)
        except BaseException:
            active.abandon()
            raise
        tell(Signal.CLAIMED)
        _log.info("%s: taken over at epoch %d: %s", promotee.replica, promotee.epoch, took)
        return active

    def _pass(self, promotee: Promotee, point: str, took: _Course) -> None:
        """Pass a probe point of the takeover. Raises `WriterLost` when the run is cancelled."""
        took.note(point.removeprefix("takeover: "))
        self.job.environment.probe(point)
        if promotee.run.is_cancelled():
            raise WriterLost(f"{promotee.replica}: cancelled")

    def _drain(self, promotee: Promotee, target: int) -> None:
        """Return once the store has everything up to ``target``; nothing is open below it (rule `drain-target`)."""
        partition = promotee.replica.task.partition
        clock = self.job.environment.clock
        is_done = self.job.replay.drain(promotee.replayed, target)
        moved, position = clock.monotonic(), -1
        while not _wait_slice(is_done, promotee.run):
            now = clock.monotonic()
            if promotee.replayed.store.position.offset != position:
                moved, position = now, promotee.replayed.store.position.offset
            elif now - moved > _STALL_SECONDS:
                # While the broker is away, this raises `Transient`, so the takeover is retried.
                self.job.broker.changelog_ends((partition,))
                raise Unavailable(
                    f"{self.job.definition.changelog}-{partition}: the replay does not move on from {position} "
                    f"towards {target} for {_STALL_SECONDS:.0f} s"
                )


class _Course:
    """How long each step of a takeover took, in milliseconds, for the log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self._steps: list[tuple[str, float]] = []

    def note(self, point: str) -> None:
        """Take note of the end of a step."""
        last, self._last = self._last, self._clock.monotonic()
        self._steps.append((point, 1000 * (self._last - last)))

    def __str__(self) -> str:
        whole = sum(each for _, each in self._steps)
        return f"{whole:.0f} ms ({', '.join(f'{point} after {each:.0f}' for point, each in self._steps)})"


def _wait_slice(future: Future[None], run: CancelScope) -> bool:
    """Wait briefly for the future; return whether it is done. Raises its error, or `WriterLost` when cancelled."""
    done, _ = concurrent.futures.wait((future,), _SLICE_SECONDS)
    if done:
        future.result()
        return True
    if run.is_cancelled():
        raise WriterLost("cancelled")
    return False


def _wait(future: Future[None], seconds: float, run: CancelScope, clock: Clock) -> None:
    """Return once the future is done. Raises its error, or `WriterLost` when it takes too long."""
    deadline = clock.monotonic() + seconds
    while not _wait_slice(future, run):
        if clock.monotonic() > deadline:
            raise WriterLost(f"no end of a transaction after {seconds:.0f} s")
