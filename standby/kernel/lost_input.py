"""What becomes of a task whose next input was deleted before it was processed (`task.input.lost`)."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable
from typing import Final

from standby.errors import StandfastError
from standby.kernel.active import ActiveTask
from standby.kernel.batch import TaskFailed, failure_of
from standby.replica.lifecycle import Signal

_log: Final = logging.getLogger(__name__)


class LostInput:
    """Judges committed offsets against what the input still has; used on the pipeline's thread only."""

    def __init__(
        self, input_bounds: Callable[[int], tuple[int, int]], commit_seconds: float, *, may_skip: bool
    ) -> None:
        """``input_bounds`` returns the first offset and the end of a partition; a commit may take so long."""
        self._input_bounds = input_bounds
        self._commit_seconds = commit_seconds
        self._may_skip = may_skip

    def settle(self, active: ActiveTask) -> bool:
        """Return whether the task's committed offset was outside of its input, and is inside now.

        Raises `TaskFailed` when it is outside and has to stay there: input is never left out silently, and
        an offset beyond the end means that the topic is another one. False also while Kafka does not answer.
        """
        task, committed = active.task, active.committed
        try:
            first, end = self._input_bounds(task.partition)
        except StandfastError as error:
            _log.warning("%s: the bounds of its input are not known: %s", task, error)
            return False
        if first <= committed <= end:
            return False
        told = f"the committed input offset {committed} is outside of the partition [{first}, {end}]"
        if committed > end or not self._may_skip:
            why = "" if committed > end else ": input was deleted before it was processed (task.input.lost)"
            raise TaskFailed(task, Signal.FAILED, told + why)
        commit = active.commit(committed, first, (), {})
        concurrent.futures.wait((commit,), self._commit_seconds)
        if not commit.done():
            active.abandon()
        failure = failure_of(task, commit)
        if failure is not None:
            raise failure
        active.skipped += first - committed
        _log.error("%s: %s: %d input offsets are left out (task.input.lost)", task, told, first - committed)
        active.tell(Signal.INPUT_FAILED, "")
        return True
