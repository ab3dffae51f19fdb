"""The tasks of a pipeline whose input must be run apart from the others' (`task.on.error`)."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from standby.errors import StandfastError
from standby.kernel.active import ActiveTask
from standby.kernel.batch import TaskFailed, TransactionFailed, commit_alone
from standby.model import GivenUp, LeftOut, Offsets, TaskId
from standby.replica.failing import (
    POISON,
    POISON_LIMIT,
    WINDOW_MS,
    Clear,
    CodeError,
    End,
    ErrorPolicy,
    FailedAt,
    GiveUp,
    InputRecord,
    Run,
    Suspect,
    dead_letter,
    suspect_after,
    suspect_at_start,
)
from standby.replica.lifecycle import Signal
from standby.replica.route import Route, beginning_with

_log: Final = logging.getLogger(__name__)

#: For so long a batch that may end the process waits until its task's status was asked for.
_REPORT_SECONDS: Final = 2.0

#: So much of an error's message is told with each record that is given up.
_TOLD_CHARACTERS: Final = 200

#: After a question to Kafka that had no answer.
_RETRY_SECONDS: Final = 0.5


class Input(Protocol):
    """What is asked of the input topics; a `standby.kernel.ports.Broker`."""

    def input_bounds(self, partition: int) -> Sequence[tuple[int, int]]:
        """Return the first offset and the end of a partition of each input; raises `Transient`."""
        ...

    def read_input(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Return the record at an offset, None when there is none; raises `Transient`."""
        ...


class Letter(enum.Enum):
    """What of a record is written to `task.dead.letter`."""

    WHOLE = "written to {}"
    SHORT = "written to {}, cut short"
    NONE = "left out; {} refuses even its place"


_LETTERS: Final = (Letter.WHOLE, Letter.SHORT, Letter.NONE)


