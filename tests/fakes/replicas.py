"""A kernel without state: its replicas reach the wanted state at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from standby.shared.model import Phase, ReplicaId, ReplicaStatus, Role, Wanted
from standby.shared.wire import JobDefinition

#: Partition numbers that make the fake do something else.
BREAKS = 99
"""A replica of this partition breaks the whole container."""
NEVER_CLOSES = 98
"""A replica of this partition does not close."""
SPINS = 97
"""A replica of this partition keeps the interpreter busy for good, as user code may."""


def _spin() -> None:
    number = 0
    while True:
        number = (number * 31 + 7) % 1_000_003


class FakeReplicas:
    """Keeps the port's contract (`standby.ports.Replicas`), with no disk and no broker behind it."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._statuses: Mapping[ReplicaId, ReplicaStatus] = {}
        self._never = threading.Event()
        self.is_warm = False
        self.broken: str | None = None
        self.revisions: Mapping[str, int] = {}
        self.applied: list[tuple[Wanted, ...]] = []
        self.reported: list[tuple[ReplicaStatus, ...]] = []
        #: Within how many seconds, and whether by a daemon thread.
        self.closed_by: tuple[float, bool] | None = None

    def obey(self, assignment: tuple[Wanted, ...], jobs: Mapping[str, JobDefinition]) -> None:
        self.applied.append(assignment)
        self.revisions = {**{name: each.revision for name, each in jobs.items()}, **self.revisions}
        held: dict[ReplicaId, ReplicaStatus] = {}
        for each in assignment:
            assert each.replica.task.job in jobs
            before = self._statuses.get(each.replica)
            if before is not None and (before.role, before.epoch) == (each.role, each.epoch):
                held[each.replica] = before
                continue
            phase = Phase.ACTIVE if each.role is Role.ACTIVE else Phase.TAILING
            since = time.time_ns() // 1_000_000
            held[each.replica] = ReplicaStatus(
                each.replica, each.role, phase, each.epoch, applied=10, end=10, lag_ms=0, since_ms=since
            )
            if each.replica.task.partition == BREAKS:
                self.broken = "the JVM is gone"
            if each.replica.task.partition == SPINS:
                for _ in range(2):
                    threading.Thread(target=_spin, daemon=True).start()
        if held != self._statuses:
            self._statuses = held
            self.is_warm = bool(held)
            self._on_change()

    def statuses(self) -> Mapping[ReplicaId, ReplicaStatus]:
        return self._statuses

    def note_reported(self, statuses: tuple[ReplicaStatus, ...]) -> None:
        self.reported.append(statuses)

    def close(self, deadline_seconds: float) -> bool:
        """Close at once, unless one never does."""
        self.closed_by = (deadline_seconds, threading.current_thread().daemon)
        in_time = all(each.task.partition != NEVER_CLOSES for each in self._statuses)
        if not in_time:
            self._never.wait(deadline_seconds)
        self._statuses = {
            replica: replace(each, phase=Phase.CLOSED) for replica, each in self._statuses.items()
        }
        self._on_change()
        return in_time
