"""Runs one micro-batch through the user's step and commits it for each task (rule `whole-batch`)."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from standby.api import RowError
from standby.config import JobConfig
from standby.errors import BadConfiguration, BrokenInvariant, CorruptState, StandfastError, Transient
from standby.feeding.events import FailedInput, TaskFailure
from standby.kernel.active.active import ActiveTask
from standby.kernel.marks import Marks
from standby.kernel.pipeline.parts import head_rows, rows_before, split_part
from standby.kernel.ports import RecordRefused, StepFunction, WriterLost
from standby.kernel.probes import STEPPED, TASK_COMMITTED, Probe
from standby.ports import TaskBatch
from standby.replica.failing import LARGE_BYTES, LARGE_RECORDS, CodeError, FailureOf, code_error
from standby.replica.lifecycle import Signal
from standby.replica.outbox import Emitted, Outbox, Outputs
from standby.replica.store.keys import split
from standby.replica.store.overlay import BatchState, Changes, Postponed
from standby.shared import errortext
from standby.shared.clock import REAL, Clock, have_ended
from standby.shared.model import Fault, Offsets, StartStep, TaskId

_log: Final = logging.getLogger(__name__)


class TaskFailed(StandfastError):
    """One task's part of a batch failed; the others' parts may be committed."""

    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(failure.detail)
        self.failure: Final = failure


class BatchCalledOff(Transient):
    """The rest of a batch is left to the next start of the feed, because this one is to stop."""


class CodeFailed(TaskFailed):
    """The job's own code failed on one task's part of a batch, [start, end)."""

    def __init__(self, batch: TaskBatch, error: BaseException) -> None:
        said = _code_error(batch, error)
        of = FailedInput(batch.end, said, is_code=True)
        super().__init__(TaskFailure(batch.task, Signal.INPUT_FAILED, str(said), said.traceback, of=of))


def _transaction_failed(
    task: TaskId, error: CodeError, end: Offsets, *, may_pass: bool = False
) -> TaskFailed:
    """Return the failure of a transaction due to its content, the input up to ``end``: a retry must be smaller.

    The transaction was not committed; or, if it took too long, the takeover finds out whether it was. ``may_pass``
    is `FailedInput.may_pass`.
    """
    of = FailedInput(end, error, is_code=False, may_pass=may_pass)
    return TaskFailed(TaskFailure(task, Signal.WRITER_LOST, str(error), of=of))


def _code_error(batch: TaskBatch, error: BaseException) -> CodeError:
    """Return what is reported for an error of the step; a row is identified by its Kafka record."""
    said = code_error(error)
    if not isinstance(error, RowError):
        return said
    # User code may construct a `RowError` from any values.
    row: object = error.row
    problem: object = error.problem
    if not isinstance(row, int) or not isinstance(problem, str) or not 0 <= row < batch.rows.num_rows:
        return said
    rows, partition = batch.rows, batch.task.partition
    # With a single input, rows have no topic; the report names it elsewhere.
    topic = f"{rows['_topic'][row]}[{partition}] " if "_topic" in rows.column_names else ""
    text = errortext.clean(problem, errortext.MESSAGE_CHARACTERS)
    return replace(said, message=f"the record at {topic}offset {rows['_offset'][row]} {text}")


@dataclass(frozen=True, slots=True)
class _Part:
    """One task's batch, or the rest of it."""

    batch: TaskBatch
    is_large: bool = False
    """Whether its first record produces more than one transaction should hold."""
    is_at_once: bool = False
    """Whether its first record is to be done in one transaction, however large."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """The result of the step for one task's batch, or for a part of it."""

    batch: TaskBatch
    active: ActiveTask
    outputs: Outputs
    changes: Changes
    rest: _Part | None = None
    """The rest of the batch, to be processed afterwards."""
    until: Offsets | None = None
    """End of the input it was computed from, if that input is not finished with it; None: the batch's end."""

    def failure_of(self, commit: Future[None]) -> TaskFailed | None:
        """Return the failure of its completed commit; None if it succeeded."""
        error = commit.exception()
        task, end = self.batch.task, self.until or self.batch.end
        if isinstance(error, WriterLost) and error.is_late:
            records = len(self.outputs) + len(self.changes)
            size = sum(len(each.key or b"") + len(each.value or b"") for each in self.outputs)
            size += sum(len(key) + len(value or b"") for key, value in self.changes.items())
            is_large = records >= LARGE_RECORDS or size >= LARGE_BYTES
            if is_large or end.total - self.batch.start.total > 1:
                is_much = records >= LARGE_RECORDS // 10 or size >= LARGE_BYTES // 10
                hint = (
                    "raise job.transaction.timeout.ms, or have less come of a record"
                    if is_much
                    else "that is little: a broker is away, or brokers or this host are overloaded"
                )
                message = (
                    f"{errortext.first_line(error)}; it had {len(self.outputs)} outputs and {len(self.changes)} "
                    f"changes of state, {size} bytes; {hint}"
                )
                cause = CodeError("TransactionTooLong", message, of=FailureOf.TIME)
                return _transaction_failed(task, cause, end, may_pass=not is_much)
        return failure_of(task, commit, end)


