"""Whether an active that commits nothing still owns its task (rule `one-way`): a fence shows at a commit only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from standby.errors import Fenced, StandfastError
from standby.kernel.active.active import ActiveTask
from standby.replica.claim import Committed, check_committed
from standby.replica.lifecycle import Signal
from standby.shared.model import TaskId
from standby.threads.worker import Worker

#: So long after its last commit, and after the last question, an active is asked about.
_IDLE_MS: Final = 2_000


class Ownership:
    """Looks for a newer claim on the tasks of idle actives, all of them in one question.

    The epoch in the committed offsets is what a successor leaves behind in Kafka, which is all that a container may
    still reach that hears neither the leader nor ZooKeeper. To read it is one OffsetFetch of a job and container, and
    only for those that committed nothing for a while: an active with input is told by its own commit. To claim the
    task once more would tell as much, and cost a transaction. A successor that has fenced and not claimed yet is not
    seen: until it claims, nothing shows that the record has moved on.
    """

    def __init__(
        self,
        committed: Callable[[Collection[int]], Mapping[int, Sequence[Committed | None]]],
        clock: Callable[[], int],
        name: str,
    ) -> None:
        """``committed`` is `standby.kernel.ports.Broker.committed`."""
        self._committed = committed
        self._clock = clock
        # A thread of its own: the answer may take seconds while a commit of the successor is under way.
        self._worker = Worker(f"{name}-ownership").start()
        self._asking: Future[None] | None = None
        self._asked_ms = 0

    def look(self, actives: Iterable[ActiveTask]) -> None:
        """Ask about those that are idle, if that is due; returns at once, and an active that lost its task is told."""
        if not self._is_due(self._asked_ms) or (self._asking is not None and not self._asking.done()):
            return
        idle = {each.task: each for each in actives if self._is_due(each.last_commit_ms)}
        if idle:
            self._asked_ms = self._clock()
            self._asking = self._worker.submit(lambda: self._ask(idle))

    def close(self) -> None:
        """Ask no more; does not wait."""
        self._worker.close()

    def _is_due(self, since_ms: int) -> bool:
        # A time of the future is one from before the clock was set back.
        return abs(self._clock() - since_ms) >= _IDLE_MS

    def _ask(self, idle: Mapping[TaskId, ActiveTask]) -> None:
        try:
            committed = self._committed([each.partition for each in idle])
        except StandfastError:
            return  # Nothing is held against anybody while Kafka does not answer.
        for task, active in idle.items():
            try:
                check_committed(committed[task.partition], task, active.epoch)
            except Fenced as error:
                active.tell(Signal.FENCED, str(error))
            except StandfastError:
                pass  # Somebody else commits under this group: the next claim says so, before it does anything.
