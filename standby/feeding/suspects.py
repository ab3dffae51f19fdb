"""Handles suspects, which are tasks that must be run alone (`task.on.error`). Pure.

`standby.replica.failing.Suspect` decides what is run and what is given up; this module executes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from standby.feeding.actions import (
    AskInput,
    CommitPast,
    FeedingAction,
    LookAgain,
    Narrow,
    ReadRecord,
    SetInputStatus,
    TellGivenUp,
    WriteLog,
)
from standby.feeding.events import TaskFailure
from standby.feeding.feeds import begin
from standby.feeding.members import FeedingStep, end_task, note_error, with_member, without
from standby.feeding.state import (
    LETTERS,
    Apart,
    Beginning,
    FeedingPolicy,
    FeedingState,
    FeedMember,
    GivingUp,
    Letter,
    ReadingRecord,
    Routing,
    SuspectTask,
)
from standby.replica.failing import (
    WINDOW_MS,
    Clear,
    CodeError,
    FailedAt,
    FailReplica,
    GiveUp,
    InputRecord,
    RunAlone,
    dead_letter,
    suspect_after,
    suspect_at_start,
)
from standby.replica.lifecycle import Signal
from standby.replica.route import Route, beginning_with
from standby.shared.model import Fault, GivenUp, LeftOut, Offsets, TaskId

#: How long a batch that may end the process waits for a report of its task's status.
_REPORT_SECONDS: Final = 2.0

#: Maximum length of an error message that is reported with a given-up record.
_MESSAGE_CHARACTERS: Final = 200

#: Delay after a request to Kafka without an answer.
_RETRY_SECONDS: Final = 0.5


def joined(state: FeedingState, member: FeedMember) -> FeedingStep:
    """Check a new member: input that ended earlier processes must be handled with care."""
    task, errors = member.task, state.policy.errors
    kept = state.kept.get(task)
    state = replace(state, suspects=without(state.suspects, task), kept=without(state.kept, task))
    if kept is not None and kept.suspect.start <= member.position < kept.suspect.end:
        state, report = _planned(state, member, replace(kept, suspect=kept.suspect.reached(member.position)))
        return state, (replace(report, is_at_once=False),)
    suspect = suspect_at_start(errors, member.present_failures, member.position)
    if suspect is None:
        return state, ()
    note = WriteLog(
        f"{task}: {suspect.failures} failures at {member.committed}, or an end of its process; "
        "its next input is run alone"
    )
    state = _awaiting_report(state, member, SuspectTask(suspect, 0.0))
    return state, (note, SetInputStatus(task, member.failures, is_at_once=False))


def accused(state: FeedingState, tasks: Sequence[TaskId]) -> FeedingState:
    """Run each of these tasks alone: code failed on a common batch, and it is not known for which task."""
    for task in tasks:
        member = state.members.get(task)
        if member is not None and task not in state.suspects:
            state = _with(state, task, _suspected(state, member, None, state.now))
    return state


def failed(state: FeedingState, member: FeedMember, until: Offsets | None, error: CodeError) -> FeedingStep:
    """Record that the job's code failed within [committed, ``until``); None: within some batch."""
    known = state.suspects.get(member.task) or _suspected(state, member, until, 0.0)
    end = _end(state.policy, member, until)
    suspect = known.suspect.failed(member.position, end, error, state.policy.errors)
    known = replace(known, suspect=suspect)
    state, report = _planned(state, member, known)
    message = _describe(state.policy, member, known)
    note = WriteLog(f"{member.task}: {suspect.failures} failures at one offset: {message}")
    return state, (note, replace(report, error=error))


def failed_of_too_much(
    state: FeedingState, member: FeedMember, until: Offsets, error: CodeError
) -> FeedingStep:
    """Record that the transaction of [committed, ``until``) failed due to its content.

    The task is claimed again, and then a smaller range is run.
    """
    state, actions = failed(state, member, until, error)
    return _kept(state, member.task), (*actions, Narrow(member.task))


def progressed(state: FeedingState, task: TaskId) -> FeedingStep:
    """Record that the task has committed."""
    known, member = state.suspects.get(task), state.members.get(task)
    if known is None or member is None:
        return state, ()
    known = replace(known, suspect=known.suspect.reached(member.position))
    state, report = _planned(state, member, known)
    if known.suspect.at_once is None:
        return state, (replace(report, is_at_once=False),)
    state = _awaiting_report(state, state.members[task], known)
    return state, (report,)


def due(state: FeedingState) -> TaskId | None:
    """Return the task whose move has been due for the longest time, if any."""

    def due_at(task: TaskId) -> float:
        known = state.suspects[task]
        is_reported = known.is_waiting_for_report and state.members[task].is_reported
        return 0.0 if is_reported else known.due_at

    first = min(state.suspects, key=due_at, default=None)
    return None if first is None or due_at(first) > state.now else first


