"""What a pipeline does ahead for standbys: for those that are about to become active as planned, and for hot ones.

A planned promotion is told beforehand (`Wanted.is_next`). For any other there is no time, so the query of a *hot*
standby (`job.hotstandby.query`) runs all the time, behind its gate: what the present active has committed is let go
now and then, and as soon as the promotion is ordered, while its tasks are on their way to active.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from standby.errors import StandfastError
from standby.model import Offsets, TaskId
from standby.ports import Feed
from standby.replica.claim import Committed, offsets_of
from standby.replica.failing import doubled_seconds

_log: Final = logging.getLogger(__name__)

#: The present active moves on meanwhile: so often is looked how far, and what is prepared follows.
_RENEW_SECONDS: Final = 0.1

_RETRY_SECONDS: Final = 0.5

#: The same once the tasks are on their way to active: the next batch is computed while they are.
_HURRY_SECONDS: Final = 0.02

#: A hot query that ended, or was of no use, is begun again after this, then later and later.
_FIRST_RESTART_SECONDS: Final = 2.0
_RESTART_SECONDS: Final = 60.0

#: Standbys come one after the other: a hot query is begun when none has come or gone for so long.
_SETTLE_SECONDS: Final = 1.0

#: A hot query at whose gate nothing has moved for so long is begun anew: brokers close connections that nobody uses.
_REFRESH_SECONDS: Final = 240.0

#: Returns the input offsets that the present active of a task has committed, as its standby knows them.
Reached = Callable[[], "Offsets | None"]


class Pace:
    """How often a hot query may go on: seldom, but before more has come than one batch should have."""

    #: Each look costs the plan of a micro-batch, and every other one a batch.
    SLOWEST_SECONDS: Final = 5.0
    QUICKEST_SECONDS: Final = 0.5

    #: So many records between two looks are worth none sooner, and none later.
    FEW_RECORDS: Final = 4_000
    MANY_RECORDS: Final = 10_000

    def __init__(self) -> None:
        self.seconds = self.SLOWEST_SECONDS
        """Until the next look."""

    def note(self, records: int) -> None:
        """Take note that the active has committed so many since the look before."""
        if records > self.MANY_RECORDS:
            self.seconds = max(self.QUICKEST_SECONDS, self.seconds / 2)
        elif records < self.FEW_RECORDS:
            self.seconds = min(self.SLOWEST_SECONDS, self.seconds * 1.5)


class Preparation:
    """Prepares the feed for a start; `want` and `keep` may be called from any thread, all else from the pipeline's."""

    def __init__(
        self,
        committed: Callable[[Collection[int]], Mapping[int, Sequence[Committed | None]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``committed`` is `standby.kernel.ports.Broker.committed`; ``clock`` returns seconds."""
        self._committed = committed
        self._clock = clock
        #: To be made active as planned.
        self._next: frozenset[TaskId] = frozenset()
        self._hot: frozenset[TaskId] = frozenset()
        self._reached: Mapping[TaskId, Reached] = {}
        self._prepared: frozenset[TaskId] = frozenset()
        self._due_at = 0.0
        self._pace = Pace()
        self._begins = 0
        """Of hot queries in a row, none of which came to be of use."""
        self._positions: Mapping[TaskId, Offsets] = {}
        self._is_known = True
        """Whether there is an active of each task, as far as was looked."""
        self._moved_at = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether a planned start is ahead, or a query waits for any start; not one that has failed again and again."""
        return bool(self._next) or (bool(self._prepared) and self._begins <= 1)

    def want(self, tasks: frozenset[TaskId]) -> bool:
        """Take note of the tasks that will be started soon; return whether that is news."""
        before, self._next = self._next, tasks
        return tasks != before

    def keep(self, tasks: frozenset[TaskId], reached: Mapping[TaskId, Reached]) -> bool:
        """Take note of the standbys that are to be hot; return whether that is news.

        ``reached`` tells of each task that is here how far its present active has come.
        """
        before, self._hot, self._reached = self._hot, tasks, reached
        if tasks == before:
            return False
        if not self._next:
            self._due_at = self._clock() + _SETTLE_SECONDS
        return True

    def has(self, task: TaskId, feed: Feed) -> bool:
        """Return whether all is done that can be done for a task; from any thread."""
        return task in self._prepared and feed.is_prepared

    def is_pending(self, feed: Feed) -> bool:
        """Return whether a hot query is about to wait at its gate; not when that has failed before. From any thread."""
        return bool(self._hot) and self._is_known and self._begins <= 1 and not feed.is_prepared

    def patience(self, feed: Feed) -> float:
        """Return for how many seconds nothing is due."""
        if not feed.is_warm or not (self._next or self._hot or self._prepared):
            return math.inf
        if self._next and self._next != self._prepared:
            return 0.0
        return max(0.0, self._due_at - self._clock())

    def attend(self, feed: Feed, expected: Collection[TaskId]) -> None:
        """Prepare, renew or drop what is due, with the feed not running.

        What is prepared for tasks that are ``expected``, on their way to active now, only moves on until their start.
        """
        tasks = self._next or self._hot
        if self._prepared.intersection(expected):
            self._hurry(feed)
        elif self._prepared and not tasks:
            self.spend()
            feed.stop()
        elif self.patience(feed) <= 0:
            self._prepare(feed, tasks)

    def spend(self) -> None:
        """Take note that the feed was started or stopped: nothing is prepared any more."""
        self._prepared = frozenset()
        self._positions = {}
        self._begins = 0

    def _hurry(self, feed: Feed) -> None:
        if self._clock() < self._due_at and self._due_at - self._clock() <= _HURRY_SECONDS:
            return
        self._due_at = self._clock() + _HURRY_SECONDS
        positions = self._known(self._prepared)
        if len(positions) == len(self._prepared) and feed.is_prepared:
            self._positions = positions
            try:
                feed.prepare(positions, is_near=True)
            except StandfastError as error:
                # The start itself will tell.
                _log.info("what was prepared does not go on: %s", error)

    def _prepare(self, feed: Feed, tasks: frozenset[TaskId]) -> None:
        is_planned = bool(self._next)
        if tasks != self._prepared:
            self._begins, self._positions = 0, {}
        self._prepared = tasks
        self._due_at = self._clock() + (_RENEW_SECONDS if is_planned else self._pace.seconds)
        try:
            positions = self._asked(tasks) if is_planned else self._known(tasks)
            self._is_known = len(positions) == len(tasks)
            if not self._is_known:
                # There was no active yet: where it will begin is not known.
                return
            self._follow(feed, positions, is_planned=is_planned)
        except StandfastError as error:
            _log.info("nothing can be prepared now: %s", error)
            self._begins += 1
            self._due_at = self._clock() + (_RETRY_SECONDS if is_planned else self._restart_seconds())

    def _follow(self, feed: Feed, positions: dict[TaskId, Offsets], *, is_planned: bool) -> None:
        now = self._clock()
        moved = sum(at.total for at in positions.values()) - sum(at.total for at in self._positions.values())
        is_new = not self._positions
        if is_new or moved:
            self._moved_at = now
        elif not is_planned and now - self._moved_at > _REFRESH_SECONDS:
            feed.stop()
            self._moved_at = now
        self._positions = dict(positions)
        if feed.prepare(positions, is_near=is_planned):
            self._begins += 1
            if not is_planned:
                self._due_at = self._clock() + self._restart_seconds()
        elif feed.is_prepared:
            self._begins = 0
            if not is_planned and not is_new:
                self._pace.note(moved)

    def _restart_seconds(self) -> float:
        return doubled_seconds(self._begins, _FIRST_RESTART_SECONDS, _RESTART_SECONDS)

    def _known(self, tasks: Collection[TaskId]) -> dict[TaskId, Offsets]:
        reached = self._reached
        found = {task: reached[task]() for task in tasks if task in reached}
        return {task: offsets for task, offsets in found.items() if offsets is not None}

    def _asked(self, tasks: Collection[TaskId]) -> dict[TaskId, Offsets]:
        committed = self._committed([each.partition for each in tasks])
        found = {task: offsets_of(committed[task.partition]) for task in tasks}
        return {task: offsets for task, offsets in found.items() if offsets is not None}
