"""The tasks of a pipeline whose input must be run apart from the others' (`task.on.error`)."""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from standby.errors import StandfastError
from standby.kernel.active import ActiveTask
from standby.kernel.batch import TaskFailed, failure_of
from standby.model import TaskId
from standby.replica.failing import (
    POISON,
    POISON_LIMIT,
    WINDOW_MS,
    Clear,
    CodeError,
    End,
    ErrorPolicy,
    GiveUp,
    InputRecord,
    Run,
    Suspect,
    dead_letter,
    suspect_after,
    suspect_at_start,
)
from standby.replica.lifecycle import Signal

_log: Final = logging.getLogger(__name__)

#: For so long a batch that may end the process waits until its task's status was asked for.
_REPORT_SECONDS: Final = 2.0

#: After a question to Kafka that had no answer.
_RETRY_SECONDS: Final = 0.5


class Input(Protocol):
    """What is asked of the input topic; a `standby.kernel.ports.Broker`."""

    def input_bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end of an input partition; raises `Transient`."""
        ...

    def read_input(self, partition: int, offset: int) -> InputRecord | None:
        """Return the record at an offset, None when there is none; raises `Transient`."""
        ...


@dataclass(slots=True)
class _Known:
    active: ActiveTask
    suspect: Suspect
    due_at: float
    """Monotonic time of its next move."""
    is_waiting_for_report: bool = False
    """The leader is to know of its offset first: what comes may end the process (design 5)."""


class Suspects:
    """Knows them, carries out what `Suspect.next` decides, and leaves the runs to the pipeline.

    Used on the pipeline's thread only.
    """

    def __init__(
        self, policy: ErrorPolicy, source: Input, clock: Callable[[], int], commit_seconds: float
    ) -> None:
        self._policy = policy
        self._input = source
        self._clock = clock
        self._commit_seconds = commit_seconds
        self._known: dict[TaskId, _Known] = {}
        #: Unix milliseconds of each record given up within the last hour; outlives the claims of a task.
        self._given_up: dict[TaskId, tuple[int, ...]] = {}

    def __contains__(self, task: object) -> bool:
        return task in self._known

    def join(self, active: ActiveTask) -> None:
        """Look at a new active: what ended the processes before it must not be run as ever."""
        self.forget(active.task)
        suspect = suspect_at_start(self._policy, active.present_failures(), active.committed)
        if suspect is not None:
            _log.warning(
                "%s: failed %d times at %d; its next input is run in small parts",
                *(active.task, suspect.failures, suspect.start),
            )
            known = self._known[active.task] = _Known(active, suspect, 0.0)
            self._await_report(known)

    def forget(self, task: TaskId) -> None:
        """Suspect the task no longer."""
        self._known.pop(task, None)

    def accuse(self, actives: Mapping[TaskId, ActiveTask]) -> None:
        """Have each of these run alone: code failed on a batch of all of them, and it is not known on whose."""
        for task, active in actives.items():
            if task not in self._known:
                end = active.committed + self._policy.batch_max
                suspect = suspect_after(active.present_failures(), active.committed, end)
                self._known[task] = _Known(active, suspect, time.monotonic())

    def note_failure(self, active: ActiveTask, until: int | None, error: CodeError) -> None:
        """Take note that the job's code failed within [committed, ``until``); None: within some batch."""
        end = active.committed + self._policy.batch_max if until is None else until
        known = self._known.get(active.task)
        if known is None:
            suspect = suspect_after(active.present_failures(), active.committed, end)
            known = self._known[active.task] = _Known(active, suspect, 0.0)
        known.suspect = known.suspect.failed(active.committed, end, error, self._policy)
        active.tries += 1
        self._plan(known)
        told = known.suspect.told(active.task, self._policy)
        _log.warning("%s: %d failures at one offset: %s", active.task, known.suspect.failures, told)
        active.tell(Signal.INPUT_FAILED, "")

    def note_progress(self, active: ActiveTask) -> None:
        """Take note that the task has committed."""
        known = self._known.get(active.task)
        if known is not None:
            known.suspect = known.suspect.reached(active.committed)
            self._plan(known)
            if known.suspect.at_once is not None:
                self._await_report(known)
                active.tell(Signal.INPUT_FAILED, "")

    def due(self) -> ActiveTask | None:
        """Return a task whose move is due, the longest due one first."""
        first = min(self._known.values(), key=self._due_at, default=None)
        return None if first is None or self._due_at(first) > time.monotonic() else first.active

    def attend(self, active: ActiveTask) -> int | None:
        """Make the task's next move; return up to which offset it is to be run alone, None: not now.

        Raises `TaskFailed` when the task has failed.
        """
        known = self._known[active.task]
        known.is_waiting_for_report = False
        try:
            match known.suspect.next(self._policy):
                case Run(until):
                    _, end = self._input.input_bounds(active.task.partition)
                    if min(until, end) > active.committed:
                        return min(until, end)
                    # There is no input (yet) for it to fail on.
                    self.forget(active.task)
                case GiveUp(offset):
                    self._give_up(known, offset)
                    self.note_progress(active)
                case End():
                    told = known.suspect.told(active.task, self._policy)
                    raise TaskFailed(active.task, Signal.FAILED, POISON + told)
                case Clear():
                    self.forget(active.task)
        except TaskFailed:
            raise
        except StandfastError as error:
            _log.warning("%s: %s", active.task, error)
            known.due_at = time.monotonic() + _RETRY_SECONDS
        return None

    def _due_at(self, known: _Known) -> float:
        return 0.0 if known.is_waiting_for_report and known.active.is_reported else known.due_at

    def _await_report(self, known: _Known) -> None:
        known.active.is_reported = False
        known.is_waiting_for_report = True
        known.due_at = time.monotonic() + _REPORT_SECONDS

    def _plan(self, known: _Known) -> None:
        """Set when the next move is due, and what is reported until then."""
        known.active.failures = known.suspect.reported(known.active.task, self._policy)
        move = known.suspect.next(self._policy)
        if isinstance(move, Clear):
            self.forget(known.active.task)
        known.due_at = time.monotonic() + (move.after_seconds if isinstance(move, Run) else 0.0)

    def _give_up(self, known: _Known, offset: int) -> None:
        """Commit past the record, with its dead letter in the same transaction where one is asked for."""
        active, suspect = known.active, known.suspect
        task = active.task
        record = self._input.read_input(task.partition, offset)
        now_ms = self._clock()
        recent = tuple(each for each in self._given_up.get(task, ()) if each > now_ms - WINDOW_MS)
        told = suspect.told(task, self._policy)
        if record is not None and self._policy.is_beyond_limit(recent, now_ms):
            detail = f"{POISON_LIMIT}{len(recent)} records were given up within an hour, and now {told}"
            raise TaskFailed(task, Signal.FAILED, detail)
        letters = (
            (dead_letter(record, task, active.epoch, suspect.failures, suspect.error, self._policy),)
            if record is not None and self._policy.dead_letter
            else ()
        )
        commit = active.commit(offset, offset + 1, letters, {})
        concurrent.futures.wait((commit,), self._commit_seconds)
        if not commit.done():
            active.abandon()
        failure = failure_of(task, commit)
        if failure is not None:
            raise failure
        if record is None:
            # Nothing lies there that could have failed: compacted away, or a transaction's marker.
            return
        self._given_up[task] = (*recent, now_ms)
        active.skipped += 1
        what = f"written to {self._policy.dead_letter}" if letters else "left out"
        _log.error(
            "%s: one record is given up and %s after %d failures: %s", task, what, suspect.failures, told
        )
        active.tell(Signal.INPUT_FAILED, "")