def attend(state: FeedingState, task: TaskId) -> FeedingStep:
    """Make the task's next move; when that is a run, the others wait for it."""
    known = replace(state.suspects[task], is_waiting_for_report=False)
    state = _with(state, task, known)
    unreadable = _unreadable(state.policy, state.members[task], known)
    if unreadable is not None:
        return read(state, ReadingRecord(task), unreadable)
    match known.suspect.next(state.policy.errors):
        case RunAlone(until):
            return replace(state, doing=Routing(task, until)), (AskInput(task),)
        case GiveUp():
            if known.route is None:
                return replace(state, doing=Routing(task, None)), (AskInput(task),)
            return _read(state, task)
        case FailReplica():
            detail = f"poison: {_describe(state.policy, state.members[task], known)}"
            traceback = known.suspect.error.traceback
            return end_task(state, TaskFailure(task, Signal.FAILED, detail, traceback, Fault.POISON))
        case Clear():
            return _forget(state, task), (LookAgain(),)


def routed(state: FeedingState, doing: Routing, ends: Offsets) -> FeedingStep:
    """Continue with a suspect whose input ends at ``ends``."""
    task = doing.task
    known, member = state.suspects[task], state.members[task]
    known = replace(known, route=known.route or _route(state.policy, member, ends))
    state = _with(state, task, known)
    if doing.until is None:
        return _read(state, task)
    return _run(state, task, doing.until, ends)


def read(state: FeedingState, doing: ReadingRecord, record: InputRecord | None) -> FeedingStep:
    """Give up a record, with its dead letter in the same transaction, if configured."""
    task, policy = doing.task, state.policy.errors
    known, member = state.suspects[task], state.members[task]
    assert known.route is not None
    past_it = known.route.step(member.committed)
    number = known.route.next(member.committed)
    topic, offset = policy.topics[number], member.committed.each[number]
    if record is not None and record.unreadable_until is not None and policy.gives_up_records:
        end = max(known.suspect.end, member.position + record.unreadable_until - offset)
        suspect = replace(known.suspect, end=end)
        known = replace(known, suspect=suspect, unreadable=(topic, record.unreadable_until))
        state = _with(state, task, known)
    now_ms = state.now_ms
    recent = tuple(each for each in state.given_up_ms.get(task, ()) if each > now_ms - WINDOW_MS)
    error, message = known.suspect.error, _describe(state.policy, member, known)
    if record is not None and policy.is_beyond_limit(recent, now_ms):
        detail = f"poison-limit: {len(recent)} records were given up within an hour, and now {message}"
        return end_task(
            state, TaskFailure(task, Signal.FAILED, detail, error.traceback, fault=Fault.POISON_LIMIT)
        )
    form, letters = known.letters[0], []
    if record is not None and policy.dead_letter and form is not Letter.NONE:
        place, is_short = FailedAt(topic, task, member.epoch), form is Letter.SHORT
        letters.append(dead_letter(record, place, known.suspect.failures, error, policy, is_short=is_short))
    giving_up = GivingUp(
        task, record is not None, topic, offset, form, bool(letters), message, recent, now_ms
    )
    past = CommitPast(task, member.committed, past_it, tuple(letters))
    return replace(state, doing=giving_up), (past,)


def gave_up(state: FeedingState, doing: GivingUp) -> FeedingStep:
    """Continue after a record that was given up."""
    task, policy = doing.task, state.policy.errors
    known = replace(state.suspects[task], letters=LETTERS)
    state = _with(state, task, known)
    actions: list[FeedingAction] = []
    if doing.is_there:
        state = replace(state, given_up_ms={**state.given_up_ms, task: (*doing.recent, doing.now_ms)})
        what = doing.form.value.format(policy.dead_letter) if policy.dead_letter else "skipped"
        how = LeftOut.DEAD_LETTER if doing.has_letter else LeftOut.SKIPPED
        error, failures = known.suspect.error, known.suspect.failures
        actions += [
            note_error(
                f"{task}: one record is given up and {what} after {failures} failures: {doing.message}"
            ),
            TellGivenUp(
                task,
                GivenUp(
                    doing.topic,
                    doing.offset,
                    how,
                    error.kind,
                    error.message[:_MESSAGE_CHARACTERS],
                    at_ms=doing.now_ms,
                ),
            ),
        ]
    state, more = progressed(state, task)
    return state, (*actions, *more, LookAgain())


def not_given_up(state: FeedingState, doing: GivingUp, failure: TaskFailure) -> FeedingStep:
    """End a task whose record could not be given up; if it was too large, the next dead letter is smaller."""
    actions: tuple[FeedingAction, ...] = ()
    if failure.of is not None:
        known = state.suspects[doing.task]
        form = doing.form.name.lower()
        note = note_error(f"{doing.task}: its dead letter ({form}) is refused: {failure.detail}")
        state = _kept(_with(state, doing.task, replace(known, letters=known.letters[1:])), doing.task)
        actions = (note, Narrow(doing.task))
    state, more = end_task(state, failure)
    return state, (*actions, *more)


def unanswered(state: FeedingState, task: TaskId, reason: str) -> FeedingStep:
    """Delay the task's move."""
    known = replace(state.suspects[task], due_at=state.now + _RETRY_SECONDS)
    return _with(state, task, known), (WriteLog(f"{task}: {reason}"), LookAgain())


