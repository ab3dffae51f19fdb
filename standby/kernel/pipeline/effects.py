"""Executes the decisions of `standby.feeding` on the feed, the active tasks and Kafka."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from standby.errors import BadConfiguration, BrokenInvariant, CorruptState, StandfastError, Transient
from standby.feeding import actions, events
from standby.feeding.actions import FeedingAction, Level
from standby.feeding.events import FeedingEvent
from standby.feeding.state import FeedEndCause, FeedFailure
from standby.kernel.active.active import ActiveTask
from standby.kernel.pipeline.batch import BatchRunner, TaskFailed, commit_alone, refusal_of
from standby.kernel.ports import Broker
from standby.ports import Feed, InputAway, StartCalledOff, TaskBatch
from standby.replica.failing import code_error
from standby.replica.identity import TopicChanged
from standby.replica.lifecycle import Signal
from standby.shared.errortext import first_line, full_traceback, summary_of
from standby.shared.model import StartStep, TaskId

_log: Final = logging.getLogger(__name__)

_LEVELS: Final = {
    Level.INFO: logging.INFO,
    Level.WARNING: logging.WARNING,
    Level.ERROR: logging.ERROR,
}


@dataclass(slots=True)
class Delivering:
    """The deliveries of the feed since it was started; written by its thread."""

    actives: dict[TaskId, ActiveTask] = field(default_factory=dict)
    raised: BaseException | None = None
    """The error that a delivery raised, which is not a failure of the feed."""
    is_at_work: bool = False
    """Whether a batch is being processed."""
    is_called_off: bool = False
    """Whether the feed is to stop; written by the pipeline's thread."""


