"""What becomes of a task whose next input was deleted before it was processed (`task.input.lost`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from standby.errors import StandfastError
from standby.errortext import first_line
from standby.kernel.active import ActiveTask
from standby.kernel.batch import TaskFailed, commit_alone
from standby.model import GivenUp, LeftOut, Offsets
from standby.replica.identity import TopicChanged
from standby.replica.lifecycle import Signal

_log: Final = logging.getLogger(__name__)


class LostInput:
    """Judges committed offsets against what the input still has; used on the pipeline's thread only."""

    def __init__(
        self,
        input_bounds: Callable[[int], Sequence[tuple[int, int]]],
        inputs: Sequence[str],
        commit_seconds: float,
        *,
        may_skip: bool,
        clock: Callable[[], int],
        check_topics: Callable[[], None] = lambda: None,
    ) -> None:
        """``input_bounds`` returns the first offset and the end of a partition of each of ``inputs``.

        A commit may take ``commit_seconds``; ``clock`` returns Unix milliseconds. ``check_topics`` raises
        `TopicChanged` when one of them is another topic.
        """
        self._input_bounds = input_bounds
        self._inputs = inputs
        self._commit_seconds = commit_seconds
        self._may_skip = may_skip
        self._clock = clock
        self._check_topics = check_topics

    def settle(self, active: ActiveTask) -> bool:
        """Return whether a committed offset of the task was outside of its input, and is inside now.

        Each input is judged by itself: what is left out of one leaves the others where they are. Raises
        `TaskFailed` when it is outside and has to stay there: input is never left out silently, and an offset
        beyond the end means that the topic is another one. False also while Kafka does not answer.
        """
        task, committed = active.task, active.committed
        try:
            self._check_topics()
            bounds = self._input_bounds(task.partition)
        except TopicChanged as error:
            raise TaskFailed(task, Signal.FAILED, first_line(error)) from error
        except StandfastError as error:
            _log.warning("%s: the bounds of its input are not known: %s", task, error)
            return False
        told = []
        lost: list[GivenUp] = []
        for topic, offset, (first, end) in zip(self._inputs, committed.each, bounds, strict=True):
            if first <= offset <= end:
                continue
            where = f" {topic}" if len(self._inputs) > 1 else ""
            outside = (
                f"the committed input offset {offset} is outside of the partition{where} [{first}, {end}]"
            )
            if offset > end or not self._may_skip:
                why = "" if offset > end else ": input was deleted before it was processed (task.input.lost)"
                raise TaskFailed(task, Signal.FAILED, outside + why)
            told.append(outside)
            lost.append(GivenUp(topic, offset, LeftOut.LOST, "", offsets=first - offset, at_ms=self._clock()))
        if not told:
            return False
        inside = committed.at_least(Offsets(tuple(first for first, _ in bounds)))
        commit_alone(active, committed, inside, (), self._commit_seconds)
        skipped = inside.total - committed.total
        _log.error(
            "%s: %s: %d input offsets are left out (task.input.lost)", task, " and ".join(told), skipped
        )
        for each in lost:
            active.note_given_up(each)
        return True