class BatchRunner:
    """Computes all tasks of a batch first, then commits them in parallel."""

    def __init__(
        self,
        step: Callable[[], StepFunction],
        config: JobConfig,
        commit_seconds: float,
        probe: Probe,
        marks: Marks,
        clock: Clock = REAL,
    ) -> None:
        """``step`` finds the user's function, at the first batch or earlier; ``commit_seconds`` bounds a commit.

        ``marks`` records when the function runs.
        """
        self.inputs: Final = config.inputs
        self.marks: Final = marks
        self._find_step = step
        self._step: StepFunction | None = None
        self._stores = config.stores
        self._outputs = config.outputs
        self._commit_seconds = commit_seconds
        self._probe = probe
        self.clock: Final = clock
        self._failures: list[TaskFailure] = []
        self.commits = 0
        """Number of task batches that were committed."""

    def run(
        self,
        batches: Sequence[TaskBatch],
        actives: Mapping[TaskId, ActiveTask],
        is_called_off: Callable[[], bool] = lambda: False,
    ) -> None:
        """Return when every task of the batch has committed exactly its part; raise `TaskFailed` otherwise.

        Transactions begin after every step is computed, so that slow user code does not delay readers. If a step
        fails, what is computed for other tasks is still committed: they must not wait for its resolution.

        Once ``is_called_off``, commits what is computed and raises `BatchCalledOff` if that is not all: a task that is
        to leave, or to be fed as well, must not wait for the steps of all others, or for a hundred transactions.
        """
        failures: list[TaskFailed] = []
        left = [_Part(each) for each in batches]
        while left:
            left = self._run(left, actives, failures, is_called_off)
            # The feed ends anyway: those that failed, or are to leave, wait for no further transactions of others.
            if failures or is_called_off():
                break
        if failures:
            self._failures.extend(each.failure for each in failures)
            raise failures[0]
        if left:
            raise BatchCalledOff("the feed is to stop")

    def _run(
        self,
        parts: Sequence[_Part],
        actives: Mapping[TaskId, ActiveTask],
        failures: list[TaskFailed],
        is_called_off: Callable[[], bool],
    ) -> list[_Part]:
        """Compute and commit one transaction per part; return the rest, and add failures to ``failures``."""
        computed: list[_Computed] = []
        left: list[_Part] = []
        for at, part in enumerate(parts):
            # At least one is computed, so that a batch advances however often it is called off.
            if at and is_called_off():
                left.extend(parts[at:])
                break
            try:
                computed.append(self._compute(part, actives))
            except TaskFailed as failed:
                failures.append(failed)
        self._probe(STEPPED)
        commits: dict[Future[None], _Computed] = {}
        try:
            for each in computed:
                batch = each.batch
                each.active.note_step(StartStep.COMPUTED)
                commits[each.active.commit(batch.start, batch.end, each.outputs, each.changes)] = each
            for done in self.clock.completed(tuple(commits), self._commit_seconds):
                self._note_end(done, commits.pop(done), left, failures)
        except concurrent.futures.TimeoutError:
            self._give_up(commits, left, failures)
        except BaseException:
            # The feed restarts from the committed offsets: no commit may still be running by then.
            have_ended(self.clock, commits, self._commit_seconds)
            self._give_up(commits, left, failures)
            self._failures.extend(each.failure for each in failures)
            raise
        return left

    def _note_end(
        self, commit: Future[None], of: _Computed, left: list[_Part], failures: list[TaskFailed]
    ) -> None:
        """Take note of a completed commit: add its failure to ``failures``, or what is to follow it to ``left``."""
        failure = of.failure_of(commit)
        if failure is not None:
            failures.append(failure)
            return
        self.commits += 1
        of.active.throughput.note(of.batch.end.total - of.batch.start.total, self.clock.monotonic())
        if of.rest is not None:
            left.append(of.rest)
        self._probe(TASK_COMMITTED)

    def warm(self) -> StepFunction:
        """Return the job's step, importing it if necessary, so that no batch has to wait. Raises as the import."""
        if self._step is None:
            try:
                self._step = self._find_step()
            except StandfastError:
                raise
            except BaseException as error:
                # This imports the job's modules, which may raise anything.
                raise BadConfiguration(
                    f"task.step: it cannot be imported: {errortext.summary_of(error)}"
                ) from error
        return self._step

    def take_failures(self) -> tuple[TaskFailure, ...]:
        """Return the failures since the last call. To be called when the feed has ended."""
        failures, self._failures = tuple(self._failures), []
        return failures

    def _compute(self, part: _Part, actives: Mapping[TaskId, ActiveTask]) -> _Computed:
        """Return the step's result for the part, or for as much of its beginning as one transaction should hold."""
        batch = part.batch
        active = actives.get(batch.task)
        if (
            active is None
            or batch.start != active.committed
            or batch.end == batch.start
            or not batch.end.reaches(batch.start)
        ):
            at = "not fed" if active is None else f"at {active.committed}"
            raise BrokenInvariant(
                f"{batch.task}: a batch of [{batch.start}, {batch.end}), but the task is {at}"
            )
        if not batch.rows.num_rows:
            # The transform may have dropped every row; their offsets are committed nevertheless.
            return _Computed(batch, active, Outputs(), {})
        rest: TaskBatch | None = None
        if part.is_large:
            batch, rest = split_part(batch, head_rows(batch), self.inputs)
        while True:
            try:
                return self._called(batch, active, rest, may_postpone=not part.is_at_once)
            except Postponed as postponed:
                if postponed.row == 0:
                    return self._first_of(part, active, postponed.notes)
                rows = rows_before(batch, postponed.row)
                if rows == 0:
                    # The earlier rows of the same record must be processed first, in the same transaction.
                    part = _Part(part.batch, is_large=True, is_at_once=True)
                    rows = head_rows(batch)
                batch, _ = split_part(batch, rows, self.inputs)
                _, rest = split_part(part.batch, rows, self.inputs)

    def _first_of(self, part: _Part, active: ActiveTask, notes: Changes) -> _Computed:
        """Return what is due before the first row of the part, as much as one transaction should hold."""
        batch = replace(part.batch, end=part.batch.start, rows=part.batch.rows.slice(0, 0))
        try:
            found = self._called(batch, active, None, notes)
        except CodeFailed:
            # The step cannot run without rows.
            found = None
        if found is None or not _is_nearer(found.changes, notes):
            return self._compute(_Part(part.batch, is_large=True, is_at_once=True), {active.task: active})
        first, _ = split_part(part.batch, head_rows(part.batch), self.inputs)
        return replace(found, rest=_Part(part.batch, is_large=True), until=first.end)

    def _called(
        self,
        batch: TaskBatch,
        active: ActiveTask,
        rest: TaskBatch | None,
        notes: Changes | None = None,
        *,
        may_postpone: bool = False,
    ) -> _Computed:
        """Return the step's result for a batch, with ``notes`` in its state. Raises `Postponed`."""
        outbox = Outbox(self._outputs)
        state = BatchState(self._stores, active.store, may_postpone=may_postpone)
        state.changes.update(notes or {})
        step = self._found_step(batch.task)
        try:
            with self.marks.step(batch.task, batch.start):
                step(batch.rows, state, outbox)
        except Postponed:
            raise
        except BaseException as error:
            # The boundary of the user's code: it may raise anything, including by sys.exit().
            _log.error(
                "%s: the step failed on input [%s, %s)\n%s",
                *(batch.task, batch.start, batch.end, errortext.full_traceback(error)),
            )
            raise _failed_step(batch, error) from error
        finally:
            state.end()
            outbox.end()
        return _Computed(batch, active, outbox.records, state.changes, None if rest is None else _Part(rest))

    def _found_step(self, task: TaskId) -> StepFunction:
        try:
            return self.warm()
        except StandfastError as error:
            _log.error("%s: the job's step cannot be used\n%s", task, errortext.full_traceback(error))
            # What this host lacks, another one may have.
            fault = Fault.OTHER if isinstance(error, Transient) else Fault.REFUSED
            raise TaskFailed(TaskFailure(task, Signal.FAILED, *refusal_of(error), fault)) from error

    def _give_up(
        self, commits: Mapping[Future[None], _Computed], left: list[_Part], failures: list[TaskFailed]
    ) -> None:
        """Abandon hanging commits, and take note of those that have ended just now.

        A commit hangs when a broker dies at the wrong moment; no time-out ends it.
        """
        for commit, each in commits.items():
            if not commit.done():
                # Its content is not to blame for what has not begun.
                is_late = not each.active.is_unanswered
                why = (
                    "a transaction has not ended"
                    if is_late
                    else "the markers of the last commit are not seen"
                )
                each.active.abandon(f"{why} after {self._commit_seconds:.0f} s", is_late=is_late)
            self._note_end(commit, each, left, failures)


