"""The active tasks that a pipeline feeds, and what becomes of them when their feed ends (design 4.4)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final

from standby import errortext
from standby.errors import BadConfiguration, CorruptState, StandfastError, Transient
from standby.kernel.active import ActiveTask
from standby.kernel.batch import BatchRunner, CodeFailed, TaskFailed, TransactionFailed, refused
from standby.kernel.lost_input import LostInput
from standby.kernel.suspects import Suspects
from standby.model import Offsets, TaskId
from standby.ports import InputAway
from standby.replica.failing import FailureOf, back_off_seconds, code_error
from standby.replica.lifecycle import Signal

_log: Final = logging.getLogger(__name__)

#: Kafka forgets offsets that are not committed for days; an idle active commits them again.
_RECLAIM_MS: Final = 3_600_000

#: For so long at least a task is not fed whose input nobody answered for. Where it ended before is forgotten by then
#: (`standby.kernel.ends`), so that a known end is one that somebody has told since.
_HELD_UP_SECONDS: Final = 5.0

#: Failures of the feed itself in a row, with no commit in between, after which its tasks have failed.
_FEED_FAILURES: Final = 5


@dataclass(slots=True)
class Running:
    """A feed that was started, and for whom."""

    actives: dict[TaskId, ActiveTask]
    commits: int
    """The runner's count when it started: whether there was progress."""
    apart: ActiveTask | None = None
    """The suspected task, when it is run alone."""
    start: Offsets | None = None
    until: Offsets | None = None
    """Its range, then."""
    raised: BaseException | None = None
    """What a delivery raised, which is no failure of the feed."""


