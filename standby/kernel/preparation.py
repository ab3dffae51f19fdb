"""What a pipeline does ahead for standbys that are about to become active as planned (`Wanted.is_next`)."""

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

_log: Final = logging.getLogger(__name__)

#: The present active moves on meanwhile: so often is looked how far, and what is prepared follows.
_RENEW_SECONDS: Final = 0.1

_RETRY_SECONDS: Final = 0.5


class Preparation:
    """Prepares the feed for a start; `want` may be called from any thread, all else from the pipeline's."""

    def __init__(
        self, committed: Callable[[Collection[int]], Mapping[int, Sequence[Committed | None]]]
    ) -> None:
        """``committed`` is `standby.kernel.ports.Broker.committed`."""
        self._committed = committed
        self._wanted: frozenset[TaskId] = frozenset()
        self._prepared: frozenset[TaskId] = frozenset()
        self._due_at = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether a planned start is ahead."""
        return bool(self._wanted)

    def want(self, tasks: frozenset[TaskId]) -> bool:
        """Take note of the tasks that will be started soon; return whether that is news."""
        before, self._wanted = self._wanted, tasks
        return tasks != before

    def has(self, task: TaskId, feed: Feed) -> bool:
        """Return whether all is done that can be done for a task; from any thread."""
        return task in self._prepared and feed.is_prepared

    def patience(self, feed: Feed) -> float:
        """Return for how many seconds nothing is due."""
        if not self._wanted or not feed.is_warm:
            return math.inf
        return max(0.0, self._due_at - time.monotonic()) if self._wanted == self._prepared else 0.0

    def attend(self, feed: Feed, expected: Collection[TaskId]) -> None:
        """Prepare, renew or drop what is due, with the feed not running.

        What is prepared for tasks that are ``expected``, on their way to active now, is left to their start.
        """
        if self._prepared.intersection(expected):
            return
        if self._prepared and not self._wanted:
            self.spend()
            feed.stop()
        elif self.patience(feed) <= 0:
            self._prepare(feed, self._wanted)

    def spend(self) -> None:
        """Take note that the feed was started or stopped: nothing is prepared any more."""
        self._prepared = frozenset()

    def _prepare(self, feed: Feed, tasks: frozenset[TaskId]) -> None:
        self._prepared = tasks
        self._due_at = time.monotonic() + _RENEW_SECONDS
        try:
            positions: dict[TaskId, Offsets] = {}
            committed = self._committed([each.partition for each in tasks])
            for task in tasks:
                known = offsets_of(committed[task.partition])
                if known is None:
                    # There was no active yet: where it will begin is not known.
                    return
                positions[task] = known
            feed.prepare(positions)
        except StandfastError as error:
            _log.info("nothing can be prepared now: %s", error)
            self._due_at = time.monotonic() + _RETRY_SECONDS
