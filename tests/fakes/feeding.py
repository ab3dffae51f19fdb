"""The core of feeding in an environment that a test controls: answers come at once, from a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from standby.feeding import core
from standby.feeding.actions import (
    AskInput,
    CommitPast,
    FeedingAction,
    ReadRecord,
    Reclaim,
    SetInputStatus,
    StartFeed,
    StopFeed,
    Warm,
    WriteLog,
)
from standby.feeding.events import (
    BoundsFound,
    FeedEnded,
    FeedingEvent,
    FeedStarted,
    FeedStopped,
    Joined,
    Observed,
    PastCommitted,
    RecordRead,
    SeenMember,
    TaskFailure,
    Turned,
    TurnEnded,
    Warmed,
    Watched,
)
from standby.feeding.state import FeedEndCause, FeedFailure, FeedingPolicy, FeedingState, FeedMember, Outlook
from standby.feeding.warming import expecting
from standby.replica.failing import ErrorPolicy, InputRecord, error_policy
from standby.shared.model import InputFailures, Offsets, TaskId
from tests.fakes.jobs import job_config

A = TypeVar("A")

BY_ITSELF = FeedFailure(FeedEndCause.BY_ITSELF, "by itself")


def policy_of(**keys: str) -> ErrorPolicy:
    """Return the policy of a job with these keys besides; a dot in a key is written as two underscores."""
    return error_policy(job_config(**keys))


@dataclass
class FeedingWorld:
    """The state, and every event that it receives."""

    policy: ErrorPolicy = field(default_factory=policy_of)
    may_skip_lost: bool = False
    now: float = 1_000.0
    now_ms: int = 1_000_000
    first: int = 0
    """Where every partition of the input begins, and ends."""
    end: int = 1_000
    outlook: Outlook = field(default_factory=Outlook)
    is_delivering: bool = False
    is_awaited: bool = False
    commits: int = 0
    committed: dict[TaskId, Offsets] = field(default_factory=dict)
    reported: set[TaskId] = field(default_factory=set)
    answers: dict[type, deque[FeedingEvent]] = field(default_factory=dict)
    """What is answered instead of what is usual, first to last."""
    done: list[FeedingAction] = field(default_factory=list)
    """Everything that was owed, but for notes."""

    def __post_init__(self) -> None:
        self.state = FeedingState(FeedingPolicy(self.policy, self.may_skip_lost))
        self._last_commit_ms: dict[TaskId, int] = {}
        self._failures: dict[TaskId, InputFailures | None] = {}
        self._joins = 0

    # ---- what happens ----

    def join(self, task: TaskId, at: int = 0, failures: InputFailures | None = None) -> None:
        """Have a task join that has committed ``at`` of each input."""
        self._joins += 1
        committed = Offsets((at,) * len(self.policy.topics))
        self.committed[task], self._last_commit_ms[task] = committed, self.now_ms
        self.reported.discard(task)
        self._failures[task] = failures
        self.fold(Joined(FeedMember(task, self._joins, 1, committed, self.now_ms, failures)))

    def turn(self, seconds: float = 0.0) -> None:
        """Let time pass, and a turn of the pipeline come."""
        self.now += seconds
        self.now_ms += int(seconds * 1_000)
        if self.state.feed is not None:
            self.fold(Watched())
        self.fold(Turned())
        self.fold(TurnEnded())

    def wait(self) -> float:
        """Let as much time pass as nothing is due, and a turn come; return how much that was."""
        self._observe()
        seconds = core.patience(self.state)
        self.turn(seconds)
        return seconds

    def commit(self, task: TaskId, records: int) -> None:
        """Have a batch of the feed committed, as far as one input goes."""
        first, *others = self.committed[task].each
        self.committed[task] = Offsets((first + records, *others))
        self.commits += 1

    def feed_ends(self, failure: FeedFailure = BY_ITSELF, *failed: TaskFailure) -> None:
        self.fold(FeedEnded(failure, failed))

    def fold(self, event: FeedingEvent) -> None:
        """Have an event decided on, and answer what is asked until nothing is."""
        events = deque((event,))
        while events:
            self._observe()
            self.state, actions = core.step(self.state, events.popleft())
            for action in actions:
                if not isinstance(action, WriteLog):
                    self.done.append(action)
                answer = self._answered(action)
                if answer is not None:
                    assert action is actions[-1], "nothing is decided on an answer that is still to come"
                    events.append(answer)
        assert self.state.doing is None
        self.check()

    def check(self) -> None:
        """See whether the state holds what it always must."""
        state = self.state
        assert state.suspects.keys() <= state.members.keys()
        assert state.held_up.keys() <= state.members.keys()
        assert state.feed is None or state.feed.members
        assert not state.is_apart or (state.feed is not None and len(state.feed.members) == 1)

    # ---- what came of it ----

    def took(self, kind: type[A]) -> list[A]:
        """Return what was owed of that kind, and forget all."""
        done: list[Any] = [*self.done]
        found = [each for each in done if isinstance(each, kind)]
        self.done.clear()
        return found

    @property
    def fed(self) -> Mapping[TaskId, int]:
        return self.state.feed.members if self.state.feed is not None else {}

    def _observe(self) -> None:
        tasks = self.state.members
        self.state, _ = core.step(
            self.state,
            Observed(
                now=self.now,
                now_ms=self.now_ms,
                members={
                    task: SeenMember(
                        self.committed[task], self._last_commit_ms[task], is_reported=task in self.reported
                    )
                    for task in tasks
                },
                commits=self.commits,
                is_delivering=self.is_delivering,
                is_awaited=self.is_awaited,
                input_ends={task.partition: self.end * len(self.policy.topics) for task in tasks},
                outlook=self.outlook,
            ),
        )

    def _answered(self, action: FeedingAction) -> FeedingEvent | None:
        scripted = self.answers.get(type(action))
        if scripted:
            return scripted.popleft()
        match action:
            case SetInputStatus(task, failures):
                if failures != self._failures.get(task):
                    self.reported.discard(task)
                self._failures[task] = failures
            case Reclaim(task, now_ms):
                self._last_commit_ms[task] = now_ms
            case AskInput() | ReadRecord() | CommitPast():
                return self._of_input(action)
            case StopFeed() | StartFeed() | Warm():
                return self._of_feed(action)
        return None

    def _of_input(self, action: AskInput | ReadRecord | CommitPast) -> FeedingEvent:
        match action:
            case AskInput():
                return BoundsFound([(self.first, self.end)] * len(self.policy.topics))
            case ReadRecord(_, _, offset):
                return RecordRead(InputRecord(offset, b"k", b"v"))
            case CommitPast(task, start, end):
                assert self.committed[task] == start
                self.committed[task] = end
                self.commits += 1
                return PastCommitted()

    def _of_feed(self, action: StopFeed | StartFeed | Warm) -> FeedingEvent:
        match action:
            case StopFeed():
                return FeedStopped(())
            case StartFeed():
                return FeedStarted()
            case Warm():
                return Warmed()

    def expect(self, *tasks: TaskId) -> None:
        """Announce all tasks that have joined or are becoming active."""
        self.outlook = expecting(self.outlook, frozenset(tasks), self.now)


def feeding(*tasks: TaskId, **keys: str) -> FeedingWorld:
    """Return a world in which these tasks are fed."""
    world = FeedingWorld(policy_of(**keys))
    for task in tasks:
        world.join(task)
    world.turn()
    assert world.fed.keys() == set(tasks)
    world.done.clear()
    return world