class Members:
    """Used on the pipeline's thread only."""

    def __init__(
        self,
        runner: BatchRunner,
        suspects: Suspects,
        lost_input: LostInput,
        clock: Callable[[], int],
        has_end: Callable[[int], bool],
    ) -> None:
        """``has_end``: whether it is known at present where an input partition ends."""
        self.joined: dict[TaskId, ActiveTask] = {}
        self.retry_at = 0.0
        """Before this monotonic time the feed is not started again."""
        self.is_too_long = False
        """Whether a transaction ran out of time, and the feed was not told yet to bring less."""
        self._runner = runner
        self._suspects = suspects
        self._lost_input = lost_input
        self._clock = clock
        self._has_end = has_end
        #: Tasks that a feed could not be started with → the monotonic time before which it is not tried again.
        self._held_up: dict[TaskId, float] = {}
        self._failures = 0
        #: The positions at which transactions ran out of time last.
        self._late_at: dict[TaskId, int] = {}

    def join(self, active: ActiveTask) -> None:
        """Take a new active."""
        self.joined[active.task] = active
        self._suspects.join(active)

    def drop(self, task: TaskId) -> ActiveTask | None:
        """Feed the task no longer, from the next start on; return it if it was fed."""
        self._suspects.forget(task)
        self._held_up.pop(task, None)
        return self.joined.pop(task, None)

    def together(self) -> dict[TaskId, ActiveTask]:
        """Return the tasks that are fed together: all that are neither suspected nor held up."""
        return {
            task: active
            for task, active in self.joined.items()
            if task not in self._suspects and not self._is_held_up(task)
        }

    def started(self, running: Running) -> None:
        """Take note that the feed was started: there is input for each of these tasks."""
        for task in running.actives:
            self._held_up.pop(task, None)

    def hold_up(self, running: Running, away: InputAway) -> None:
        """Leave those out whose input nobody answers for, until somebody does: the others can be fed at once."""
        held = [task for task in running.actives if task.partition in away.partitions]
        if len(held) == len(running.actives):
            self.feed_failed(running.actives, away)
            return
        _log.warning("%s: not fed until somebody answers: %s", ", ".join(map(str, held)), away)
        self._held_up.update(dict.fromkeys(held, time.monotonic() + _HELD_UP_SECONDS))

    def _is_held_up(self, task: TaskId) -> bool:
        until = self._held_up.get(task)
        return until is not None and (time.monotonic() < until or not self._has_end(task.partition))

    def ended(self, running: Running, failure: BaseException | None) -> None:
        """Judge why the feed ended by itself; the tasks that did not fail are to be fed again."""
        if running.commits != self._runner.commits:
            self._failures = 0
        if self.drop_failed(running):
            self.retry_at = 0.0
        elif isinstance(failure, InputAway):
            self.hold_up(running, failure)
        elif running.apart is not None and failure is None and running.apart.committed != running.start:
            self._suspects.note_progress(running.apart)
        elif failure is None or failure is running.raised or not _is_codes(failure):
            self.feed_failed(running.actives, failure)
        else:
            self._code_failed(running, failure)

    def _code_failed(self, running: Running, failure: BaseException) -> None:
        """Find out on whose input the transform fails: its error names neither task nor record."""
        error = code_error(failure)
        _log.error("the job's transform failed: %s\n%s", error, errortext.full_traceback(failure))
        if running.apart is not None:
            self._failures = 0
            self._suspects.note_failure(running.apart, running.until, error)
            return
        if len(running.actives) == 1:
            (active,) = running.actives.values()
            self._suspects.note_failure(active, None, error)
            return
        self._failures += 1
        if self._failures >= _FEED_FAILURES:
            # Alone each of them was well, again and again.
            self.feed_failed(running.actives, failure)
        else:
            self._suspects.accuse(running.actives)

    def drop_failed(self, running: Running) -> bool:
        """Take the tasks whose batch failed out of the feed; return whether there were any.

        Where the job's code failed, the task is run apart from now on; otherwise it has ended here.
        """
        failed = self._runner.take_failures()
        for each in failed:
            active = running.actives.get(each.task)
            if active is None or self.joined.get(each.task) is not active:
                continue
            if isinstance(each, CodeFailed):
                self._suspects.note_failure(active, each.end, each.error)
            else:
                if isinstance(each, TransactionFailed) and not self._may_pass(active, each):
                    self.is_too_long |= each.error.of is FailureOf.TIME
                    self._suspects.note_too_much(active, each.end, each.error)
                self.end_task(active, each)
        return bool(failed)

    def _may_pass(self, active: ActiveTask, failure: TransactionFailed) -> bool:
        """Return whether the same is to be tried once more: a broker that stands still makes any transaction late."""
        position = active.committed.total
        is_first = self._late_at.get(active.task) != position
        self._late_at[active.task] = position
        return failure.may_pass and is_first

    def end_task(self, active: ActiveTask, failure: TaskFailed) -> None:
        """Feed the task no longer, and tell why: it goes on from there as its life's table says."""
        self.drop(active.task)
        active.abandon()
        _log.warning("%s: %s", active.task, failure)
        active.traceback = failure.traceback
        active.tell(failure.signal, str(failure))

    def feed_failed(self, actives: Mapping[TaskId, ActiveTask], failure: BaseException | None) -> None:
        """Decide on a failure that is no task's own: try again, later and later, or give up."""
        self._failures += 1
        if failure is None or isinstance(failure, Transient):
            how = "by itself" if failure is None else errortext.told(failure)
        else:
            how = errortext.full_traceback(failure)
        _log.warning("the feed ended (%d. time in a row): %s", self._failures, how)
        self.retry_at = time.monotonic() + back_off_seconds(self._failures + 1)
        if isinstance(failure, CorruptState) and self._settle_outside(actives):
            return
        if not isinstance(failure, Transient) and self._failures >= _FEED_FAILURES:
            why, traceback = refused(failure) if failure is not None else ("it ended by itself", "")
            detail = f"the feed failed {self._failures} times in a row: {why}"
            for task, active in actives.items():
                if self.joined.get(task) is active:
                    self.end_task(active, TaskFailed(task, Signal.FAILED, detail, traceback))
            self._failures = 0

    def _settle_outside(self, actives: Mapping[TaskId, ActiveTask]) -> bool:
        """See to the tasks whose committed offset is outside of their input; return whether there are any."""
        found = False
        for task, active in actives.items():
            if self.joined.get(task) is not active:
                continue
            try:
                is_settled = self._lost_input.settle(active)
            except TaskFailed as failure:
                self.end_task(active, failure)
                found = True
            else:
                found |= is_settled
        return found

    def reclaim_idle(self) -> None:
        """Commit the offsets of idle tasks again (design 4.7); the commit's own thread keeps the order."""
        now_ms = self._clock()
        for active in self.joined.values():
            if now_ms - active.last_commit_ms > _RECLAIM_MS:
                # Once, not at each look: what comes of it is seen at the next batch, or an hour later.
                active.last_commit_ms = now_ms
                active.claim().add_done_callback(partial(_after_reclaim, active))


def _after_reclaim(active: ActiveTask, claim: Future[None]) -> None:
    error = claim.exception()
    if error is not None:
        active.tell(Signal.WRITER_LOST, f"committing an idle task's offset again: {error}")


def _is_codes(failure: BaseException) -> bool:
    """Return whether what ended a feed is an error of the job's transform on some row, not of Kafka or Spark."""
    return not isinstance(failure, StandfastError) or isinstance(failure, BadConfiguration)
