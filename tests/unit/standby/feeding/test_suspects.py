"""Tasks whose input is run apart: what is run, reported and given up, step by step."""

from __future__ import annotations

from collections import deque

from standby.feeding.actions import (
    AskInput,
    CommitPast,
    EndTask,
    LookAgain,
    Narrow,
    ReadRecord,
    SetInputStatus,
    StartFeed,
    StopFeed,
    TellGivenUp,
)
from standby.feeding.events import FailedInput, PastFailed, RecordRead, TaskFailure, Unanswered
from standby.feeding.feeds import _APART_SECONDS
from standby.feeding.state import FeedEndCause, FeedFailure
from standby.feeding.suspects import _REPORT_SECONDS, _RETRY_SECONDS
from standby.replica.failing import CodeError, FailureOf, InputRecord
from standby.replica.lifecycle import Signal
from standby.shared.model import Fault, InputFailures, LeftOut, Offsets, TaskId
from tests.fakes.feeding import BY_ITSELF, FeedingWorld, feeding, policy_of

ONE, TWO = TaskId("job", "main", 0), TaskId("job", "main", 1)

RAISED = CodeError("ValueError", "bad", "where")
TRANSFORM = FeedFailure(FeedEndCause.CODE, "bad", "ValueError: bad", "where", "story", RAISED)


def code_failed(task: TaskId, end: int) -> TaskFailure:
    """Return that the step failed on a task's part of a batch that ends there."""
    of = FailedInput(Offsets.of(end), RAISED, is_code=True)
    return TaskFailure(task, Signal.INPUT_FAILED, "ValueError: bad", "where", of=of)


def too_late(task: TaskId, end: int, *, may_pass: bool = False) -> TaskFailure:
    """Return that the transaction of a task's input up to there took too long."""
    error = CodeError("TransactionTooLong", "much", of=FailureOf.TIME)
    of = FailedInput(Offsets.of(end), error, is_code=False, may_pass=may_pass)
    return TaskFailure(task, Signal.WRITER_LOST, str(error), of=of)


def test_whose_batch_failed_is_run_alone_and_the_others_go_on_after_it() -> None:
    world = feeding(ONE, TWO)
    world.feed_ends(BY_ITSELF, code_failed(ONE, 8))
    (report,) = world.took(SetInputStatus)
    assert report.failures == InputFailures(0, 1, "input in[0], offsets [0, 8): ValueError: bad")
    assert report.error is RAISED
    assert report.is_at_once

    world.turn()
    assert world.fed.keys() == {TWO}, "the first try comes after a pause"
    world.done.clear()
    world.turn(0.2)
    assert [type(each) for each in world.done if not isinstance(each, LookAgain)] == [
        AskInput,
        StopFeed,
        StartFeed,
    ]
    assert world.fed.keys() == {ONE}
    started = [each for each in world.done if isinstance(each, StartFeed)][-1]
    assert started.positions == {ONE: Offsets.of(0)}
    assert started.until == {ONE: Offsets.of(8)}

    world.commit(ONE, 8)
    world.feed_ends()
    world.turn()
    assert world.fed.keys() == {ONE, TWO}, "it is a task like any other"
    assert world.state.suspects == {}


def test_with_fail_the_replica_ends_after_as_many_failures_as_allowed() -> None:
    world = feeding(ONE, task__on__error__attempts="2")
    world.feed_ends(BY_ITSELF, code_failed(ONE, 8))
    world.turn(1)
    assert world.state.is_apart
    world.done.clear()
    world.feed_ends(BY_ITSELF, code_failed(ONE, 8))
    world.turn(1)
    (ended,) = world.took(EndTask)
    assert ended == EndTask(
        ONE, Signal.FAILED, "poison: input in[0], offsets [0, 8): ValueError: bad", "where", Fault.POISON
    )
    assert world.state.members == {}


def test_the_rest_of_a_batch_that_cannot_be_read_is_given_up_without_being_run() -> None:
    world = feeding(ONE, task__on__error="skip", task__on__error__attempts="1")
    world.answers[ReadRecord] = deque([RecordRead(InputRecord(0, None, None, unreadable_until=5))])
    world.feed_ends(BY_ITSELF, code_failed(ONE, 1))
    for _ in range(6):
        world.turn(1)
    assert [each.given_up.offset for each in world.done if isinstance(each, TellGivenUp)] == [0, 1, 2, 3, 4]
    assert [each for each in world.done if isinstance(each, ReadRecord)] == [ReadRecord(ONE, "in", 0)]
    (started,) = world.took(StartFeed)
    assert started.positions == {ONE: Offsets.of(5)}


