"""Takes one micro-batch through the user's step and into the commits of its tasks (design 4.4)."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from standby.errors import BadConfiguration, BrokenLaw, CorruptState, StandfastError
from standby.kernel.active import ActiveTask
from standby.kernel.ports import WriterLost
from standby.kernel.probes import STEPPED, TASK_COMMITTED, Probe
from standby.model import Offsets, TaskId
from standby.ports import TaskBatch
from standby.replica.failing import code_error
from standby.replica.lifecycle import Signal
from standby.replica.overlay import BatchState, Changes, Emitted, Outbox

_log: Final = logging.getLogger(__name__)

#: The job's own function: (rows, state, out) → None.
Step = Callable[[Any, Any, Any], Any]


class TaskFailed(StandfastError):
    """One task's part of a batch failed; the others' parts may be committed."""

    def __init__(self, task: TaskId, signal: Signal, detail: str) -> None:
        super().__init__(detail)
        self.task = task
        self.signal = signal


class CodeFailed(TaskFailed):
    """The job's own code failed on one task's part of a batch, [start, end)."""

    def __init__(self, batch: TaskBatch, error: BaseException) -> None:
        self.error = code_error(error)
        super().__init__(batch.task, Signal.INPUT_FAILED, str(self.error))
        self.end = batch.end


@dataclass(frozen=True, slots=True)
class _Computed:
    """What the step made of one task's batch."""

    batch: TaskBatch
    active: ActiveTask
    outputs: Sequence[Emitted]
    changes: Changes


class BatchRunner:
    """Computes all tasks of a batch first, then commits them side by side."""

    def __init__(
        self,
        step: Callable[[], Step],
        stores: Sequence[str],
        outputs: Sequence[str],
        commit_seconds: float,
        probe: Probe,
    ) -> None:
        """``step`` finds the user's function, at the first batch or before; a commit may take ``commit_seconds``."""
        self._find_step = step
        self._step: Step | None = None
        self._stores = stores
        self._outputs = outputs
        self._commit_seconds = commit_seconds
        self._probe = probe
        self._failures: list[TaskFailed] = []
        self.commits = 0
        """How many batches of tasks were committed."""

    def run(self, batches: Sequence[TaskBatch], actives: Mapping[TaskId, ActiveTask]) -> None:
        """Return when every task of the batch has committed exactly its part; raise `TaskFailed` otherwise.

        Transactions begin after every step is computed, so that slow user code holds up no reader. Where a
        step failed, the other tasks' parts are committed all the same: they must not wait for its end.
        """
        computed: list[_Computed] = []
        failures: list[TaskFailed] = []
        for batch in batches:
            try:
                computed.append(self._compute(batch, actives))
            except TaskFailed as failed:
                failures.append(failed)
        self._probe(STEPPED)
        commits: dict[Future[None], _Computed] = {}
        try:
            for each in computed:
                batch = each.batch
                commits[each.active.commit(batch.start, batch.end, each.outputs, each.changes)] = each
            for done in concurrent.futures.as_completed(commits, self._commit_seconds):
                failure = failure_of(commits[done].batch.task, done)
                if failure is None:
                    self.commits += 1
                    self._probe(TASK_COMMITTED)
                else:
                    failures.append(failure)
        except concurrent.futures.TimeoutError:
            failures.extend(self._give_up(commits))
        except BaseException:
            # The feed starts again from what is committed: nothing may still be on its way then.
            concurrent.futures.wait(commits, self._commit_seconds)
            self._failures.extend(self._give_up(commits))
            raise
        if failures:
            self._failures.extend(failures)
            raise failures[0]

    def warm(self) -> Step:
        """Return the job's step, imported now if it was not: a first batch need not wait. Raises as finding it does."""
        if self._step is None:
            self._step = self._find_step()
        return self._step

    def take_failures(self) -> tuple[TaskFailed, ...]:
        """Return the failures since the last call; to be called when the feed has ended."""
        failures, self._failures = tuple(self._failures), []
        return failures

    def _compute(self, batch: TaskBatch, actives: Mapping[TaskId, ActiveTask]) -> _Computed:
        active = actives.get(batch.task)
        if (
            active is None
            or batch.start != active.committed
            or batch.end == batch.start
            or not batch.end.reaches(batch.start)
        ):
            at = "not fed" if active is None else f"at {active.committed}"
            raise BrokenLaw(f"{batch.task}: a batch of [{batch.start}, {batch.end}), but the task is {at}")
        outbox = Outbox(self._outputs)
        state = BatchState(self._stores, active.store)
        step = self._found_step(batch.task)
        try:
            # The transform may have dropped every row; their offsets are committed all the same.
            if batch.rows.num_rows:
                step(batch.rows, state, outbox)
        except BaseException as error:
            # The outermost loop of the user's code: its errors are of any kind, sys.exit() among them.
            _log.exception("%s: the step failed on input [%s, %s)", batch.task, batch.start, batch.end)
            raise _failed_step(batch, error) from error
        finally:
            state.end()
        return _Computed(batch, active, outbox.records, state.changes)

    def _found_step(self, task: TaskId) -> Step:
        try:
            return self.warm()
        except StandfastError as error:
            raise TaskFailed(task, Signal.FAILED, str(error)) from error

    def _give_up(self, commits: Mapping[Future[None], _Computed]) -> list[TaskFailed]:
        """Give up the commits that hang: seen when a broker dies at the wrong moment, beyond any time-out."""
        failures = []
        for commit, each in commits.items():
            if not commit.done():
                each.active.abandon()
            failure = failure_of(each.batch.task, commit)
            if failure is not None:
                failures.append(failure)
        return failures


def _failed_step(batch: TaskBatch, error: BaseException) -> TaskFailed:
    """Return what a step's error means: the record's fault unless it came from the store below the step."""
    if isinstance(error, CorruptState):
        return TaskFailed(batch.task, Signal.STATE_LOST, str(error))
    if isinstance(error, StandfastError) and not isinstance(error, BadConfiguration):
        return TaskFailed(batch.task, Signal.FAILED, f"{type(error).__name__}: {error}")
    return CodeFailed(batch, error)


def failure_of(task: TaskId, commit: Future[None]) -> TaskFailed | None:
    """Return what a commit that has ended failed with, None when it did not fail."""
    error = commit.exception()
    if error is None:
        return None
    signal = Signal.WRITER_LOST if isinstance(error, WriterLost) else Signal.FAILED
    return TaskFailed(task, signal, (str(error).splitlines() or [repr(error)])[0])


def commit_alone(
    active: ActiveTask, start: Offsets, end: Offsets, outputs: Sequence[Emitted], seconds: float
) -> None:
    """Commit the input [start, end) outside of any batch, without changes; raises `TaskFailed`.

    A commit that takes longer than ``seconds`` costs the task its producer.
    """
    commit = active.commit(start, end, outputs, {})
    concurrent.futures.wait((commit,), seconds)
    if not commit.done():
        active.abandon()
    failure = failure_of(active.task, commit)
    if failure is not None:
        raise failure
