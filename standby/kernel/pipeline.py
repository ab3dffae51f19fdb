"""Runs the feed of a processor's active tasks and their batches through the state step (design 4.4)."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from standby.errors import CorruptState, StandfastError, Transient
from standby.kernel.active import ActiveTask
from standby.kernel.batch import BatchRunner
from standby.kernel.lane import settle
from standby.model import TaskId
from standby.ports import Feed, TaskBatch
from standby.replica.lifecycle import Signal

_log: Final = logging.getLogger(__name__)

#: How often a feed that runs is looked at; a failed batch is told at once, beside this.
_LOOK_SECONDS: Final = 0.1

#: How long tasks that are claimed already wait for those that are still on their way: starting the feed
#: once for all of them is quicker than stopping it again for each.
_GATHER_SECONDS: Final = 0.3

#: How often the feed may do something for its warmth; it knows itself when that is due.
_WARM_SECONDS: Final = 2.0

#: For so long after a task set out to become active nothing is warmed up: as a rule it has arrived by then.
#: One that has to restore first takes longer, and had better find the pipeline warm.
_QUIET_SECONDS: Final = 2.0

#: Kafka forgets offsets that are not committed for days; an idle active commits them again.
_RECLAIM_MS: Final = 3_600_000

#: A commit under way when a task leaves may end; then it is given up, and the next drain finds it.
_LEAVE_SECONDS: Final = 1.0

#: Failures of the feed itself in a row, with no commit in between, after which its tasks have failed.
_FEED_FAILURES: Final = 5


@dataclass(slots=True)
class _Running:
    """A feed that was started, and for whom."""

    actives: dict[TaskId, ActiveTask]
    commits: int
    """The runner's count when it started: whether there was progress."""


@dataclass(slots=True)
class _Leaving:
    task: TaskId
    done: Future[None] = field(default_factory=Future)


