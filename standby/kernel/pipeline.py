"""Runs the feed of a processor's active tasks and their batches through the state step (design 4.4)."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from standby.errors import BadConfiguration, StandfastError
from standby.errortext import first_line, full_traceback, told
from standby.kernel.active import ActiveTask
from standby.kernel.batch import BatchRunner, TaskFailed, refused
from standby.kernel.lane import settle
from standby.kernel.lost_input import LostInput
from standby.kernel.marks import Marks
from standby.kernel.members import Members, Running
from standby.kernel.preparation import Preparation, Reached
from standby.kernel.repeats import uncommitted
from standby.kernel.suspects import Suspects
from standby.model import TaskId
from standby.ports import Feed, InputAway, TaskBatch
from standby.replica.lifecycle import Signal

_log: Final = logging.getLogger(__name__)

#: How often a feed that runs is looked at; a failed batch is told at once, beside this.
_LOOK_SECONDS: Final = 0.1

#: How often a run of one suspected task is looked at: it is short, and ends by itself.
_LOOK_APART_SECONDS: Final = 0.01

#: For so long suspected tasks may be run while the others wait, and for so long the others are run then.
_APART_SECONDS: Final = 2.0

#: How long tasks that are claimed already wait for those that are still on their way: starting the feed
#: once for all of them is quicker than stopping it again for each.
_GATHER_SECONDS: Final = 0.3

#: The same where a query that was begun ahead for all of them would be of no use to some: without it the start takes
#: about as long.
_GATHER_AHEAD_SECONDS: Final = 1.0

#: How often the feed may do something for its warmth; it knows itself when that is due.
_WARM_SECONDS: Final = 2.0

#: For so long after a task set out to become active nothing is warmed up: as a rule it has arrived by then.
#: One that has to restore first takes longer, and had better find the pipeline warm.
_QUIET_SECONDS: Final = 2.0

#: As good as for ever: only a command wakes a pipeline that has no feed.
_LONG_SECONDS: Final = 3_600.0

#: A commit under way when a task leaves may end; then it is given up, and the next drain finds it.
_LEAVE_SECONDS: Final = 1.0


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
        suspects: Suspects,
        preparation: Preparation,
        lost_input: LostInput,
        clock: Callable[[], int],
        has_end: Callable[[int], bool],
        inputs: Sequence[str],
        name: str,
        marks: Marks,
    ) -> None:
        """``has_end``: whether it is known at present where an input partition ends.

        ``name`` is the job's; ``marks`` is told whom its feed is at work for.
        """
        self._inputs = inputs
        self._name = name
        self._marks = marks
        self._make_feed = make_feed
        self._runner = runner
        self._suspects = suspects
        self._preparation = preparation
        self._members = Members(runner, suspects, lost_input, clock, has_end)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._feed: Feed | None = None
        self._running: Running | None = None
        #: Tasks that have joined or will: a moment's patience before a start.
        self._expected: frozenset[TaskId] = frozenset()
        self._quiet_until = 0.0
        self._gather_until = 0.0
        #: Since when suspects are run while others wait; and until when those are run instead.
        self._apart_since: float | None = None
        self._rest_until = 0.0
        self._warm_at = 0.0
        self._is_warming = False
        self._is_closed = False
        #: What is told of the job's code, detail and traceback, when no feed can be made with it.
        self._refusal: tuple[str, str] | None = None
        self.broken: str | None = None
        """Why the feed cannot be used at all; then the container cannot be, either."""
        self._thread = threading.Thread(target=self._run, name=f"{name}-pipeline", daemon=True)
        self._thread.start()

    @property
    def is_warm(self) -> bool:
        """Whether a start of the feed now would be quick, and a hot query, if there is to be one, waits for it."""
        feed = self._feed
        if feed is None or not feed.is_warm:
            return False
        is_idle = self._running is None and not self._members.joined
        return not (is_idle and self._preparation.is_pending(feed))

    @property
    def start_seconds(self) -> float | None:
        """What a start of the feed now would take until its first batch, as measured last; None: not known."""
        feed = self._feed
        return None if feed is None else feed.start_seconds

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

    def prepare(self, tasks: Iterable[TaskId]) -> None:
        """Take note of the standbys that will be made active in a moment; to be repeated, after `expect`."""
        if self._preparation.want(frozenset(tasks)):
            self._inbox.put(_nothing)

    def keep_hot(self, tasks: Iterable[TaskId], reached: Mapping[TaskId, Reached]) -> None:
        """Take note of the standbys whose query is to run ahead all the time; to be repeated, after `expect`.

        ``reached`` tells of each task that is here how far its present active has come.
        """
        if self._preparation.keep(frozenset(tasks), reached):
            self._inbox.put(_nothing)

    def is_prepared(self, task: TaskId) -> bool:
        """Return whether all is done that can be done ahead for a task that does not run here yet.

        Where others run, that is nothing: the feed has to start anew with all of them.
        """
        feed = self._feed
        return feed is not None and (bool(self._members.joined) or self._preparation.has(task, feed))

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
            except BaseException as error:  # noqa: BLE001 - this thread's outermost loop; sys.exit() is no way out
                # A feed that raises what its port does not allow has unknown state, like a JVM that died.
                _log.critical("the pipeline cannot go on\n%s", full_traceback(error))
                self.broken = f"the pipeline cannot go on: {told(error)}"
                self._end_feed_quietly()
                self._refuse_everything()

    def _refuse_everything(self) -> None:
        """Answer those who leave, so that stores can be closed, until the pipeline is closed."""
        for active in self._members.joined.values():
            active.tell(Signal.FAILED, self.broken or "")
        self._members.joined.clear()
        self._ended_feed()
        while not self._is_closed:
            self._inbox.get()()

    def _turn(self) -> None:
        self._await_command(self._patience())
        while not self._inbox.empty():
            self._inbox.get()()
        if self._is_closed:
            return
        if self._feed is None:
            self._feed = self._made_feed()
        if self._feed is None:
            return
        if self._running is not None and self._feed.wait(0):
            self._after_end(self._running)
        if self._running is not None and self._running.apart is not None:
            pass  # It ends by itself, soon.
        elif (suspect := self._due_suspect()) is not None:
            self._attend(self._feed, suspect)
        elif self._is_start_due():
            self._stop()
            self._apart_since = None
            self._start(self._feed, Running(self._members.together(), self._runner.commits))
        elif not self._members.joined and self._running is None:
            self._preparation.attend(self._feed, self._expected)
            self._keep_warm(self._feed)
        self._members.reclaim_idle()

    def _patience(self) -> float:
        """Return for how long nothing but a command can be due."""
        if self._feed is None:
            return 0 if self._refusal is None else _LONG_SECONDS
        if self._running is not None and self._running.apart is not None:
            return _LOOK_APART_SECONDS
        if self._running is not None or self._members.joined:
            return min(_LOOK_SECONDS, max(0.0, self._start_at() - time.monotonic()) or _LOOK_SECONDS)
        idle = max(0.0, max(self._warm_at, self._quiet_until) - time.monotonic())
        return min(idle, self._preparation.patience(self._feed))

    def _await_command(self, seconds: float) -> None:
        try:
            command = self._inbox.get(timeout=seconds) if seconds else self._inbox.get_nowait()
        except queue.Empty:
            return
        command()

    # ---- members ----

    def _join(self, active: ActiveTask) -> None:
        if not self._joined_but_not_running():
            is_ahead = self._feed is not None and self._preparation.has(active.task, self._feed)
            self._gather_until = time.monotonic() + (_GATHER_AHEAD_SECONDS if is_ahead else _GATHER_SECONDS)
        self._members.join(active)

    def _leave(self, leaving: _Leaving) -> None:
        active = self._members.drop(leaving.task)
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
        return any(running.get(task) is not active for task, active in self._members.together().items())

    def _start_at(self) -> float:
        """Return when a start that is due may be made, on the monotonic clock."""
        waiting = self._expected - self._members.joined.keys()
        return max(self._members.retry_at, self._gather_until if waiting else 0.0)

    def _is_start_due(self) -> bool:
        return self._joined_but_not_running() and time.monotonic() >= self._start_at()

    # ---- the feed ----

    def _made_feed(self) -> Feed | None:
        """Return a feed; None when the job's code lets none be made: then whoever is to be fed has failed.

        The container goes on: the leader is to hear why, and a standby needs no feed.
        """
        if self._refusal is None:
            try:
                return self._make_feed()
            except BadConfiguration as error:
                _log.error("the job's code cannot be used\n%s", full_traceback(error))
                self._refusal = refused(error)
        for active in tuple(self._members.joined.values()):
            self._members.end_task(active, TaskFailed(active.task, Signal.FAILED, *self._refusal))
        return None

    def _start(self, feed: Feed, running: Running) -> None:
        if self._members.is_too_long:
            self._members.is_too_long = False
            feed.shrink()
        self._running = running
        self._preparation.spend()
        self._marks.feed(self._name, running.actives)
        try:
            positions = {task: active.committed for task, active in running.actives.items()}
            until = None
            if running.apart is not None and running.until is not None:
                until = {running.apart.task: running.until}
            feed.start(positions, partial(self._deliver, running), until)
            self._members.started(running)
        except InputAway as away:
            self._ended_feed()
            self._members.hold_up(running, away)
            # The others are to be started now, not at the next look.
            self._inbox.put(_nothing)
        except StandfastError as error:
            self._ended_feed()
            self._members.feed_failed(running.actives, error)

    def _ended_feed(self) -> None:
        """Take note that the feed is at work no more."""
        self._running = None
        self._marks.feed(self._name, ())

    def _deliver(self, running: Running, batches: tuple[TaskBatch, ...]) -> None:
        """On the feed's thread: return when every batch is committed, raise when one is not (batch law)."""
        try:
            rest = uncommitted(batches, running.actives, self._inputs)
            if rest != batches:
                _log.warning("the feed brought input again that is committed: %s", _spans(batches))
            if rest:
                self._runner.run(rest, running.actives)
        except BaseException as error:
            running.raised = error
            # The feed ends with this exception; have that looked at now, not at the next look.
            self._inbox.put(_nothing)
            raise

    def _stop(self) -> None:
        running = self._running
        if running is not None and self._feed is not None:
            self._feed.stop()
            self._ended_feed()
            self._members.drop_failed(running)

    def _end_feed_quietly(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            try:
                feed.close()
            except BaseException as error:  # noqa: BLE001 - it is given up already
                _log.error("closing the feed\n%s", full_traceback(error))

    def _after_end(self, running: Running) -> None:
        assert self._feed is not None
        failure = self._feed.failure
        self._feed.stop()
        self._ended_feed()
        self._members.ended(running, failure)

    # ---- suspects ----

    def _due_suspect(self) -> ActiveTask | None:
        now = time.monotonic()
        if now < self._members.retry_at or (now < self._rest_until and self._members.together()):
            return None
        return self._suspects.due()

    def _attend(self, feed: Feed, active: ActiveTask) -> None:
        """Make the suspect's next move; when that is a run, the others wait for it."""
        try:
            until = self._suspects.attend(active)
        except TaskFailed as failure:
            self._members.end_task(active, failure)
            return
        if until is not None:
            self._stop()
            now = time.monotonic()
            self._apart_since = self._apart_since or now
            if now - self._apart_since > _APART_SECONDS:
                # One more, and then it is the others' turn.
                self._apart_since, self._rest_until = None, now + _APART_SECONDS
            actives = {active.task: active}
            self._start(feed, Running(actives, self._runner.commits, active, active.committed, until))
        # There may be more to do, now.
        self._inbox.put(_nothing)

    def _may_warm(self) -> bool:
        """Return whether nobody waits for the pipeline: no task that is about to come, no command."""
        if self._does_without():
            return False
        return time.monotonic() >= self._quiet_until and self._inbox.empty()

    def _does_without(self) -> bool:
        """Return whether the feed is warm, and a query that runs ahead keeps it so."""
        feed = self._feed
        return self._preparation.is_wanted and feed is not None and feed.is_warm

    def _keep_warm(self, feed: Feed) -> None:
        if time.monotonic() < self._warm_at:
            return
        if self._may_warm():
            self._warm(feed)
        elif self._does_without():
            # Looked at again later, not at once and all the time.
            self._warm_at = time.monotonic() + _WARM_SECONDS

    def _warm(self, feed: Feed) -> None:
        self._is_warming = True
        try:
            self._runner.warm()
            feed.warm()
        except StandfastError as error:
            _log.warning("warming up: %s", first_line(error))
        finally:
            self._is_warming = False
            self._warm_at = time.monotonic() + _WARM_SECONDS


def _spans(batches: Iterable[TaskBatch]) -> str:
    return ", ".join(f"{each.task} [{each.start}, {each.end})" for each in batches)


def _nothing() -> None:
    """Wake the pipeline's thread, no more."""