def given_up_next(**keys: str) -> FeedingWorld:
    """Return a world in which a task's next record has ended processes, so that it is given up."""
    world = FeedingWorld(policy_of(task__on__error__attempts="1", task__batch__max__records="1", **keys))
    world.join(ONE, at=7, failures=InputFailures(7, 2, "killed"))
    world.reported.add(ONE)
    world.done.clear()
    return world


def test_what_ended_processes_is_given_up_unseen_and_its_refused_dead_letter_cut_short_and_then_left_out() -> (
    None
):
    world = given_up_next(task__on__error="dead-letter", task__dead__letter="dead")
    error = CodeError("RecordRefused", "too large", of=FailureOf.SIZE)
    refused = TaskFailure(
        ONE, Signal.WRITER_LOST, "refused", of=FailedInput(Offsets.of(8), error, is_code=False)
    )
    sizes: list[int] = []
    for is_refused in (True, True, False):
        world.answers[CommitPast] = deque([PastFailed(refused)] if is_refused else [])
        world.turn()
        world.turn()
        done = tuple(world.done)
        (past,) = world.took(CommitPast)
        kinds = [type(each) for each in done]
        assert StartFeed not in kinds[: kinds.index(CommitPast)], "it is not run"
        assert (past.start, past.end) == (Offsets.of(7), Offsets.of(8))
        sizes.append(len(past.letters))
        assert (EndTask in kinds) == (Narrow in kinds) == is_refused
        if is_refused:
            world.join(ONE, at=7, failures=InputFailures(7, 2, "killed"))
            world.done.clear()
        else:
            (told,) = [each for each in done if isinstance(each, TellGivenUp)]
            assert told.given_up.how is LeftOut.SKIPPED
    assert sizes == [1, 1, 0]
    assert world.committed[ONE] == Offsets.of(8)


def test_what_is_no_record_is_passed_without_a_word() -> None:
    world = given_up_next(task__on__error="skip")
    world.answers[ReadRecord] = deque([RecordRead(None)])
    world.turn()
    assert not any(isinstance(each, TellGivenUp) for each in world.done)
    assert world.committed[ONE] == Offsets.of(8)
    assert world.state.given_up_ms == {}


def test_one_record_too_many_within_an_hour_ends_the_task() -> None:
    world = given_up_next(task__on__error="skip", task__on__error__limit="0")
    world.turn()
    (ended,) = [each for each in world.done if isinstance(each, EndTask)]
    assert ended.fault is Fault.POISON_LIMIT
    assert ended.detail.startswith(
        "poison-limit: 0 records were given up within an hour, and now input in[0]"
    )
    assert world.took(CommitPast) == []


def test_what_may_end_the_process_waits_until_its_failures_are_reported() -> None:
    world = FeedingWorld(policy_of(task__on__error="skip"), end=30)
    world.join(ONE, failures=InputFailures(0, 3))
    world.turn()
    assert world.fed == {}
    world.reported.add(ONE)
    world.turn()
    (start,) = world.took(StartFeed)
    assert start.until == {ONE: Offsets.of(30)}, "not beyond the input's end"
    # A task that continues after a success is also reported first.
    world.commit(ONE, 30)
    world.feed_ends()
    (report,) = world.took(SetInputStatus)
    assert report.is_at_once
    world.turn()
    assert world.fed == {}
    assert world.took(AskInput) == []
    world.reported.add(ONE)
    world.turn()
    assert world.state.suspects == {}, "there is no more input to be careful with"
    world.turn()
    assert world.fed.keys() == {ONE}


def test_without_a_report_it_waits_for_a_while_only() -> None:
    world = FeedingWorld(policy_of(task__on__error="skip"), end=30)
    world.join(ONE, failures=InputFailures(0, 3))
    world.turn(_REPORT_SECONDS - 0.1)
    assert world.fed == {}
    world.turn(0.2)
    assert world.state.is_apart