class Pipeline:
    """One thread that owns the feed; everybody else asks through its inbox."""

    def __init__(
        self,
        make_feed: Callable[[], Feed],
        runner: BatchRunner,
        input_bounds: Callable[[int], tuple[int, int]],
        clock: Callable[[], int],
        name: str,
    ) -> None:
        self._make_feed = make_feed
        self._runner = runner
        self._input_bounds = input_bounds
        self._clock = clock
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._feed: Feed | None = None
        self._joined: dict[TaskId, ActiveTask] = {}
        self._running: _Running | None = None
        #: Tasks that have joined or will: a moment's patience before a start.
        self._expected: frozenset[TaskId] = frozenset()
        self._quiet_until = 0.0
        self._gather_until = 0.0
        self._retry_at = 0.0
        self._failures = 0
        self._warm_at = 0.0
        self._is_warming = False
        self._is_closed = False
        self.broken: str | None = None
        """Why the feed cannot be used at all; then the container cannot be, either."""
        self._thread = threading.Thread(target=self._run, name=f"{name}-pipeline", daemon=True)
        self._thread.start()

    @property
    def is_warm(self) -> bool:
        """Whether a start of the feed now would be quick."""
        feed = self._feed
        return feed is not None and feed.is_warm

    @property
    def child_pids(self) -> tuple[int, ...]:
        """The feed's processes."""
        feed = self._feed
        return () if feed is None else feed.child_pids

    def expect(self, tasks: Iterable[TaskId]) -> None:
        """Take note of all tasks that have joined or are on their way; to be repeated, 10 times a second.

        The repetition matters: a warming-up may begin just after it was called off.
        """
        before, self._expected = self._expected, frozenset(tasks)
        if self._expected - before:
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
            self._inbox.put(_nothing)
        feed = self._feed
        if self._is_warming and feed is not None and not self._may_warm():
            feed.cancel_warm()

    def join(self, active: ActiveTask) -> None:
        """Feed this task from its committed offset on."""
        self._inbox.put(lambda: self._join(active))

    def leave(self, active: ActiveTask) -> Future[None]:
        """Feed this task no longer; once the future is done, no batch of it is under way.

        A commit that does not end soon is given up. Waits for that, so never on a thread that matters.
        """
        leaving = _Leaving(active.task)
        self._inbox.put(lambda: self._leave(leaving))
        timer = threading.Timer(_LEAVE_SECONDS, active.abandon)
        timer.daemon = True
        timer.start()
        leaving.done.add_done_callback(lambda _: timer.cancel())
        return leaving.done

    def close(self) -> Future[None]:
        """End the feed for good; the future is done when it has ended."""
        done: Future[None] = Future()
        self._inbox.put(lambda: self._close(done))
        feed = self._feed
        if feed is not None:
            feed.cancel_warm()
        return done

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - this thread's outermost loop
                # A feed that raises what its port does not allow has unknown state, like a JVM that died.
                _log.exception("the pipeline cannot go on")
                self.broken = f"the pipeline cannot go on: {type(error).__name__}: {error}"
                self._end_feed_quietly()
                self._refuse_everything()

    def _refuse_everything(self) -> None:
        """Answer those who leave, so that stores can be closed, until the pipeline is closed."""
        for active in self._joined.values():
            active.tell(Signal.FAILED, self.broken or "")
        self._joined.clear()
        self._running = None
        while not self._is_closed:
            self._inbox.get()()

    def _turn(self) -> None:
        self._await_command(self._patience())
        while not self._inbox.empty():
            self._inbox.get()()
        if self._is_closed:
            return
        if self._feed is None:
            self._feed = self._make_feed()
        if self._running is not None and self._feed.wait(0):
            self._after_end(self._running)
        if self._is_start_due():
            self._stop()
            self._start(self._feed)
        elif not self._joined and time.monotonic() >= self._warm_at and self._may_warm():
            self._warm(self._feed)
        self._reclaim_idle()

    def _patience(self) -> float:
        """Return for how long nothing but a command can be due."""
        if self._feed is None:
            return 0
        if self._running is not None or self._joined:
            return min(_LOOK_SECONDS, max(0.0, self._start_at() - time.monotonic()) or _LOOK_SECONDS)
        return max(0.0, max(self._warm_at, self._quiet_until) - time.monotonic())

    def _await_command(self, seconds: float) -> None:
        try:
            command = self._inbox.get(timeout=seconds) if seconds else self._inbox.get_nowait()
        except queue.Empty:
            return
        command()

    # ---- members ----

    def _join(self, active: ActiveTask) -> None:
        if not self._joined_but_not_running():
            self._gather_until = time.monotonic() + _GATHER_SECONDS
        self._joined[active.task] = active

    def _leave(self, leaving: _Leaving) -> None:
        active = self._joined.pop(leaving.task, None)
        if self._running is not None and leaving.task in self._running.actives:
            self._stop()
        if active is not None:
            active.abandon()
        settle(leaving.done)

    def _close(self, done: Future[None]) -> None:
        self._is_closed = True
        try:
            self._stop()
            if self._feed is not None:
                self._feed.close()
        finally:
            settle(done)

    def _joined_but_not_running(self) -> bool:
        running = self._running.actives if self._running is not None else {}
        return any(running.get(task) is not active for task, active in self._joined.items())

    def _start_at(self) -> float:
        """Return when a start that is due may be made, on the monotonic clock."""
        waiting = self._expected - self._joined.keys()
        return max(self._retry_at, self._gather_until if waiting else 0.0)

    def _is_start_due(self) -> bool:
        return self._joined_but_not_running() and time.monotonic() >= self._start_at()

    # ---- the feed ----

    def _start(self, feed: Feed) -> None:
        actives = dict(self._joined)
        self._running = _Running(actives, self._runner.commits)
        try:
            positions = {task: active.committed for task, active in actives.items()}
            feed.start(positions, partial(self._deliver, actives))
        except StandfastError as error:
            self._running = None
            self._feed_failed(actives, error)

    def _deliver(self, actives: dict[TaskId, ActiveTask], batches: tuple[TaskBatch, ...]) -> None:
        """On the feed's thread: return when every batch is committed, raise when one is not (batch law)."""
        try:
            self._runner.run(batches, actives)
        except BaseException:
            # The feed ends with this exception; have that looked at now, not at the next look.
            self._inbox.put(_nothing)
            raise

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None and self._feed is not None:
            self._feed.stop()
            self._drop_failed(running)

    def _end_feed_quietly(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            try:
                feed.close()
            except Exception:  # noqa: BLE001 - it is given up already
                _log.exception("closing the feed")

    def _after_end(self, running: _Running) -> None:
        """Look why the feed ended; the tasks that did not fail are fed again."""
        assert self._feed is not None
        failure = self._feed.failure
        self._feed.stop()
        self._running = None
        if running.commits != self._runner.commits:
            self._failures = 0
        if self._drop_failed(running):
            self._retry_at = 0.0
        else:
            self._feed_failed(running.actives, failure)

    def _drop_failed(self, running: _Running) -> bool:
        """Tell the tasks whose batch failed, and feed them no longer; return whether there were any."""
        failed = self._runner.take_failures()
        for each in failed:
            active = running.actives.get(each.task)
            if active is None or self._joined.get(each.task) is not active:
                continue
            del self._joined[each.task]
            active.abandon()
            _log.warning("%s: %s", each.task, each)
            active.tell(each.signal, str(each))
        return bool(failed)

    def _feed_failed(self, actives: dict[TaskId, ActiveTask], failure: BaseException | None) -> None:
        """Decide on a failure that is no task's own: try again, later and later, or give up."""
        self._failures += 1
        _log.warning("the feed ended (%d. time in a row): %r", self._failures, failure)
        self._retry_at = time.monotonic() + min(0.1 * 2**self._failures, 5.0)
        if isinstance(failure, CorruptState) and self._drop_outside(actives):
            return
        if not isinstance(failure, Transient) and self._failures >= _FEED_FAILURES:
            for task, active in actives.items():
                if self._joined.pop(task, None) is not None:
                    active.abandon()
                    active.tell(Signal.FAILED, f"the feed failed {self._failures} times in a row: {failure}")
            self._failures = 0

    def _drop_outside(self, actives: dict[TaskId, ActiveTask]) -> bool:
        """Fail the tasks whose committed offset is outside of their input; return whether there are any."""
        found = False
        for task, active in actives.items():
            try:
                first, end = self._input_bounds(task.partition)
            except StandfastError:
                continue
            if not first <= active.committed <= end and self._joined.pop(task, None) is not None:
                found = True
                active.abandon()
                active.tell(
                    Signal.FAILED,
                    f"the committed input offset {active.committed} is outside of the partition [{first}, {end}]",
                )
        return found

    def _may_warm(self) -> bool:
        """Return whether nobody waits for the pipeline: no task that is about to come, no command."""
        return time.monotonic() >= self._quiet_until and self._inbox.empty()

    def _warm(self, feed: Feed) -> None:
        self._is_warming = True
        try:
            feed.warm()
        except StandfastError as error:
            _log.warning("warming up: %s", error)
        finally:
            self._is_warming = False
            self._warm_at = time.monotonic() + _WARM_SECONDS

    def _reclaim_idle(self) -> None:
        """Commit the offsets of idle tasks again (design 4.7); the commit's own thread keeps the order."""
        now_ms = self._clock()
        for active in self._joined.values():
            if now_ms - active.last_commit_ms > _RECLAIM_MS:
                # Once, not at each look: what comes of it is seen at the next batch, or an hour later.
                active.last_commit_ms = now_ms
                active.claim().add_done_callback(partial(_after_reclaim, active))


def _after_reclaim(active: ActiveTask, claim: Future[None]) -> None:
    error = claim.exception()
    if error is not None:
        active.tell(Signal.WRITER_LOST, f"committing an idle task's offset again: {error}")


def _nothing() -> None:
    """Wake the pipeline's thread, no more."""
