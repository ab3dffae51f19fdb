"""Runs one replica: executes the effects that its lifecycle requires (`standby.replica.lifecycle`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from standby.errors import BrokenInvariant, CorruptState, Fenced, StandfastError, Transient, Unavailable
from standby.kernel.active.active import ActiveTask
from standby.kernel.active.stall_detectors import InputLag, InputStallDetector, PromotionStallDetector
from standby.kernel.cancel_scope import CancelScope, ReportSignal
from standby.kernel.job import JobKernel
from standby.kernel.ports import InUse, Writer, WriterLost
from standby.kernel.replay.replayer import Replayed
from standby.kernel.replica.offers import offer_of
from standby.kernel.replica.restore import Restore
from standby.kernel.replica.takeover import Promotee, Takeover
from standby.kernel.restore.snapshots import Offer
from standby.kernel.store.lock_owner import in_use_text, note_owner
from standby.kernel.store.store import TaskStore, wipe_store
from standby.replica.failing import doubled_seconds
from standby.replica.identity import TopicChanged
from standby.replica.lifecycle import ENDED, RUNNING, TAKING_OVER, Effect, Replica, Signal
from standby.replica.store.origin import BeginningLost
from standby.shared.errortext import DETAIL_CHARACTERS, clean, first_line, summary_of
from standby.shared.model import Fault, Phase, ReplicaStatus, Role
from standby.threads.worker import Worker

_log: Final = logging.getLogger(__name__)

#: After this many lost claims in a row, without a commit in between, the replica stops by itself.
_FENCES: Final = 5

#: Back-off before another attempt to become active: after the first failure, and the maximum.
_FIRST_RETRY_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 2.0

#: After a failed flush, wait this long before the next attempt and the next warning.
_FLUSH_RETRY_MS: Final = 30_000

#: After more than this many restores from scratch in a row, without catching up in between, the replica has failed.
_RESTORES: Final = 3

#: The detail that a replica reports while its restore is paused by configuration.
_PAUSED: Final = "not replayed for now: job.restore.paused"


@dataclass(frozen=True, slots=True)
class RunResult:
    """A result of a run of a replica's work."""

    held: ReplicaRunner
    run: CancelScope
    signal: Signal
    detail: str
    """The reason."""
    fault: Fault = Fault.OTHER
    """The kind of a failure."""


