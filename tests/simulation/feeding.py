"""The feed of a process's active tasks: `standby.kernel.pipeline` in virtual time, on the real core of its decisions.

A feed is a sequence of steps: it computes all tasks of a batch, one after the other, and then commits them
concurrently. While it is being stopped nothing else is decided, as on the pipeline's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from standby.config import parse
from standby.errors import BrokenInvariant, Fenced, StandfastError, Transient
from standby.feeding import core
from standby.feeding.actions import EndTask, FeedingAction, LookAgain, StartFeed, StopFeed, Warm, WriteLog
from standby.feeding.events import (
    FeedEnded,
    FeedingEvent,
    FeedStarted,
    FeedStopped,
    Joined,
    Left,
    Observed,
    SeenMember,
    TaskFailure,
    Turned,
    TurnEnded,
    Warmed,
)
from standby.feeding.state import FeedEndCause, FeedFailure, FeedingPolicy, FeedingState, FeedMember, Outlook
from standby.replica.failing import error_policy
from standby.replica.lifecycle import Signal
from standby.shared.model import Offsets, TaskId
from tests.simulation.job import CONFIG
from tests.simulation.process import Course, Process, Runner, Until

if TYPE_CHECKING:
    from tests.simulation.replica import Active, HeldReplica, Run

_POLICY: Final = FeedingPolicy(error_policy(parse(CONFIG)))

#: A batch has failed: the task is given beside it.
_RAISED: Final = FeedFailure(FeedEndCause.OTHER, "a batch failed")


@dataclass(frozen=True, slots=True)
class Fed:
    """A task that is fed, with what its replica was ordered to run."""

    held: HeldReplica
    run: Run
    active: Active

    def has_input(self, at: int) -> bool:
        """Return whether there is more of it behind an offset."""
        return not self.held.is_over(self.run, self.active) and self.held.log.input_end > at


@dataclass
class SimulatedFeed:
    """A feed that runs."""

    fed: Mapping[TaskId, Fed]
    at: dict[TaskId, int]
    """The offset from which each task's next batch comes."""
    is_stopped: bool = False
    """Whether it is to end."""
    is_over: bool = False
    failed: tuple[TaskFailure, ...] = ()
    """Why it ended by itself."""
    waiters: list[Callable[[], None]] = field(default_factory=list)
    """What waits for more input."""
    listening: set[TaskId] = field(default_factory=set)
    """Whose input wakes it."""

    def wake(self, task: TaskId | None = None) -> None:
        """Look for input again."""
        if task is not None:
            self.listening.discard(task)
        waiters, self.waiters = self.waiters, []
        for each in waiters:
            each()