class PipelineEffects:
    """Used on the pipeline's thread only, except where noted."""

    def __init__(
        self,
        name: str,
        runner: BatchRunner,
        source: Broker,
        check_topics: Callable[[], None],
        commit_seconds: float,
        wake: Callable[[], None],
    ) -> None:
        """``name`` is the job's. ``check_topics`` raises `TopicChanged` when an input is another topic.

        A commit may take ``commit_seconds``. ``wake`` makes the pipeline run another turn.
        """
        self.feed: Feed | None = None
        """Read from any thread."""
        self.actives: Final[dict[TaskId, ActiveTask]] = {}
        """The tasks that are fed, or are to be fed."""
        self.delivering = Delivering()
        """Those of the feed as it runs, or ran last."""
        self.is_warming = False
        """Read from any thread."""
        self.runner: Final = runner
        self._name = name
        self._input = source
        self._check_topics = check_topics
        self._commit_seconds = commit_seconds
        self._wake = wake

    def carry_out(self, action: FeedingAction) -> FeedingEvent | None:
        """Execute an action; return the answer if it is a question."""
        match action:
            case actions.WriteLog(text, level):
                _log.log(_LEVELS[level], "%s", text)
            case actions.LookAgain():
                self._wake()
            case actions.EndTask():
                self._end_task(action)
            case actions.SetInputStatus():
                self._report(action)
            case actions.Narrow(task):
                self.actives[task].has_narrowed = True
            case actions.TellGivenUp(task, given_up):
                self.actives[task].note_given_up(given_up)
            case actions.Reclaim(task, now_ms):
                active = self.actives[task]
                active.last_commit_ms = now_ms
                active.claim().add_done_callback(partial(_after_reclaim, active))
            case _:
                return self._ask(action)
        return None

    def take_end(self) -> events.FeedEnded | None:
        """Stop the feed if it has ended by itself, and return the reason; None while it runs."""
        feed = self._running_feed
        if not feed.wait(0):
            return None
        failure = feed.failure
        feed.stop()
        return events.FeedEnded(
            _feed_failure(failure, is_raised=failure is self.delivering.raised), self.runner.take_failures()
        )

    def end_feed(self) -> None:
        """Close the feed permanently; errors are only logged."""
        feed, self.feed = self.feed, None
        if feed is not None:
            try:
                feed.close()
            except BaseException as error:  # noqa: BLE001 - it is given up already
                _log.error("closing the feed\n%s", full_traceback(error))

    @property
    def _running_feed(self) -> Feed:
        assert self.feed is not None
        return self.feed

    def _ask(self, question: actions.FeedingQuestion) -> FeedingEvent:
        match question:
            case actions.StopFeed():
                return self._stop()
            case actions.StartFeed():
                return self._start(question)
            case actions.CommitPast():
                return self._commit_past(question)
            case actions.Warm():
                return self._warm()
        try:
            return self._answer(question)
        except StandfastError as error:
            return events.Unanswered(str(error))

    def _answer(self, question: actions.AskInput | actions.ReadRecord) -> FeedingEvent:
        """Return the answer to a question. Raises `StandfastError` if there is none at present."""
        match question:
            case actions.AskInput():
                return self._ask_input(question)
            case actions.ReadRecord(task, topic, offset):
                return events.RecordRead(self._input.read_input(topic, task.partition, offset))

    # ---- the active tasks ----

    def _end_task(self, action: actions.EndTask) -> None:
        active = self.actives.pop(action.task)
        active.abandon()
        active.traceback = action.traceback
        active.tell(action.signal, action.detail, action.fault)

    def _report(self, action: actions.SetInputStatus) -> None:
        active = self.actives[action.task]
        active.failures = action.failures
        if action.error is not None:
            active.tries += 1
            active.traceback = action.error.traceback
        if action.is_at_once:
            active.tell(Signal.INPUT_FAILED, "")

    def _commit_past(self, action: actions.CommitPast) -> FeedingEvent:
        active = self.actives[action.task]
        try:
            commit_alone(
                active, action.start, action.end, action.letters, self._commit_seconds, self.runner.clock
            )
        except TaskFailed as error:
            return events.PastFailed(error.failure)
        except BrokenInvariant:
            raise
        except StandfastError as error:
            return events.Unanswered(str(error))
        return events.PastCommitted()

    # ---- the input ----

    def _ask_input(self, action: actions.AskInput) -> FeedingEvent:
        try:
            if action.checks_topics:
                self._check_topics()
            return events.BoundsFound(self._input.input_bounds(action.task.partition))
        except TopicChanged as error:
            if not action.checks_topics:
                raise
            return events.InputChanged(first_line(error))

    # ---- the feed ----

    def _stop(self) -> FeedingEvent:
        self.delivering.is_called_off = True
        self._running_feed.stop()
        return events.FeedStopped(self.runner.take_failures())

    def _start(self, action: actions.StartFeed) -> FeedingEvent:
        feed = self._running_feed
        if action.is_smaller:
            feed.shrink()
        delivering = self.delivering = Delivering({task: self.actives[task] for task in action.positions})
        self.runner.marks.feed(self._name, delivering.actives)
        for active in delivering.actives.values():
            active.note_step(StartStep.STARTED)
        try:
            feed.start(action.positions, partial(self._deliver, delivering), action.until)
        except StandfastError as error:
            return events.StartFailed(_feed_failure(error, is_raised=True))
        return events.FeedStarted()

    def _deliver(self, delivering: Delivering, batches: tuple[TaskBatch, ...]) -> None:
        """On the feed's thread: return once every batch is committed, raise if one is not (rule `whole-batch`)."""
        try:
            delivering.is_at_work = True
            for each in batches:
                delivering.actives[each.task].note_step(StartStep.DELIVERED)
            self.runner.run(batches, delivering.actives, lambda: delivering.is_called_off)
            delivering.is_at_work = False
        except BaseException as error:
            delivering.raised = error
            # The feed ends with this exception. Wake the pipeline, so that it reacts at once.
            self._wake()
            raise

    def _warm(self) -> FeedingEvent:
        self.is_warming = True
        try:
            self.runner.warm()
            self._running_feed.warm()
        except StandfastError as error:
            _log.warning("warming up: %s", first_line(error))
        finally:
            self.is_warming = False
        return events.Warmed()


def _after_reclaim(active: ActiveTask, claim: Future[None]) -> None:
    error = claim.exception()
    if error is not None:
        active.tell(Signal.WRITER_LOST, f"committing an idle task's offset again: {error}")


def _feed_failure(error: BaseException | None, *, is_raised: bool) -> FeedFailure:
    """Classify a failure of the feed. ``is_raised``: the failure is not the job's transform's, whatever its type."""
    if error is None:
        return FeedFailure(FeedEndCause.BY_ITSELF, "by itself")
    partitions: frozenset[int] = frozenset()
    is_codes = not is_raised and (
        not isinstance(error, StandfastError) or isinstance(error, BadConfiguration)
    )
    if isinstance(error, InputAway):
        cause, partitions = FeedEndCause.AWAY, error.partitions
    elif isinstance(error, StartCalledOff):
        cause = FeedEndCause.CALLED_OFF
    elif isinstance(error, Transient):
        cause = FeedEndCause.TRANSIENT
    elif isinstance(error, CorruptState):
        cause = FeedEndCause.OUTSIDE
    elif is_codes:
        cause = FeedEndCause.CODE
    else:
        cause = FeedEndCause.REFUSED if isinstance(error, BadConfiguration) else FeedEndCause.OTHER
    detail, traceback = refusal_of(error)
    story = summary_of(error) if isinstance(error, Transient) else full_traceback(error)
    return FeedFailure(
        cause,
        first_line(error),
        detail,
        traceback,
        story,
        code_error(error) if is_codes else None,
        partitions,
    )
