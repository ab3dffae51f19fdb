"""Checks that an idle active still owns its task (rule `one-way`): a fence is noticed only at a commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from standby.errors import Fenced, StandfastError
from standby.kernel.active.active import ActiveTask
from standby.replica.claim import Committed, check_committed
from standby.replica.lifecycle import Signal
from standby.shared.model import TaskId
from standby.threads.worker import Worker

#: An active is checked this long after its last commit and after the last check.
_IDLE_MS: Final = 2_000


class Ownership:
    """Looks for a newer claim on the tasks of idle actives, with one request for all of them.

    A successor commits its epoch with the offsets. A container that reaches neither the leader nor ZooKeeper may
    still be able to read this from Kafka. The check costs one OffsetFetch per job and container, and covers only
    actives without a recent commit: an active with input notices the fence at its own commit. Claiming the task
    again would show the same, but costs a transaction. A successor that has fenced but not claimed yet is not
    detected: until it claims, nothing shows that the record has changed.
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
        # A thread of its own: the answer may take seconds while the successor is committing.
        self._worker = Worker(f"{name}-ownership").start()
        self._is_asking = False
        self._asked_ms = 0

    def look(self, actives: Iterable[ActiveTask]) -> None:
        """Check the idle actives if a check is due. Does not block; notifies an active that lost its task."""
        if self._is_asking or not self._is_due(self._asked_ms):
            return
        idle = {each.task: each for each in actives if self._is_due(each.last_commit_ms)}
        if idle:
            self._asked_ms = self._clock()
            self._is_asking = True
            self._worker.put(lambda: self._ask(idle))

    def close(self) -> None:
        """Stop checking; does not wait."""
        self._worker.close()

    def _is_due(self, since_ms: int) -> bool:
        # A time in the future means that the clock was set back.
        return abs(self._clock() - since_ms) >= _IDLE_MS

    def _ask(self, idle: Mapping[TaskId, ActiveTask]) -> None:
        try:
            self._judge(idle)
        finally:
            self._is_asking = False

    def _judge(self, idle: Mapping[TaskId, ActiveTask]) -> None:
        try:
            committed = self._committed([each.partition for each in idle])
        except StandfastError:
            return  # Nothing is concluded while Kafka does not answer.
        for task, active in idle.items():
            try:
                check_committed(committed[task.partition], task, active.epoch)
            except Fenced as error:
                active.tell(Signal.FENCED, str(error))
            except StandfastError:
                pass  # A foreign client commits with this group; the next claim reports that before anything else.
