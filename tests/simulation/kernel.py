"""The replicas of one container process: `standby.kernel.replicas` in virtual time, with the real lifecycle table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from standby.replica.lifecycle import Order, Signal, opened, step
from standby.replica.reconcile import reconcile
from standby.shared.exits import Ran
from standby.shared.model import Phase, ReplicaId, ReplicaStatus, TaskId, TaskRecord, Wanted
from standby.shared.wire import JobDefinition
from tests.simulation.feeding import Feeding
from tests.simulation.kafka import Log
from tests.simulation.process import Process
from tests.simulation.replica import HeldReplica, Run

#: How long an idle pipeline takes to warm up.
WARM_UP_MS: Final = 1_500


class Kernel:
    """Holds replicas as they are wanted."""

    def __init__(
        self,
        process: Process,
        logs: Mapping[TaskId, Log],
        run_id: str,
        read_record: Callable[[TaskId], TaskRecord | None],
        claiming: Callable[[ReplicaId], None],
        giving_up: Callable[[ReplicaId], None],
        passed: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self.process = process
        self.run_id = run_id
        self.read_record = read_record
        self.claiming = claiming
        self.giving_up = giving_up
        """Called when a replica's way to active has hung for so long that its container ends."""
        self.passed = passed
        """Called at each named step: where faults wait."""
        self.held: dict[ReplicaId, HeldReplica] = {}
        self.assignment: tuple[Wanted, ...] = ()
        self.feeding = Feeding(process)
        self.broken: str | None = None
        self.store_writes_fail = False
        self.hangs = False
        """Whether the next way to active hangs."""
        self.is_warm = False
        self.revisions: Mapping[str, int] = {}
        self._logs = logs
        self._on_change = on_change
        self._results: deque[tuple[HeldReplica, Run, Signal, str]] = deque()
        self._closed: Callable[[], None] | None = None
        self._is_flushing = False

    def obey(self, assignment: tuple[Wanted, ...], jobs: Mapping[str, JobDefinition]) -> None:
        """Make ``assignment`` all that is held. Code is loaded once: a later revision of it is not run."""
        if self._closed is not None:
            return
        if jobs and not assignment and not self.revisions:
            # A spare container: its pipeline warms up without any replica.
            self.process.after(WARM_UP_MS, self._warmed)
        self.revisions = {**{name: each.revision for name, each in jobs.items()}, **self.revisions}
        self.assignment = assignment
        nexts = {each.replica for each in assignment if each.is_next}
        for replica, held in self.held.items():
            held.is_prepared = held.is_prepared and replica in nexts
        for each in assignment:
            if each.is_next:
                self.process.after(self.process.clock.between(20, 300), self._prepared, each.replica)
        self._drop_closed()
        if not self._is_flushing:
            self._is_flushing = True
            self.process.after(self.process.clock.between(1_000, 4_000), self._flush)
        self._settle()

    def result(self, held: HeldReplica, run: Run, signal: Signal, detail: str) -> None:
        """Take what came of an effect; the conductor hears of it a moment later, in order."""
        self._results.append((held, run, signal, detail))
        self.process.after(1, self._take)

    def _take(self) -> None:
        held, run, signal, detail = self._results.popleft()
        judged = held.judge(run, signal)
        if judged is None:
            return
        self._step(held, Order(held.replica.id, judged, held.replica.epoch), detail)
        self._settle()

    def statuses(self) -> dict[ReplicaId, ReplicaStatus]:
        return {each: held.status() for each, held in self.held.items()}

    def running(self) -> tuple[Ran, ...]:
        """Return every task whose code runs at this moment."""
        return tuple(
            Ran(each.task, held.running_from)
            for each, held in sorted(self.held.items())
            if held.running_from is not None and held.active is not None
        )

    def close(self, done: Callable[[], None]) -> None:
        self.assignment, self._closed = (), done
        self._settle()

    def _warmed(self) -> None:
        self.is_warm = True
        self._on_change()

    def _prepared(self, replica: ReplicaId) -> None:
        held = self.held.get(replica)
        if held is not None and any(each.replica == replica and each.is_next for each in self.assignment):
            held.is_prepared = True
            self._on_change()

    def _settle(self) -> None:
        for order in reconcile(self.assignment, {each: held.replica for each, held in self.held.items()}):
            held = self.held.get(order.replica)
            if held is not None:
                self._step(held, order, "")
            else:
                replica, effects = opened(order)
                held = HeldReplica(replica, self, self._logs[order.replica.task])
                self.held[order.replica] = held
                held.move(replica, effects)
                self._on_change()
        if self._closed is not None:
            self._drop_closed()
            if not self.held:
                self._closed()

    def _drop_closed(self) -> None:
        assignment = {each.replica for each in self.assignment}
        self.held = {
            each: held
            for each, held in self.held.items()
            if each in assignment or held.replica.phase is not Phase.CLOSED
        }

    def _step(self, held: HeldReplica, order: Order, detail: str) -> None:
        replica, effects = step(held.replica, order)
        if held.move(replica, effects, detail):
            self.is_warm = self.is_warm or replica.phase in (Phase.TAILING, Phase.ACTIVE)
            self._on_change()

    def _flush(self) -> None:
        for held in self.held.values():
            held.flush()
        self.process.after(self.process.clock.between(1_000, 4_000), self._flush)
