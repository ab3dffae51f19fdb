"""Runs the feed of a processor's active tasks, and their batches through the step (rule `whole-batch`)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from standby.errors import BadConfiguration, Transient
from standby.feeding import core, warming
from standby.feeding.events import (
    Closed,
    CodeRefused,
    FeedingEvent,
    Joined,
    Left,
    Observed,
    SeenMember,
    Turned,
    TurnEnded,
    Watched,
)
from standby.feeding.state import FeedingPolicy, FeedingState, FeedMember, Outlook
from standby.kernel.active.active import ActiveTask
from standby.kernel.pipeline.batch import BatchRunner, refusal_of
from standby.kernel.pipeline.effects import PipelineEffects
from standby.kernel.ports import Broker
from standby.ports import Feed, NotLent
from standby.replica.lifecycle import Signal
from standby.shared.clock import Clock
from standby.shared.errortext import first_line, full_traceback, summary_of
from standby.shared.model import Fault, StartStep, TaskId
from standby.threads.worker import Worker, settle

_log: Final = logging.getLogger(__name__)

#: Practically for ever: only a command wakes a pipeline without a feed.
_LONG_SECONDS: Final = 3_600.0

#: When to try again to make a feed for which the host lacks something.
_AGAIN_SECONDS: Final = 5.0

#: How long a running commit may take when its task leaves. After that it is abandoned, and the next drain finds it.
_LEAVE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class PipelinePorts:
    """What a pipeline needs from the rest of its job."""

    make_feed: Callable[[], Feed]
    input: Broker
    input_end: Callable[[int], int | None]
    """Returns the end of an input partition; None while it is not known. Never blocks."""
    check_topics: Callable[[], None]
    """Raises `TopicChanged` when an input is another topic."""
    clock: Clock


class Pipeline:
    """A thread that owns the feed; other threads send commands to its inbox.

    `standby.feeding.core` makes the decisions, on a state that is owned by this thread.
    """

    def __init__(
        self,
        name: str,
        policy: FeedingPolicy,
        runner: BatchRunner,
        seams: PipelinePorts,
        commit_seconds: float,
    ) -> None:
        """``name`` is the job's. A commit may take ``commit_seconds``."""
        self._seams = seams
        self._worker = Worker(f"{name}-pipeline", self._turn, failed=self._give_up)
        self._effects = PipelineEffects(
            name, runner, seams.input, seams.check_topics, commit_seconds, self._worker.wake
        )
        #: Only ever replaced as a whole, because other threads read it.
        self._state = FeedingState(policy)
        #: Only ever replaced as a whole, by the conductor.
        self._outlook = Outlook()
        self._joins = 0
        #: The report when no feed can be made from the job's code.
        self._refusal: CodeRefused | None = None
        #: When to make the feed, monotonic.
        self._make_at = 0.0
        self.broken: str | None = None
        """Why the feed, and so the container, cannot be used at all."""
        self._worker.start()

    @property
    def is_warm(self) -> bool:
        """Whether a start of the feed would be quick now."""
        feed = self._effects.feed
        return feed is not None and feed.is_warm

    @property
    def start_seconds(self) -> float | None:
        """Time from a start of the feed to its first batch, as last measured; None: not known."""
        feed = self._effects.feed
        return None if feed is None else feed.start_seconds

    @property
    def child_pids(self) -> tuple[int, ...]:
        """The feed's processes."""
        feed = self._effects.feed
        return () if feed is None else feed.child_pids

    def lend(self, rows: bytes) -> bytes:
        """Run the job's transform over rows of another container; see `standby.ports.Feed.lend`. Thread-safe."""
        feed = self._effects.feed
        if feed is None:
            raise NotLent("no feed has been made yet")
        return feed.lend(rows)

    @property
    def is_lending(self) -> bool:
        """Whether `lend` would be quick now."""
        feed = self._effects.feed
        return feed is not None and feed.is_lending

    @property
    def has_run_in_child(self) -> bool:
        """Whether a process of the feed has had input of its present tasks."""
        feed = self._effects.feed
        return feed is not None and feed.has_run_in_child

    def expect(self, tasks: Iterable[TaskId]) -> None:
        """Set the tasks that have joined or are becoming active. To be called repeatedly, 10 times a second.

        The repetition is needed because a warm-up may begin just after it was cancelled.
        """
        before = self._outlook
        self._outlook = warming.expecting(before, frozenset(tasks), self._seams.clock.monotonic())
        feed = self._effects.feed
        if news := self._outlook.expected - before.expected:
            self._worker.wake()
            if feed is not None:
                feed.expect(news)
        if self._effects.is_warming and feed is not None and not self._may_warm():
            feed.cancel_warm()

    def join(self, active: ActiveTask) -> None:
        """Feed this task, starting at its committed offset."""
        self._worker.put(lambda: self._join(active))

    def leave(self, active: ActiveTask) -> Future[None]:
        """Stop feeding this task; once the future is done, no batch of it is running.

        A commit that does not end soon is abandoned; a timer's thread waits for that. A start of the feed that waits
        is called off: the start of a JVM takes longer than a task may need to leave.
        """
        done: Future[None] = Future()
        self._worker.put(lambda: self._leave(active.task, done))
        feed = self._effects.feed
        if feed is not None:
            feed.cancel_start()
        call_off = self._seams.clock.later(_LEAVE_SECONDS, active.abandon)
        done.add_done_callback(lambda _: call_off())
        return done

    def close(self) -> Future[None]:
        """End the feed permanently; the future is done when it has ended."""
        done: Future[None] = Future()
        self._worker.put(lambda: self._close(done))
        feed = self._effects.feed
        if feed is not None:
            feed.cancel_warm()
            feed.cancel_start()
        return done

    def _may_warm(self) -> bool:
        now = self._seams.clock.monotonic()
        return warming.may_warm(self._outlook, now, is_awaited=self._worker.has_commands)

    # ---- on its thread ----

    def _turn(self) -> None:
        self._worker.wait(self._seams.clock.pace(self._patience()))
        self._worker.catch_up()
        if self._worker.is_closed:
            return
        effects = self._effects
        if effects.feed is None:
            effects.feed = self._made_feed()
        if effects.feed is None:
            return
        if self._state.feed is not None and (ended := effects.take_end()) is not None:
            self._fold(ended)
        if self._state.feed is not None:
            self._fold(Watched())
        self._fold(Turned())
        self._fold(TurnEnded())

    def _patience(self) -> float:
        """Return for how long only a command can require a turn."""
        if self._effects.feed is None:
            if self._refusal is not None:
                return _LONG_SECONDS
            return max(0.0, self._make_at - self._seams.clock.monotonic())
        return core.patience(self._state)

    def _fold(self, event: FeedingEvent) -> None:
        """Process an event: decide, execute the actions, and process the resulting events."""
        events = deque((event,))
        while events:
            self._state, _ = core.step(self._state, self._observed())
            self._state, actions = core.step(self._state, events.popleft())
            for action in actions:
                answer = self._effects.carry_out(action)
                if answer is not None:
                    events.append(answer)

    def _observed(self) -> Observed:
        effects, seams = self._effects, self._seams
        members = {
            task: SeenMember(active.committed, active.last_commit_ms, active.is_reported)
            for task, active in effects.actives.items()
        }
        return Observed(
            now=self._seams.clock.monotonic(),
            now_ms=seams.clock.now_ms(),
            members=members,
            commits=effects.runner.commits,
            is_delivering=effects.delivering.is_at_work,
            is_awaited=self._worker.has_commands,
            input_ends={task.partition: seams.input_end(task.partition) for task in members},
            outlook=self._outlook,
        )

    def _join(self, active: ActiveTask) -> None:
        self._joins += 1
        active.note_step(StartStep.JOINED)
        self._effects.actives[active.task] = active
        self._fold(
            Joined(
                FeedMember(
                    active.task,
                    self._joins,
                    active.epoch,
                    active.committed,
                    active.last_commit_ms,
                    active.failures,
                    active.is_reported,
                )
            )
        )

    def _leave(self, task: TaskId, done: Future[None]) -> None:
        self._fold(Left(task))
        active = self._effects.actives.pop(task, None)
        if active is not None:
            active.abandon()
        settle(done)

    def _close(self, done: Future[None]) -> None:
        self._worker.end()
        try:
            self._fold(Closed())
            if self._effects.feed is not None:
                self._effects.feed.close()
        finally:
            settle(done)

    def _made_feed(self) -> Feed | None:
        """Return a feed; None when the job's code does not permit one: then the tasks to be fed have failed.

        The container continues: it must report the reason to the leader, and standbys need no feed. If only the host
        lacks something, it is tried again.
        """
        refusal, now = self._refusal, self._seams.clock.monotonic()
        if refusal is None:
            if now < self._make_at:
                return None
            try:
                return self._seams.make_feed()
            except BadConfiguration as error:
                _log.error("the job's code cannot be used\n%s", full_traceback(error))
                refusal = self._refusal = CodeRefused(*refusal_of(error))
            except Transient as error:
                _log.warning("the job's code cannot be used now: %s", first_line(error))
                refusal = CodeRefused(*refusal_of(error), Fault.OTHER)
                self._make_at = now + _AGAIN_SECONDS
        self._fold(refusal)
        return None

    def _give_up(self, error: BaseException) -> None:
        # A feed that raises an error its port does not allow is in an unknown state, like a JVM that died.
        _log.critical("the pipeline cannot go on\n%s", full_traceback(error))
        self.broken = f"the pipeline cannot go on: {summary_of(error)}"
        self._effects.end_feed()
        self._refuse_everything()

    def _refuse_everything(self) -> None:
        """Serve `leave` commands, so that stores can be closed, until the pipeline is closed."""
        for active in self._effects.actives.values():
            active.tell(Signal.FAILED, self.broken or "")
        self._effects.actives.clear()
        self._state = FeedingState(self._state.policy)
        while not self._worker.is_closed:
            self._worker.wait(None)