@dataclass(slots=True)
class _Known:
    active: ActiveTask
    suspect: Suspect
    due_at: float
    """Monotonic time of its next move."""
    route: Route | None = None
    """The order of its inputs; None: not settled yet, because where they end was not asked."""
    is_waiting_for_report: bool = False
    """The leader is to know of its offset first: what comes may end the process (design 5)."""
    letters: Sequence[Letter] = _LETTERS
    """What is tried in turn as the dead letter of its next record, without what Kafka has refused for its size."""


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
        #: What is known of tasks whose transaction failed of what was in it, until they are claimed again.
        self._kept: dict[TaskId, _Known] = {}
        #: Unix milliseconds of each record given up within the last hour; outlives the claims of a task.
        self._given_up: dict[TaskId, tuple[int, ...]] = {}

    def __contains__(self, task: object) -> bool:
        return task in self._known

    def join(self, active: ActiveTask) -> None:
        """Look at a new active: what ended the processes before it must not be run as ever."""
        self.forget(active.task)
        kept = self._kept.pop(active.task, None)
        if kept is not None and kept.suspect.start <= active.committed.total < kept.suspect.end:
            known = self._known[active.task] = replace(
                kept, active=active, suspect=kept.suspect.reached(active.committed.total)
            )
            self._plan(known)
            return
        suspect = suspect_at_start(self._policy, active.present_failures(), active.committed.total)
        if suspect is not None:
            _log.warning(
                "%s: %d failures at %s, or an end of its process; its next input is run apart",
                *(active.task, suspect.failures, active.committed),
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
                self._known[task] = self._suspected(active, None, time.monotonic())

    def note_failure(self, active: ActiveTask, until: Offsets | None, error: CodeError) -> None:
        """Take note that the job's code failed within [committed, ``until``); None: within some batch."""
        known = self._known.get(active.task)
        if known is None:
            known = self._known[active.task] = self._suspected(active, until, 0.0)
        known.suspect = known.suspect.failed(
            active.committed.total, self._end(active, until), error, self._policy
        )
        active.tries += 1
        active.traceback = error.traceback
        self._plan(known)
        told = self._told(known)
        _log.warning("%s: %d failures at one offset: %s", active.task, known.suspect.failures, told)
        active.tell(Signal.INPUT_FAILED, "")

    def note_too_much(self, active: ActiveTask, until: Offsets, error: CodeError) -> None:
        """Take note that the transaction of [committed, ``until``) failed of what was in it.

        The task is to be claimed again, and less of it is run then.
        """
        self.note_failure(active, until, error)
        self._keep(self._known[active.task])

    def _keep(self, known: _Known) -> None:
        known.active.has_narrowed = True
        self._kept[known.active.task] = known

    def note_progress(self, active: ActiveTask) -> None:
        """Take note that the task has committed."""
        known = self._known.get(active.task)
        if known is not None:
            known.suspect = known.suspect.reached(active.committed.total)
            self._plan(known)
            if known.suspect.at_once is not None:
                self._await_report(known)
                active.tell(Signal.INPUT_FAILED, "")

    def due(self) -> ActiveTask | None:
        """Return a task whose move is due, the longest due one first."""
        first = min(self._known.values(), key=self._due_at, default=None)
        return None if first is None or self._due_at(first) > time.monotonic() else first.active

    def attend(self, active: ActiveTask) -> Offsets | None:
        """Make the task's next move; return up to which offsets it is to be run alone, None: not now.

        Raises `TaskFailed` when the task has failed.
        """
        known = self._known[active.task]
        known.is_waiting_for_report = False
        try:
            match known.suspect.next(self._policy):
                case Run(until):
                    return self._run(known, until)
                case GiveUp():
                    self._give_up(known)
                    self.note_progress(active)
                case End():
                    raised = known.suspect.error.traceback
                    raise TaskFailed(active.task, Signal.FAILED, POISON + self._told(known), raised)
                case Clear():
                    self.forget(active.task)
        except TaskFailed:
            raise
        except StandfastError as error:
            _log.warning("%s: %s", active.task, error)
            known.due_at = time.monotonic() + _RETRY_SECONDS
        return None

    def _suspected(self, active: ActiveTask, until: Offsets | None, due_at: float) -> _Known:
        """Return a task that is suspected from now on, of its input up to ``until`` or of a whole batch."""
        committed, failures = active.committed.total, active.present_failures()
        suspect = suspect_after(failures, committed, self._end(active, until))
        # The failed batch itself says where each input's turn ends.
        route = None if until is None else Route(self._policy.topics, until)
        return _Known(active, suspect, due_at, route)

    def _end(self, active: ActiveTask, until: Offsets | None) -> int:
        """Return the position of ``until``; None: the furthest that a batch may have come to."""
        return active.committed.total + self._policy.batch_max if until is None else until.total

    def _run(self, known: _Known, until: int) -> Offsets | None:
        """Return where a run up to the position ``until`` ends, as far as there is input; None: not now."""
        active = known.active
        ends = self._input_ends(active)
        route = known.route = known.route or self._route(active, ends)
        if known.suspect.is_closing_in:
            # One input at a time: which one ended a process is then known.
            topic = self._next_topic(known)
            if active.failures is not None and active.failures.topic != topic:
                active.failures = replace(active.failures, topic=topic)
                self._await_report(known)
                active.tell(Signal.INPUT_FAILED, "")
                return None
            there = route.leg(active.committed, until)
        else:
            there = route.at(active.committed, until)
        there = there.at_most(ends)
        if there.total > active.committed.total:
            return there
        # There is no input (yet) for it to fail on.
        self.forget(active.task)
        return None

    def _input_ends(self, active: ActiveTask) -> Offsets:
        return Offsets(tuple(end for _, end in self._input.input_bounds(active.task.partition)))

    def _route(self, active: ActiveTask, ends: Offsets) -> Route:
        """Return the order of a task's inputs, which go as far as ``ends``."""
        failures = active.present_failures()
        route = Route(self._policy.topics, ends)
        return route if failures is None else beginning_with(route, failures.topic)

    def _next_topic(self, known: _Known) -> str:
        """Return which of several inputs is run next after ends of processes; empty: that does not matter."""
        if known.route is None or len(self._policy.topics) == 1 or not known.suspect.is_closing_in:
            return ""
        return self._policy.topics[known.route.next(known.active.committed)]

    def _told(self, known: _Known) -> str:
        """Return where the job's code failed, and with what."""
        return known.suspect.told(self._where(known))

    def _where(self, known: _Known) -> str:
        """Return in words where the code fails, of a task that stands where its suspect begins."""
        committed, partition = known.active.committed, known.active.task.partition
        topics = self._policy.topics
        if known.route is None and len(topics) > 1:
            return f"input {' and '.join(f'{each}[{partition}]' for each in topics)}, from offsets {committed} on"
        route = known.route or Route(topics, committed)
        return route.told(partition, committed, known.suspect.reach)

    def _due_at(self, known: _Known) -> float:
        return 0.0 if known.is_waiting_for_report and known.active.is_reported else known.due_at

    def _await_report(self, known: _Known) -> None:
        known.active.is_reported = False
        known.is_waiting_for_report = True
        known.due_at = time.monotonic() + _REPORT_SECONDS

    def _plan(self, known: _Known) -> None:
        """Set when the next move is due, and what is reported until then."""
        known.active.failures = known.suspect.reported(self._where(known), self._next_topic(known))
        move = known.suspect.next(self._policy)
        if isinstance(move, Clear):
            self.forget(known.active.task)
        known.due_at = time.monotonic() + (move.after_seconds if isinstance(move, Run) else 0.0)

    def _give_up(self, known: _Known) -> None:
        """Commit past the next record, with its dead letter in the same transaction where one is asked for."""
        active, suspect = known.active, known.suspect
        task, committed = active.task, active.committed
        if known.route is None:
            known.route = self._route(active, self._input_ends(active))
        number = known.route.next(committed)
        topic = self._policy.topics[number]
        record = self._input.read_input(topic, task.partition, committed.each[number])
        now_ms = self._clock()
        recent = tuple(each for each in self._given_up.get(task, ()) if each > now_ms - WINDOW_MS)
        told = self._told(known)
        if record is not None and self._policy.is_beyond_limit(recent, now_ms):
            detail = f"{POISON_LIMIT}{len(recent)} records were given up within an hour, and now {told}"
            raise TaskFailed(task, Signal.FAILED, detail, suspect.error.traceback)
        form, letters = known.letters[0], []
        if record is not None and self._policy.dead_letter and form is not Letter.NONE:
            place, is_short = FailedAt(topic, task, active.epoch), form is Letter.SHORT
            letters.append(
                dead_letter(record, place, suspect.failures, suspect.error, self._policy, is_short=is_short)
            )
        try:
            commit_alone(active, committed, known.route.step(committed), letters, self._commit_seconds)
        except TransactionFailed as refused:
            _log.error("%s: its dead letter (%s) is refused: %s", task, form.name.lower(), refused)
            known.letters = known.letters[1:]
            self._keep(known)
            raise
        known.letters = _LETTERS
        if record is None:
            # Nothing lies there that could have failed: compacted away, or a transaction's marker.
            return
        self._given_up[task] = (*recent, now_ms)
        what = form.value.format(self._policy.dead_letter) if self._policy.dead_letter else "left out"
        _log.error(
            "%s: one record is given up and %s after %d failures: %s", task, what, suspect.failures, told
        )
        how = LeftOut.DEAD_LETTER if letters else LeftOut.SKIPPED
        error = suspect.error
        active.note_given_up(
            GivenUp(
                topic, committed.each[number], how, error.kind, error.message[:_TOLD_CHARACTERS], at_ms=now_ms
            )
        )