def _failed_step(batch: TaskBatch, error: BaseException) -> TaskFailed:
    """Return the failure for a step's error: the record is at fault unless the error came from the store."""
    if isinstance(error, CorruptState):
        return TaskFailed(TaskFailure(batch.task, Signal.STATE_LOST, errortext.first_line(error)))
    if isinstance(error, StandfastError) and not isinstance(error, BadConfiguration):
        return TaskFailed(TaskFailure(batch.task, Signal.FAILED, errortext.summary_of(error)))
    return CodeFailed(batch, error)


def _is_nearer(changes: Changes, notes: Changes) -> bool:
    """Return whether a call without rows has done some of what is due, which changes the store of the notes.

    Other changes and outputs do not count: the same call would be repeated for ever, each time in a transaction.
    """
    stores = {split(key)[0] for key in notes}
    return {key: value for key, value in changes.items() if split(key)[0] in stores} != notes


def refusal_of(error: BaseException) -> tuple[str, str]:
    """Return the detail and the traceback to report for code of the job that cannot be used."""
    detail = errortext.first_line(error) if isinstance(error, StandfastError) else errortext.summary_of(error)
    return detail, errortext.traceback_of(error)


def failure_of(task: TaskId, commit: Future[None], end: Offsets) -> TaskFailed | None:
    """Return the failure of a completed commit of input up to ``end``; None if it succeeded."""
    error = commit.exception()
    if error is None:
        return None
    if isinstance(error, RecordRefused):
        cause = CodeError(errortext.kind_of(error), errortext.first_line(error), of=FailureOf.SIZE)
        return _transaction_failed(task, cause, end)
    signal = Signal.WRITER_LOST if isinstance(error, WriterLost) else Signal.FAILED
    return TaskFailed(TaskFailure(task, signal, errortext.first_line(error)))


def commit_alone(
    active: ActiveTask, start: Offsets, end: Offsets, outputs: Iterable[Emitted], seconds: float, clock: Clock
) -> None:
    """Commit the input [start, end) outside of any batch, without changes. Raises `TaskFailed`.

    After a commit that takes longer than ``seconds``, the task loses its producer.
    """
    commit = active.commit(start, end, Outputs.of(outputs), {})
    if not have_ended(clock, (commit,), seconds):
        active.abandon()
    failure = failure_of(active.task, commit, end)
    if failure is not None:
        raise failure
