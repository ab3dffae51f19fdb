"""Whatever goes wrong, and in whatever order: two containers, one job, and exactly-once at the end."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standby.kernel.ports import WriterLost
from standby.model import Phase, Role
from tests.memory_lab import MemoryContainer, MemoryLab

FAULTS = (
    "hand over",
    "hand over untold",
    "prepare a hand-over",
    "claim again",
    "lose an answer",
    "fail a commit",
    "broker away",
    "records away",
    "restart the standby",
    "restart the active",
)


class Play:
    """The leader and the faults of one example."""

    def __init__(self, directory: Path) -> None:
        self.lab = MemoryLab(directory)
        self.epoch, self.copy = 1, 0
        self.containers = [self.lab.container("a"), self.lab.container("b")]
        self._lock = threading.Lock()
        # So slow that a replica always lags behind: only the drain makes it whole.
        self.lab.kafka.read_limit = 2
        self.lab.kafka.before_commit = lambda: self._strike("before")
        self.lab.kafka.after_commit = lambda: self._strike("after")
        self._armed: list[str] = []

    def _strike(self, where: str) -> None:
        with self._lock:
            if where not in self._armed:
                return
            self._armed.remove(where)
        raise WriterLost(f"{where} the commit")

    def tell(self, *, both: bool = True) -> None:
        self.lab.name(self.copy, self.epoch)
        self.active.want(self.copy, Role.ACTIVE, self.epoch)
        if both:
            self.standby.want(1 - self.copy, Role.STANDBY, self.epoch)

    @property
    def active(self) -> MemoryContainer:
        return self.containers[self.copy]

    @property
    def standby(self) -> MemoryContainer:
        return self.containers[1 - self.copy]

    def suffer(self, fault: str) -> None:
        match fault:
            case "hand over" | "hand over untold":
                self.epoch, self.copy = self.epoch + 1, 1 - self.copy
                self.tell(both=fault == "hand over")
            case "prepare a hand-over":
                self.standby.want(1 - self.copy, Role.STANDBY, self.epoch, is_next=True)
            case "claim again":
                self.epoch += 1
                self.tell()
            case "lose an answer":
                self._armed.append("after")
            case "fail a commit":
                self._armed.append("before")
            case "broker away" | "records away":
                what = self.lab.kafka if fault == "broker away" else self.lab.records
                what.is_away = True
                time.sleep(0.05)  # for work to run into it; there is nothing to wait for
                what.is_away = False
            case "restart the standby":
                self.restart(1 - self.copy)
            case _:
                self.restart(self.copy)
        self.lab.produce(7)

    def restart(self, copy: int) -> None:
        self.containers[copy].close()
        self.containers[copy] = self.lab.container("ab"[copy])
        self.tell()


@given(st.lists(st.sampled_from(FAULTS), min_size=1, max_size=7))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_lost_or_counted_twice_after_any_faults(faults: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        play = Play(Path(directory))
        play.tell()
        play.lab.produce(10)
        for fault in faults:
            play.suffer(fault)
        play._armed.clear()
        # The leader's next decision, when things are quiet, opens again what had stopped by itself.
        play.epoch += 1
        play.tell()
        play.active.await_processed()
        play.standby.await_phase(Phase.TAILING)
        play.lab.assert_exact()
        for each in play.containers:
            assert each.replicas.broken is None
            each.close()