def _run(state: FeedingState, task: TaskId, until: int, ends: Offsets) -> FeedingStep:
    """Run the task alone up to position ``until``, or to the end of its input."""
    known, member = state.suspects[task], state.members[task]
    assert known.route is not None
    if known.suspect.is_closing_in:
        # One input at a time, so that it is known which one ended a process.
        topic = _next_topic(state.policy, member, known)
        if member.failures is not None and member.failures.topic != topic:
            member = replace(member, failures=replace(member.failures, topic=topic))
            state = _awaiting_report(state, member, known)
            return state, (SetInputStatus(task, member.failures), LookAgain())
        there = known.route.leg(member.committed, until)
    else:
        there = known.route.at(member.committed, until)
    there = there.at_most(ends)
    if there.total > member.position:
        return begin(state, Beginning(Apart(task, member.committed, there)))
    # There is no input yet that it could fail on.
    return _forget(state, task), (LookAgain(),)


def _unreadable(policy: FeedingPolicy, member: FeedMember, known: SuspectTask) -> InputRecord | None:
    """Return the task's next record if it is in a batch known to be unreadable."""
    if known.unreadable is None or known.route is None:
        return None
    topic, until = known.unreadable
    number = known.route.next(member.committed)
    offset = member.committed.each[number]
    is_in = policy.errors.topics[number] == topic and offset < until
    return InputRecord(offset, None, None) if is_in else None


def _read(state: FeedingState, task: TaskId) -> FeedingStep:
    known, member = state.suspects[task], state.members[task]
    assert known.route is not None
    number = known.route.next(member.committed)
    topic = state.policy.inputs[number]
    return replace(state, doing=ReadingRecord(task)), (
        ReadRecord(task, topic, member.committed.each[number]),
    )


def _suspected(state: FeedingState, member: FeedMember, until: Offsets | None, due_at: float) -> SuspectTask:
    """Return a new suspect, with its input up to ``until``, or of a whole batch."""
    end = _end(state.policy, member, until)
    suspect = suspect_after(member.present_failures, member.position, end)
    # The failed batch determines the end of each input in the route.
    route = None if until is None else Route(state.policy.inputs, until)
    return SuspectTask(suspect, due_at, route)


def _end(policy: FeedingPolicy, member: FeedMember, until: Offsets | None) -> int:
    """Return the position of ``until``; None: the furthest end of a batch."""
    return member.position + policy.errors.batch_max if until is None else until.total


def _route(policy: FeedingPolicy, member: FeedMember, ends: Offsets) -> Route:
    """Return the order of a task's inputs, which end at ``ends``."""
    failures = member.present_failures
    route = Route(policy.inputs, ends)
    return route if failures is None else beginning_with(route, failures.topic)


def _next_topic(policy: FeedingPolicy, member: FeedMember, known: SuspectTask) -> str:
    """Return which of several inputs is run next after ends of processes; empty if irrelevant."""
    if known.route is None or len(policy.inputs) == 1 or not known.suspect.is_closing_in:
        return ""
    return policy.inputs[known.route.next(member.committed)]


def _describe(policy: FeedingPolicy, member: FeedMember, known: SuspectTask) -> str:
    """Return a text with the failing range and the error."""
    return known.suspect.describe(_where(policy, member, known))


def _where(policy: FeedingPolicy, member: FeedMember, known: SuspectTask) -> str:
    """Return a description of the failing range of a task that is at its suspect's start."""
    committed, partition, topics = member.committed, member.task.partition, policy.inputs
    if known.route is None and len(topics) > 1:
        return f"input {' and '.join(f'{each}[{partition}]' for each in topics)}, from offsets {committed} on"
    route = known.route or Route(topics, committed)
    return route.describe(partition, committed, known.suspect.reach)


def _planned(
    state: FeedingState, member: FeedMember, known: SuspectTask
) -> tuple[FeedingState, SetInputStatus]:
    """Return the state with the task's next move planned, and the report until then."""
    task, policy = member.task, state.policy
    failures = known.suspect.reported(_where(policy, member, known), _next_topic(policy, member, known))
    state = with_member(state, replace(member, failures=failures))
    move = known.suspect.next(policy.errors)
    if isinstance(move, Clear):
        return _forget(state, task), SetInputStatus(task, failures)
    due_at = state.now + (move.after_seconds if isinstance(move, RunAlone) else 0.0)
    return _with(state, task, replace(known, due_at=due_at)), SetInputStatus(task, failures)


def _awaiting_report(state: FeedingState, member: FeedMember, known: SuspectTask) -> FeedingState:
    waiting = replace(known, is_waiting_for_report=True, due_at=state.now + _REPORT_SECONDS)
    return _with(with_member(state, replace(member, is_reported=False)), member.task, waiting)


def _kept(state: FeedingState, task: TaskId) -> FeedingState:
    return replace(state, kept={**state.kept, task: state.suspects[task]})


def _with(state: FeedingState, task: TaskId, known: SuspectTask) -> FeedingState:
    return replace(state, suspects={**state.suspects, task: known})


def _forget(state: FeedingState, task: TaskId) -> FeedingState:
    return replace(state, suspects=without(state.suspects, task))