def test_a_question_without_an_answer_is_asked_again_a_little_later() -> None:
    for question in (AskInput, ReadRecord, CommitPast):
        world = given_up_next(task__on__error="skip")
        world.answers[question] = deque([Unanswered("no broker")])
        world.turn()
        assert world.committed[ONE] == Offsets.of(7), question
        world.turn(_RETRY_SECONDS - 0.01)
        assert world.committed[ONE] == Offsets.of(7), question
        world.turn(0.02)
        assert world.committed[ONE] == Offsets.of(8), question


def test_what_the_transform_of_all_failed_on_is_found_by_running_each_alone() -> None:
    world = feeding(ONE, TWO)
    world.feed_ends(TRANSFORM)
    assert world.took(SetInputStatus) == [], "no task is blamed yet"
    world.turn()
    assert world.fed.keys() == {ONE}
    world.commit(ONE, 5)
    world.now += 0.1
    world.feed_ends()
    world.turn()
    assert world.fed.keys() == {TWO}, "whose turn is due for longer"
    world.done.clear()
    world.feed_ends(TRANSFORM)
    (report,) = world.took(SetInputStatus)
    assert report.task == TWO
    world.turn()
    assert world.fed.keys() == {ONE}, "it is run on, while the other waits"


def test_suspects_and_the_others_take_turns() -> None:
    world = feeding(ONE, TWO)
    world.feed_ends(BY_ITSELF, code_failed(ONE, 500))
    world.turn(1)
    apart = 0.0
    while world.state.is_apart:
        world.commit(ONE, 1)
        world.feed_ends()
        world.turn(0.25)
        apart += 0.25
        assert apart < 10 * _APART_SECONDS
    assert world.fed.keys() == {TWO}


def test_a_transaction_that_took_too_long_is_tried_as_it_is_once_and_then_with_less() -> None:
    world = feeding(ONE)
    world.feed_ends(BY_ITSELF, too_late(ONE, 80, may_pass=True))
    (ended,) = world.took(EndTask)
    assert ended.signal is Signal.WRITER_LOST
    assert world.state.kept == {}

    world.join(ONE)
    world.turn()
    (start,) = world.took(StartFeed)
    assert not start.is_smaller
    world.feed_ends(BY_ITSELF, too_late(ONE, 80, may_pass=True))
    assert [type(each) for each in world.done] == [SetInputStatus, Narrow, EndTask]
    world.done.clear()

    world.join(ONE)
    world.turn()
    (start,) = world.took(StartFeed)
    assert start.is_smaller
    assert start.until == {ONE: Offsets.of(10)}


def test_what_is_known_of_a_task_that_moved_on_elsewhere_is_forgotten() -> None:
    world = feeding(ONE)
    world.feed_ends(BY_ITSELF, too_late(ONE, 80))
    assert world.state.kept.keys() == {ONE}
    world.join(ONE, at=80)
    assert world.state.kept == {}
    assert world.state.suspects == {}


def test_of_several_inputs_one_at_a_time_is_run_and_reported_before_after_ends_of_processes() -> None:
    world = FeedingWorld(policy_of(task__on__error="skip", task__inputs="in,also"), end=2)
    world.join(ONE, failures=InputFailures(0, 3, "the container was lost"))
    world.reported.add(ONE)
    world.turn()
    for topic, until in (("in", (2, 0)), ("also", (2, 2))):
        report = world.took(SetInputStatus)[-1]
        assert report.failures is not None
        assert report.failures.topic == topic
        assert world.fed == {}
        world.reported.add(ONE)
        world.turn()
        (start,) = world.took(StartFeed)
        assert start.until == {ONE: Offsets(until)}
        world.committed[ONE] = Offsets(until)
        world.commits += 1
        world.feed_ends()


def test_what_ends_processes_is_given_up_in_the_input_where_it_lies() -> None:
    """Records that have come to the other input since are not taken for it."""
    # 12 of both together, then 6, 3 and 1 at once, and one end of a process more.
    crashed = InputFailures(0, 3 + 4, "the container was lost", "also")
    keys = {"task__inputs": "in,also", "task__batch__max__records": "6"}
    world = FeedingWorld(policy_of(task__on__error="skip", **keys))
    world.join(ONE, failures=crashed)
    world.reported.add(ONE)
    world.done.clear()
    world.turn()
    (past,) = [each for each in world.done if isinstance(each, CommitPast)]
    assert past.end == Offsets.of(0, 1)
    (told,) = world.took(TellGivenUp)
    assert (told.given_up.topic, told.given_up.offset) == ("also", 0)