class Feeding:
    """Feeds the active tasks of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._clock = process.clock
        self._state = FeedingState(_POLICY)
        self._members: dict[TaskId, Fed] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._is_asking = False
        """Whether an answer is waited for."""
        self._is_at_it = False
        self._feed: SimulatedFeed | None = None
        self._joins = 0
        self._commits = 0
        self._turns = 0

    def join(self, held: HeldReplica, run: Run, active: Active) -> None:
        """Feed a task from its committed offset on."""
        self._put(lambda: self._join(Fed(held, run, active)))
        self._look()

    def leave(self, task: TaskId) -> None:
        """Feed a task no longer."""
        self._put(lambda: self._leave(task))
        self._look()

    # ---- its thread ----

    def _put(self, command: Callable[[], None]) -> None:
        self._inbox.append(command)
        self._go_on()

    def _go_on(self) -> None:
        if self._is_at_it:
            return
        self._is_at_it = True
        while self._inbox and not self._is_asking:
            self._inbox.popleft()()
        self._is_at_it = False

    def _look(self) -> None:
        if self._turn not in self._inbox:
            self._put(self._turn)

    def _join(self, fed: Fed) -> None:
        self._joins += 1
        replica = fed.held.replica
        self._members[replica.id.task] = fed
        committed = Offsets.of(fed.active.committed)
        self._fold(
            Joined(FeedMember(replica.id.task, self._joins, replica.epoch, committed, self._clock.now_ms))
        )

    def _leave(self, task: TaskId) -> None:
        self._fold(Left(task))
        self._members.pop(task, None)

    def _turn(self) -> None:
        if not self._state.members and self._state.feed is None:
            return
        feed, due = self._feed, list[FeedingEvent]()
        if self._state.feed is not None and feed is not None and feed.is_over:
            self._feed = None
            due.append(FeedEnded(_RAISED, feed.failed))
        self._fold_first(*due, Turned(), TurnEnded())

    def _fold_first(self, *events: FeedingEvent) -> None:
        """Fold these before anything else that waits."""
        self._inbox.extendleft(partial(self._fold, each) for each in reversed(events))

    def _fold(self, event: FeedingEvent) -> None:
        self._state, _ = core.step(self._state, self._observed())
        self._state, actions = core.step(self._state, event)
        for action in actions:
            self._carry_out(action)
        if isinstance(event, TurnEnded):
            self._turns += 1
            self._process.after(max(1, int(core.patience(self._state) * 1000)), self._look_again, self._turns)

    def _look_again(self, turn: int) -> None:
        if turn == self._turns:
            self._look()

    def _carry_out(self, action: FeedingAction) -> None:
        match action:
            case WriteLog():
                pass
            case LookAgain():
                self._process.after(1, self._look)
            case EndTask(task, signal, detail):
                fed = self._members.pop(task, None)
                if fed is not None:
                    fed.held.input_ended(fed.run, signal, detail)
            case StartFeed(positions):
                members = {task: self._members[task] for task in positions}
                feed = self._feed = SimulatedFeed(
                    members, {task: each.total for task, each in positions.items()}
                )
                Runner(self._process, self._run(feed), lambda _: self._ended(feed)).begin()
                self._fold_first(FeedStarted())
            case StopFeed():
                self._stop()
            case Warm():
                self._fold_first(Warmed())
            case _:
                raise BrokenInvariant(f"nothing of a simulated job leads to {action}")

    def _observed(self) -> Observed:
        now_ms = self._clock.now_ms
        return Observed(
            now=now_ms / 1000,
            now_ms=now_ms,
            members={
                task: SeenMember(Offsets.of(fed.active.committed), now_ms, is_reported=True)
                for task, fed in self._members.items()
            },
            commits=self._commits,
            is_delivering=False,
            is_awaited=False,
            input_ends={},
            outlook=Outlook(),
        )

    # ---- the feed ----

    def _stop(self) -> None:
        feed = self._feed
        if feed is None or feed.is_over:
            self._stopped(feed)
            return
        self._is_asking = feed.is_stopped = True
        feed.wake()

    def _stopped(self, feed: SimulatedFeed | None) -> None:
        self._feed = None
        self._fold_first(FeedStopped(feed.failed if feed is not None else ()))

    def _ended(self, feed: SimulatedFeed) -> None:
        feed.is_over = True
        if feed.is_stopped:
            self._is_asking = False
            self._stopped(feed)
            self._go_on()
        else:
            self._look()

    def _run(self, feed: SimulatedFeed) -> Course:
        while not feed.is_stopped:
            batch = {task: fed for task, fed in feed.fed.items() if fed.has_input(feed.at[task])}
            if not batch:
                yield self._more_input(feed)
                yield self._clock.between(5, 60)
                continue
            spans: dict[TaskId, tuple[int, int]] = {}
            for task, fed in batch.items():
                spans[task] = fed.held.next_batch(feed.at[task])
                fed.held.running_from = spans[task][0]
                yield self._clock.between(5, 40)
                fed.held.running_from = None
            yield from self._commit(feed, spans)
            if feed.failed:
                return

    def _more_input(self, feed: SimulatedFeed) -> Until:
        for task, fed in feed.fed.items():
            if task not in feed.listening:
                feed.listening.add(task)
                fed.held.log.consumers.append(partial(feed.wake, task))
        return Until(feed.waiters)

    def _commit(self, feed: SimulatedFeed, spans: Mapping[TaskId, tuple[int, int]]) -> Course:
        failed: list[TaskFailure] = []
        pending = len(spans)
        waiters: list[Callable[[], None]] = []

        def done(task: TaskId, error: StandfastError | None) -> None:
            nonlocal pending
            pending -= 1
            if error is None:
                self._commits += 1
                feed.at[task] = spans[task][1]
            else:
                failed.append(TaskFailure(task, _signal_of(error), str(error)))
            if not pending:
                for each in waiters:
                    each()

        for task, (start, end) in spans.items():
            fed = feed.fed[task]
            course = fed.held.commit_batch(fed.run, fed.active, start, end)
            Runner(self._process, course, partial(done, task)).begin()
        if pending:
            yield Until(waiters)
        feed.failed = tuple(failed)


def _signal_of(error: StandfastError) -> Signal:
    if isinstance(error, Fenced):
        return Signal.FENCED
    return Signal.WRITER_LOST if isinstance(error, Transient) else Signal.FAILED
