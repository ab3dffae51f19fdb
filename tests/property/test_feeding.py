"""Invariants of feeding under any sequence of failures, members that come and go, and questions without an answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from standby.feeding.actions import (
    AskInput,
    CommitPast,
    EndTask,
    FeedingAction,
    ReadRecord,
    SetInputStatus,
    StartFeed,
    StopFeed,
    TellGivenUp,
)
from standby.feeding.events import (
    FailedInput,
    FeedingEvent,
    Left,
    RecordRead,
    StartFailed,
    TaskFailure,
    Unanswered,
)
from standby.feeding.failures import _FEED_FAILURES
from standby.feeding.state import FeedEndCause, FeedFailure
from standby.replica.failing import CodeError, ErrorPolicy, FailureOf
from standby.replica.lifecycle import Signal
from standby.shared.model import Offsets, TaskId
from tests.fakes.feeding import BY_ITSELF, FeedingWorld, policy_of

TASKS = tuple(TaskId("job", "main", each) for each in range(3))

RAISED = CodeError("ValueError", "bad", "where")
TRANSIENT = FeedFailure(FeedEndCause.TRANSIENT, "not now")
TRANSFORM = FeedFailure(FeedEndCause.CODE, "bad", "ValueError: bad", "where", "story", RAISED)
FAILURES = [
    BY_ITSELF,
    FeedFailure(FeedEndCause.AWAY, "no leader", partitions=frozenset((0,))),
    TRANSIENT,
    FeedFailure(FeedEndCause.OUTSIDE, "outside", "outside"),
    TRANSFORM,
    FeedFailure(FeedEndCause.OTHER, "a bug", "RuntimeError: a bug", "where", "story"),
]

POLICIES = [
    policy_of(task__on__error="fail", task__on__error__attempts="2"),
    policy_of(task__on__error="skip", task__on__error__attempts="2", task__batch__max__records="8"),
    policy_of(task__on__error="dead-letter", task__dead__letter="dead", task__on__error__limit="2"),
    policy_of(task__on__error="skip", task__inputs="in,other", task__batch__max__records="8"),
]


class World(FeedingWorld):
    """Holds every action against what must always be true of it."""

    is_running = False

    def _answered(self, action: FeedingAction) -> FeedingEvent | None:
        if isinstance(action, StartFeed):
            assert not self.is_running
            self.is_running = True
            assert action.positions == {task: self.committed[task] for task in action.positions}
            assert all(
                until.reaches(action.positions[task]) and until != action.positions[task]
                for task, until in (action.until or {}).items()
            )
        elif isinstance(action, StopFeed):
            assert self.is_running
            self.is_running = False
        elif isinstance(action, CommitPast):
            assert self.may_skip_lost or self.policy.gives_up_records, "input is never left out unasked"
            assert not self.is_running
            assert action.end.reaches(action.start)
            assert action.end != action.start
        elif isinstance(action, EndTask):
            assert action.task not in self.state.members
        elif isinstance(action, SetInputStatus):
            assert action.task in self.committed
        answer = super()._answered(action)
        if isinstance(answer, StartFailed):
            self.is_running = False
        return answer

    def feed_ends(self, failure: FeedFailure = BY_ITSELF, *failed: TaskFailure) -> None:
        self.is_running = False
        super().feed_ends(failure, *failed)


@st.composite
def failures_of_tasks(draw: st.DrawFn) -> Callable[[World], tuple[TaskFailure, ...]]:
    """Return what failed of some tasks of the feed, their batches being of so many records."""
    kinds = draw(st.lists(st.sampled_from(["none", "code", "late", "size", "lost"]), min_size=3, max_size=3))
    records = draw(st.integers(1, 20))

    def of(world: World) -> tuple[TaskFailure, ...]:
        return tuple(
            _failure(world, task, kind, records)
            for task, kind in zip(TASKS, kinds, strict=True)
            if kind != "none" and task in world.fed
        )

    return of


def _failure(world: World, task: TaskId, kind: str, records: int) -> TaskFailure:
    first, *others = world.committed[task].each
    apart = world.state.feed.apart if world.state.feed is not None else None
    end = Offsets((first + records, *others)) if apart is None else apart.until
    if kind == "lost":
        return TaskFailure(task, Signal.WRITER_LOST, "fenced")
    if kind == "code":
        return TaskFailure(
            task, Signal.INPUT_FAILED, "bad", "where", of=FailedInput(end, RAISED, is_code=True)
        )
    error = CodeError("Refused", "much", of=FailureOf.TIME if kind == "late" else FailureOf.SIZE)
    return TaskFailure(
        task, Signal.WRITER_LOST, "much", of=FailedInput(end, error, is_code=False, may_pass=records > 10)
    )


def _join(world: World, task: TaskId) -> None:
    if task not in world.state.members:
        world.join(task, at=world.committed.get(task, Offsets.of(0)).each[0])


def _leave(world: World, task: TaskId) -> None:
    world.fold(Left(task))


def _commit(world: World, task: TaskId) -> None:
    feed = world.state.feed
    if feed is None or task not in feed.members:
        return
    if feed.apart is None:
        world.commit(task, 5)
    else:
        world.committed[task] = feed.apart.until
        world.commits += 1


def _ask_status(world: World, task: TaskId) -> None:
    world.reported.add(task)


def _end(
    world: World, failure: FeedFailure, failed: Callable[[World], tuple[TaskFailure, ...]] | None
) -> None:
    if world.state.feed is not None:
        world.feed_ends(failure, *(failed(world) if failed is not None else ()))


def _answer(world: World, question: type, answer: FeedingEvent) -> None:
    world.answers.setdefault(question, deque()).append(answer)


ANSWERS = [
    (StartFeed, StartFailed(failure)) for failure in FAILURES if failure.cause is not FeedEndCause.CODE
] + [
    (StartFeed, StartFailed(FeedFailure(FeedEndCause.CALLED_OFF, "a task is to leave"))),
    (AskInput, Unanswered("no broker")),
    (ReadRecord, Unanswered("no broker")),
    (ReadRecord, RecordRead(None)),
    (CommitPast, Unanswered("not begun")),
]

STEPS: st.SearchStrategy[Callable[[World], None]] = st.one_of(
    st.builds(lambda task: lambda world: _join(world, task), st.sampled_from(TASKS)),
    st.builds(lambda task: lambda world: _leave(world, task), st.sampled_from(TASKS)),
    st.builds(lambda task: lambda world: _commit(world, task), st.sampled_from(TASKS)),
    st.builds(lambda task: lambda world: _ask_status(world, task), st.sampled_from(TASKS)),
    st.builds(
        lambda failure, failed: lambda world: _end(world, failure, failed),
        st.sampled_from(FAILURES),
        st.none() | failures_of_tasks(),
    ),
    st.builds(lambda answer: lambda world: _answer(world, *answer), st.sampled_from(ANSWERS)),
    st.builds(lambda seconds: lambda world: world.turn(seconds), st.sampled_from([0.0, 0.1, 0.5, 2.0, 20.0])),
    st.builds(lambda seconds: lambda world: world.turn(seconds), st.sampled_from([0.0, 0.1, 0.5, 2.0, 20.0])),
)


@given(
    policy=st.sampled_from(POLICIES),
    may_skip=st.booleans(),
    steps=st.lists(STEPS, max_size=60),
)
def test_whatever_fails_a_feed_begins_at_what_is_committed_and_in_the_end_all_are_fed(
    policy: ErrorPolicy, may_skip: bool, steps: list[Callable[[World], None]]
) -> None:
    world = World(policy, may_skip_lost=may_skip)
    for task in TASKS:
        world.join(task)
    for each in steps:
        each(world)
    # Nothing fails any more.
    world.answers.clear()
    for task in TASKS:
        _join(world, task)
    for _ in range(400):
        world.turn(0.5)
        for task in TASKS:
            _ask_status(world, task)
        if world.state.is_apart:
            (task,) = world.fed
            _commit(world, task)
            world.feed_ends()
        elif world.fed.keys() == set(TASKS) and not world.state.suspects:
            break
        else:
            for task in world.fed:
                _commit(world, task)
    assert world.fed.keys() == set(TASKS)
    assert world.state.suspects == {}
    assert world.state.held_up == {}


@given(records=st.integers(1, 40), bad=st.integers(0, 39), two=st.booleans(), troubles=st.integers(0, 8))
def test_with_skip_exactly_the_bad_record_is_left_out(
    records: int, bad: int, troubles: int, *, two: bool
) -> None:
    bad %= records
    keys = {"task__inputs": "in,other"} if two else {}
    world = World(policy_of(task__on__error="skip", task__on__error__attempts="2", **keys), end=records)
    world.join(TASKS[0])
    left_out: list[tuple[str, int]] = []
    for _ in range(300):
        world.turn(6)
        left_out += [(each.given_up.topic, each.given_up.offset) for each in world.took(TellGivenUp)]
        feed = world.state.feed
        if feed is None:
            continue
        task, end = TASKS[0], Offsets((records,) * (2 if two else 1))
        if feed.apart is not None and troubles:
            troubles -= 1
            world.feed_ends(TRANSIENT)
            assert world.state.suspects.keys() == {task}, "the search goes on"
            continue
        until = end if feed.apart is None else feed.apart.until
        start = world.committed[task]
        if start.each[0] <= bad < until.each[0]:
            of = FailedInput(until, RAISED, is_code=True)
            world.feed_ends(BY_ITSELF, TaskFailure(task, Signal.INPUT_FAILED, "bad", "where", of=of))
            continue
        world.committed[task] = until
        world.commits += 1
        if feed.apart is None:
            break
        world.feed_ends()
    assert left_out == [("in", bad)]


@given(rounds=st.integers(1, 12), have_input=st.booleans())
def test_any_number_of_rounds_in_which_the_transform_fails_on_one_task_are_gone_through(
    rounds: int, *, have_input: bool
) -> None:
    keys = {"task__on__error__attempts": "1", "task__batch__max__records": "4"}
    world = World(policy_of(task__on__error="skip", **keys))
    one, *others = TASKS
    for task in TASKS:
        world.join(task)
    world.turn()
    for bad in range(rounds):
        world.end = bad + 1
        if not have_input:
            world.committed.update(dict.fromkeys(others, Offsets.of(world.end)))
        world.feed_ends(TRANSFORM)
        while world.state.suspects:
            world.turn(6)
            feed = world.state.feed
            if feed is None or feed.apart is None:
                continue
            if feed.apart.task == one:
                world.feed_ends(TRANSFORM)
            else:
                _commit(world, feed.apart.task)
                world.feed_ends()
        world.turn(6)
        assert world.fed.keys() == set(TASKS)
    assert [each.given_up.offset for each in world.took(TellGivenUp)] == list(range(rounds))


def test_a_transform_that_fails_on_all_but_on_none_alone_ends_them_all() -> None:
    world = World(end=0)
    for task in TASKS:
        world.join(task)
    for _ in range(_FEED_FAILURES):
        while world.fed.keys() != set(TASKS):
            world.turn(6)
        assert world.took(EndTask) == []
        world.feed_ends(TRANSFORM)
    ended = world.took(EndTask)
    assert {each.task for each in ended} == set(TASKS)
    assert all("times in a row: ValueError: bad" in each.detail for each in ended)