class ReplicaRunner:
    """A replica's store, producer and threads.

    The conductor calls `move` and reads the state. Effects run sequentially on the replica's own worker, so an
    order never starts while an earlier one is half done.
    """

    def __init__(self, replica: Replica, job: JobKernel, post: Callable[[RunResult], None]) -> None:
        """``post`` receives the results; it is called from any thread."""
        self.replica = replica
        self.job: Final = job
        self._clock: Final = job.environment.clock
        self.since_ms = self._clock.now_ms()
        self._entered: dict[Phase, int] = {}
        self.detail = ""
        self.fault = Fault.OTHER
        """Why the replica has failed, if it has."""
        self.is_next = False
        """Whether a planned promotion of this replica is imminent."""
        self.is_paused = False
        """Whether its replay is paused while it is not in sync."""
        self.active: ActiveTask | None = None
        self.halting_since: float | None = None
        """Monotonic time of the oldest pending order to halt."""
        self.closing_since: float | None = None
        """Monotonic time at which the store began to close; None while it is not being closed."""
        self._progress = InputStallDetector()
        self._input_lag = InputLag()
        self._way = PromotionStallDetector()
        self._ways = 0
        """Number of attempts to become active."""
        self._post = post
        self._worker = Worker(f"replica-{replica.id}").start()
        self._run = CancelScope(self._clock.pace)
        self._store: TaskStore | None = None
        self._directory: Path | None = None
        self._restore: Final = Restore(
            job, replica.id.task, lambda: self.replica.role is Role.ACTIVE, self._say
        )
        self._replayed: Replayed | None = None
        self._writer: Writer | None = None
        #: The former active task after it has ended: its failures are reported together with the end.
        self._ended: ActiveTask | None = None
        #: Its counts of records that were given up, while it is to claim its task again.
        self._skipped = self._dead_lettered = 0
        self._is_connecting = False
        self._waits_for = ""
        self._unconnected = ""
        """Why a producer could not be connected in advance, as logged last."""
        self.broken: str | None = None
        """Why the replica could not be stopped. Parts of it may still be running, so the container must end."""
        self._fences = 0
        self._tries = 0
        self._restores = 0
        #: Monotonic time of the first loss in a row for want of an answer about markers.
        self._unanswered_since: float | None = None
        self._flush_failed_ms, self._is_flushing = 0, False
        self._acts: Final[dict[Effect, Callable[[CancelScope], None]]] = {
            Effect.OPEN_STORE: self._open_store,
            Effect.WIPE_STORE: self._wipe_store,
            Effect.REPLAY: self._replay,
            Effect.TAKE_OVER: self._take_over,
            Effect.OPEN_INPUT: self._open_input,
            Effect.CLOSE_STORE: self._close_store,
        }

    # ---- on the conductor's thread ----

    def move(
        self,
        replica: Replica,
        effects: tuple[Effect, ...],
        detail: str = "",
        fault: Fault = Fault.OTHER,
    ) -> bool:
        """Set the replica's new value and start its effects. Return whether its phase has changed."""
        has_changed = replica.phase is not self.replica.phase
        if has_changed or detail:
            # The control thread sends this text to the leader unchanged.
            self.detail = clean(detail, DETAIL_CHARACTERS)
            self.fault = fault
        if has_changed and self.replica.phase in ENDED:
            # A new decision has opened it again, so earlier failures no longer count.
            self._fences = self._tries = self._restores = 0
            self._unanswered_since = None
        if has_changed:
            self.since_ms = self._clock.now_ms()
            # Create a new mapping: a report that is being sent may still refer to the old one.
            before = {} if replica.phase is Phase.FENCING else self._entered
            self._entered = {**before, replica.phase: self.since_ms}
            self._progress = InputStallDetector()
            if replica.role is not Role.ACTIVE:
                self._input_lag = InputLag()
            _log.info(
                "%s: %s → %s at epoch %d%s",
                *(replica.id, self.replica.phase.value, replica.phase.value, replica.epoch),
                f" ({detail})" if detail else "",
            )
        is_hurried = replica.phase is Phase.OPENING and replica.role is not self.replica.role
        self.replica = replica
        if is_hurried and replica.role is Role.ACTIVE:
            self._restore.hurry()
        for effect in effects:
            if effect is Effect.HALT:
                self._run.cancel()
                self._run = CancelScope(self._clock.pace)
                if (store := self._store) is not None:
                    # What a waiting write leaves out is in the changelog.
                    store.interrupt()
                self.halting_since = self.halting_since or self._clock.monotonic()
                self._worker.put(self._halt)
            else:
                self._worker.put(partial(self._carry_out, effect, self._run))
        return has_changed

    def judge(self, run: CancelScope, signal: Signal) -> Signal | None:
        """Return the signal a result counts as: None if its run was cancelled, an end if it came too often."""
        if run is not self._run or run.is_cancelled():
            return None
        if signal is Signal.CAUGHT_UP and self.replica.phase is Phase.RESTORING:
            self._restores = self._fences = self._tries = 0
            self._connect(run)
        elif signal is Signal.STATE_LOST:
            if (store := self._store) is not None:
                # Not by the effect that wipes it: if the replica has failed, or is revoked now, that does not run.
                store.distrust()
            self._restores += 1
            if self._restores > _RESTORES:
                return Signal.FAILED
        elif signal is Signal.WRITER_LOST:
            if self._has_waited_too_long():
                return Signal.FAILED
            self._count_loss()
            if self._fences >= _FENCES:
                return Signal.FENCED
        return signal

    def flush_if_due(self, now_ms: int) -> None:
        """Flush the store when a flush is due, in the background."""
        store = self._store
        if (
            store is not None
            and self.replica.phase in (Phase.TAILING, Phase.ACTIVE)
            and not self._is_flushing
            and abs(now_ms - self._flush_failed_ms) > _FLUSH_RETRY_MS
            and store.is_flush_due(now_ms)
        ):
            # One at a time: a disk may not answer for days, and this is called ten times a second.
            self._is_flushing = True
            self._worker.put(partial(self._flush, store))

    def pause(self, *, is_paused: bool) -> None:
        """Pause or resume a restore."""
        self.is_paused = is_paused
        if self._replayed is not None:
            self._replayed.is_paused = is_paused

    def prepare(self) -> None:
        """Connect a producer if there is none. To be called repeatedly."""
        if self._writer is None:
            self._connect(self._run)

    def is_prepared(self) -> bool:
        """Return whether everything is done that can be done ahead of its planned promotion. Thread-safe."""
        partition = self.replica.id.task.partition
        return (
            self.is_next
            and self.replica.phase is Phase.TAILING
            and self._writer is not None
            and self.job.ends.changelog(partition) is not None
            and (self.job.pipeline.is_warm or not self.job.config.standby_warm)
        )

    def end(self) -> None:
        """End the replica's thread. The replica must be closed already."""
        self._worker.close()

    def place(self) -> Path | None:
        """Return the directory of its open state; None while that is undecided. Thread-safe."""
        is_settled = self.replica.phase in RUNNING and self.replica.phase is not Phase.OPENING
        return self._directory if is_settled else None

    def offer(self) -> Offer:
        """Return what is needed to copy its state for a peer. Raises `NotNow`. Thread-safe."""
        return offer_of(self.replica, self._store, self.active, self.job)

    def readable(self) -> tuple[TaskStore, int | None] | None:
        """Return the store for look-ups, and the time up to which its content is complete.

        The time is in Unix milliseconds; None for an active, whose state is the current one. Returns None instead
        of the pair when there is no state, or when its age is not known. Thread-safe.
        """
        store, replayed = self._store, self._replayed
        if store is None:
            return None
        if self.replica.phase is Phase.ACTIVE:
            return store, None
        if replayed is None or replayed.at_end_ms is None:
            return None
        return store, replayed.at_end_ms

    def status(self) -> ReplicaStatus:
        """Return the current status without blocking. Thread-safe."""
        replica, store, active, replayed = self.replica, self._store, self.active, self._replayed
        applied = lag_ms = end = None
        if store is not None and store.found_position is not None:
            applied = store.position.offset
        if replica.phase is Phase.ACTIVE:
            # Only the active writes to its changelog.
            end, lag_ms = applied, 0
        elif applied is not None and replayed is not None:
            seen = self.job.ends.changelog(replica.id.task.partition)
            if seen is not None:
                end, lag_ms = max(seen.offset, applied), replayed.lag_ms
        has_input = replica.phase is Phase.ACTIVE and active is not None
        input_end = self.job.ends.input(replica.id.task.partition) if has_input else None
        # The failures and skipped records of an active are also reported after it has failed.
        latest = active or (self._ended if replica.phase is Phase.FAILED else None)
        failures = latest.present_failures() if latest is not None else None
        is_failing = failures is not None or replica.phase is Phase.FAILED
        return ReplicaStatus(
            replica=replica.id,
            role=replica.role,
            phase=replica.phase,
            epoch=replica.epoch,
            applied=applied,
            end=end,
            lag_ms=lag_ms,
            record_bytes=replayed.record_bytes if replayed is not None else None,
            input_committed=active.committed.total if has_input and active is not None else None,
            input_end=input_end.offset if input_end is not None else None,
            input_offsets=self._input_offsets(active) if has_input and active is not None else {},
            first_commit_ms=active.first_commit_ms if has_input and active is not None else None,
            start_steps=dict(active.start_steps) if has_input and active is not None else {},
            since_ms=self.since_ms,
            entered=self._entered,
            detail=self.detail or (_PAUSED if self.is_paused and replica.phase is Phase.RESTORING else ""),
            is_prepared=self.is_prepared(),
            start_ms=self._start_ms(),
            is_cut_off=has_input and self.job.ends.changelog(replica.id.task.partition) is None,
            failures=failures,
            traceback=latest.traceback if latest is not None and is_failing else "",
            skipped=latest.skipped if latest is not None else self._skipped,
            dead_lettered=latest.dead_lettered if latest is not None else self._dead_lettered,
            given_up=latest.recently_given_up(self._clock.now_ms()) if latest is not None else (),
            input_lag_ms=self._input_lag.ms,
            input_rate=active.throughput.per_second(self._clock.monotonic())
            if has_input and active is not None
            else None,
            drained_from=active.drained.applied if active is not None and active.drained else None,
            drained_to=active.drained.end if active is not None and active.drained else None,
            fault=self.fault if replica.phase is Phase.FAILED else Fault.OTHER,
            waits_for=self._waits_for if replica.phase is Phase.OPENING else "",
        )

    def note_reported(self, status: ReplicaStatus) -> None:
        """Record that a report with this status has left the process. Thread-safe."""
        active = self.active
        if active is not None and status.phase is Phase.ACTIVE:
            active.reported = status.failures

    def _start_ms(self) -> int | None:
        seconds = self.job.pipeline.start_seconds if self.replica.phase is Phase.TAILING else None
        return None if seconds is None else round(seconds * 1000)

    def _input_offsets(self, active: ActiveTask) -> dict[str, int]:
        """Return the committed offset of each input; empty for a single one (see `ReplicaStatus.input_committed`)."""
        inputs = self.job.config.inputs
        return dict(zip(inputs, active.committed.each, strict=True)) if len(inputs) > 1 else {}

    def is_stuck(self, now: float, timeout_seconds: float) -> bool:
        """Return whether an active has had pending input but no commit for too long (rule `never-block`).

        ``now`` is monotonic time.
        """
        active = self.active if self.replica.phase is Phase.ACTIVE else None
        end = self.job.ends.input(self.replica.id.task.partition)
        if self.replica.role is Role.ACTIVE:
            committed = active.committed.total if active is not None else None
            self._input_lag.look(committed, end, self._clock.now_ms())
        return self._progress.is_stuck(active, end, now, timeout_seconds)

    def is_hanging(self, now: float, timeout_seconds: float) -> bool:
        """Return whether a step of becoming active has made no progress for too long although Kafka answers.

        No step normally takes this long, so a call into an external library must be hanging, or an earlier call of the
        worker, for example to the disk. ``now`` is monotonic time.
        """
        store = self._store
        is_on_way = self.replica.phase in TAKING_OVER
        if not is_on_way or self.job.ends.changelog(self.replica.id.task.partition) is None:
            self._way.rest()
            return False
        position = store.position.offset if store is not None else 0
        return self._way.is_stuck((self._ways, self.replica.phase, position), now, timeout_seconds)

    # ---- on the replica's worker ----

    def _reporting(self, run: CancelScope) -> ReportSignal:
        def tell(signal: Signal, detail: str, fault: Fault = Fault.OTHER, /) -> None:
            self._post(RunResult(self, run, signal, detail, fault))

        return tell

    def _carry_out(self, effect: Effect, run: CancelScope) -> None:
        if run.is_cancelled() or self.broken is not None:
            return
        tell = self._reporting(run)
        try:
            self._acts[effect](run)
        except Fenced as error:
            tell(Signal.FENCED, first_line(error))
        except WriterLost as error:
            self._drop_writer()
            self._fences += error.fenced
            tell(Signal.WRITER_LOST, first_line(error))
        except Transient as error:
            tell(Signal.WRITER_LOST, first_line(error))
        except CorruptState as error:
            tell(Signal.STATE_LOST, first_line(error))
        except TopicChanged as error:
            tell(Signal.FAILED, first_line(error), Fault.CHANGED_TOPIC)
        except StandfastError as error:
            tell(Signal.FAILED, first_line(error))
        except Exception as error:  # noqa: BLE001 - this worker's outermost loop
            # A bug must not leave a replica that silently does nothing.
            _log.exception("%s: %s", self.replica.id, effect.value)
            tell(Signal.FAILED, f"{effect.value}: {summary_of(error)}")

    def _halt(self) -> None:
        try:
            self._stop()
        except BaseException as error:
            # Its store may still be in use, so it is not closed, and the replica is not reported as stopped.
            self.broken = f"{self.replica.id} could not be stopped: {summary_of(error)}"
            raise
        if self._store is not None:
            self._store.resume()
        self.halting_since = None

    def _stop(self) -> None:
        active = self.active
        self._ended = active
        self._keep_counts(active)
        self.active = None
        if active is not None:
            self.job.pipeline.leave(active).result()
            # Also if it never joined the pipeline: the order may have changed after the claim.
            active.abandon()
            self._drop_writer()
            self._keep_counts(active)
        replayed, self._replayed = self._replayed, None
        if replayed is not None:
            self.job.replay.remove(replayed).result()

    def _keep_counts(self, active: ActiveTask | None) -> None:
        """Keep the counts of an active that ends only to claim its task again, as after each record that is refused."""
        if self.replica.role is not Role.ACTIVE or self.replica.phase not in RUNNING:
            self._skipped = self._dead_lettered = 0
        elif active is not None:
            self._skipped, self._dead_lettered = active.skipped, active.dead_lettered

    def _open_store(self, run: CancelScope) -> None:
        if self._store is not None:
            raise BrokenInvariant(f"{self.replica.id}: its store is open already")
        delay, lock, self._waits_for = 0.05, PromotionStallDetector(), ""
        while True:
            try:
                self._store = self._restore.open(run)
                self._directory = self._store.directory
                break
            except (Transient, BeginningLost) as error:
                if run.is_cancelled():
                    return
                if isinstance(error, BeginningLost) and self.replica.role is Role.ACTIVE:
                    raise
                host = self.job.environment.host
                said = in_use_text(error, host) if isinstance(error, InUse) else first_line(error)
                self._waits_for = said if isinstance(error, (InUse, BeginningLost)) else ""
                if self.detail != (waiting := f"waiting: {said}"):
                    _log.warning("%s: %s", self.replica.id, waiting)
                    self.detail = waiting
                if not isinstance(error, InUse) or self.replica.role is not Role.ACTIVE:
                    lock.rest()
                elif lock.is_stuck(None, self._clock.monotonic(), self.job.way_seconds):
                    # Fail, so that another copy is tried, which may have its state available.
                    raise Unavailable(said) from error
                if run.pause(delay):
                    return
                delay = min(2 * delay, 2.0)
        peers = self.job.environment.peers
        note_owner(self._directory, self.job.environment.host, peers.container if peers else "")
        self._reporting(run)(Signal.OPENED, "")

    def _say(self, what: str, is_progress: bool, /) -> None:
        """Report what it does while the state is not open yet."""
        if self.replica.phase is Phase.OPENING:
            # Before the detail, whose change is reported at once.
            self._waits_for = "" if is_progress else self._waits_for
            self.detail = what

    def _wipe_store(self, _run: CancelScope) -> None:
        self._close()
        self._restore.state_lost()
        if self._directory is not None:
            with self.job.environment.opening:
                wipe_store(self._directory, self.job.environment.open_database)

    def _replay(self, run: CancelScope) -> None:
        if self._store is None:
            raise BrokenInvariant(f"{self.replica.id}: nothing to replay into")
        if self._replayed is None:
            partition = self.replica.id.task.partition
            tell = self._reporting(run)
            self._replayed = Replayed(
                partition, self._store, tell, self._clock.monotonic(), is_paused=self.is_paused
            )
        self.job.replay.add(self._replayed)

    def _take_over(self, run: CancelScope) -> None:
        tries, self._tries = self._tries, self._tries + 1
        if tries and run.pause(doubled_seconds(tries, _FIRST_RETRY_SECONDS, _RETRY_SECONDS)):
            return
        self._replay(run)
        self._have_writer(run)
        assert self._replayed is not None
        assert self._writer is not None
        promotee = Promotee(self.replica.id, self.replica.epoch, self._replayed, self._writer, run)
        started = self._clock.monotonic()
        self._ways += 1
        tell = self._reporting(run)
        try:
            active = Takeover(self.job).go(promotee, lambda signal: tell(signal, ""), tell)
        except BaseException:
            if run.is_cancelled():
                # A claim has closed it, and no result of this run counts any more.
                self._drop_writer()
            raise
        active.skipped, active.dead_lettered = self._skipped, self._dead_lettered
        self.active = active
        self._replayed = None
        self._tries = 0
        took_ms = (self._clock.monotonic() - started) * 1000
        _log.info(
            "%s: claimed at epoch %d after %.0f ms, input from %s",
            *(self.replica.id, promotee.epoch, took_ms, active.committed),
        )

    def _open_input(self, _run: CancelScope) -> None:
        assert self.active is not None, "claimed before, on this worker"
        self.job.pipeline.join(self.active)

    def _close_store(self, run: CancelScope) -> None:
        self._drop_writer()
        self.closing_since = self._clock.monotonic()
        self._close()
        self.closing_since = None
        self._reporting(run)(Signal.RELEASED, "")

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except StandfastError as error:
                # The store is closed nevertheless. What was not flushed is in the changelog.
                _log.warning("%s: %s", self.replica.id, error)

    def _connect(self, run: CancelScope) -> None:
        """Connect a producer in advance, on the worker. A failure is retried, and again during the takeover."""

        def connect() -> None:
            try:
                self._have_writer(run)
            except StandfastError as error:
                if self._unconnected != (said := first_line(error)):
                    self._unconnected = said
                    _log.warning("%s: its producer cannot be connected ahead: %s", self.replica.id, said)
            else:
                self._unconnected = ""
            finally:
                self._is_connecting = False

        if not self._is_connecting:
            self._is_connecting = True
            self._worker.put(connect)

    def _have_writer(self, run: CancelScope) -> None:
        """Connect a producer, if there is none. It fences no other producer until it is initialised."""
        if self._writer is None and not run.is_cancelled():
            self._writer = self.job.broker.open_writer(self.replica.id.task.partition)

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # A record that is still on its way holds the producer, and with it threads and connections, for good.
            writer.close()

    def _flush(self, store: TaskStore) -> None:
        try:
            store.flush()
        except StandfastError as error:
            self._flush_failed_ms = self._clock.now_ms()
            _log.warning("%s: flushing the store failed: %s", self.replica.id, error)
        finally:
            self._is_flushing = False

    def _has_waited_too_long(self) -> bool:
        """Return whether an active that has lost its producer while it waited for markers has done so for too long.

        Nobody has fenced it, and another copy would wait as well, unless only this host cannot reach a partition.
        """
        active = self.active
        if active is None:
            return False
        if active.commits > 1 or not active.is_unanswered:
            self._unanswered_since = None
        if not active.is_unanswered:
            return False
        now = self._clock.monotonic()
        self._unanswered_since = self._unanswered_since or now
        return now - self._unanswered_since > self.job.config.progress_timeout_ms / 1000

    def _count_loss(self) -> None:
        """Count a lost producer. A claim that was followed by a commit resets the count."""
        active = self.active
        if active is None:
            return
        # With or without input: an idle active commits its offsets again from time to time.
        if active.commits > 1:
            self._fences = 0
        elif not (active.has_narrowed or active.is_unanswered):
            self._fences += 1
