"""Whatever goes wrong, and in whatever order: two containers, one job, and exactly-once at the end."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standby.errors import CorruptState, Fenced, Transient, Unavailable
from standby.kernel.ports import WriterLost
from standby.kernel.probes import POINTS
from standby.shared.model import Phase, Role
from tests.examples import examples
from tests.memory_lab import MemoryContainer, MemoryLab
from tests.patience import LOOK_SECONDS

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


#: What may be raised at each point of the kernel's work: every kind that is treated in a way of its own, and a
#: bug.
ERRORS = (WriterLost, Transient, Unavailable, CorruptState, Fenced, RuntimeError)

Fault = str | tuple[str, type[Exception]]


class Play:
    """The leader and the faults of one example."""

    def __init__(self, directory: Path, inputs: str) -> None:
        self.lab = MemoryLab(directory, 2, **{"task.inputs": inputs})
        self.epoch, self.copy = 1, 0
        self._lock = threading.Lock()
        self.mines: list[tuple[str, type[Exception]]] = []
        self.containers = [self.container(0), self.container(1)]
        # So slow that a replica always lags behind: only the drain makes it whole.
        self.lab.kafka.read_limit = 2
        self.lab.kafka.before_commit = lambda: self._strike("before")
        self.lab.kafka.after_commit = lambda: self._strike("after")
        self._armed: list[str] = []

    def container(self, copy: int) -> MemoryContainer:
        return self.lab.container("ab"[copy], probe=self._pass)

    def _pass(self, point: str) -> None:
        with self._lock:
            mine = next((each for each in self.mines if each[0] == point), None)
            if mine is None:
                return
            self.mines.remove(mine)
        raise mine[1](f"a mine: {point}")

    def decide_again(self) -> None:
        """Decide as the leader does when things are quiet: what had stopped by itself is opened again."""
        self.epoch += 1
        self.tell()

    def await_whole(self) -> None:
        """Return when all input is processed and the standby is in sync.

        The end of a replica may be told after the decision that followed on its cause; then, as the leader does,
        decide once more.
        """
        for _ in range(10):
            self.active.eventually(lambda: self._is_whole() or self._has_ended())
            if not self._has_ended():
                return
            self.decide_again()
        raise AssertionError("replicas end again and again")

    def _is_whole(self) -> bool:
        actives, standbys = self.active.statuses(), self.standby.statuses()
        ends = self.lab.ends()
        return (
            len(actives) == len(standbys) == len(ends)
            and all(each.phase is Phase.ACTIVE for each in actives)
            and all(each.input_committed == ends[each.replica.task.partition] for each in actives)
            and all(each.phase is Phase.TAILING for each in standbys)
        )

    def _has_ended(self) -> bool:
        statuses = [*self.active.statuses(), *self.standby.statuses()]
        return any(
            each.phase in (Phase.FAILED, Phase.FENCED) and each.epoch == self.epoch for each in statuses
        )

    def clear(self) -> None:
        """Let nothing that did not happen yet happen any more."""
        with self._lock:
            self._armed.clear()
            self.mines.clear()

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

    def suffer(self, fault: Fault) -> None:
        match fault:
            case (point, error):
                # Whoever passes there next is hit: in a batch, on the way to active, or in a replay.
                self.mines.append((point, error))
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
                time.sleep(2 * LOOK_SECONDS)  # for work to run into it; there is nothing to wait for
                what.is_away = False
            case "restart the standby":
                self.restart(1 - self.copy)
            case _:
                self.restart(self.copy)
        self.lab.produce(7)

    def restart(self, copy: int) -> None:
        self.containers[copy].close()
        self.containers[copy] = self.container(copy)
        self.tell()


def mines() -> st.SearchStrategy[Fault]:
    return st.tuples(st.sampled_from(POINTS), st.sampled_from(ERRORS))


INPUTS = st.sampled_from(["in", "in,also"])


@given(st.lists(st.sampled_from(FAULTS), min_size=1, max_size=7), INPUTS)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_lost_or_counted_twice_after_any_faults(faults: list[Fault], inputs: str) -> None:
    play_through(faults, inputs)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("error", ERRORS)
def test_exact_after_an_error_of_any_kind_at_any_point(point: str, error: type[Exception]) -> None:
    """Met by who is at work, or else by its successor on the way; and once more after the hand-over."""
    with playing() as play:
        for hand_over in ("hand over", "hand over untold"):
            play.await_whole()
            play.suffer((point, error))
            if not point.startswith("takeover"):
                play.active.eventually(lambda: not play.mines)
            play.suffer(hand_over)
            play.active.eventually(lambda: not play.mines)
            play.decide_again()


@given(st.lists(st.one_of(st.sampled_from(FAULTS), mines()), min_size=2, max_size=7), INPUTS)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
def test_exact_after_errors_anywhere_among_other_faults(faults: list[Fault], inputs: str) -> None:
    play_through(faults, inputs)


def play_through(faults: list[Fault], inputs: str) -> None:
    with playing(inputs) as play:
        for fault in faults:
            play.suffer(fault)


@contextmanager
def playing(inputs: str = "in") -> Iterator[Play]:
    """Give a play that has begun; in the end, when things are quiet, all must be whole and exact."""
    with tempfile.TemporaryDirectory() as directory:
        play = Play(Path(directory), inputs)
        play.tell()
        play.lab.produce(10)
        yield play
        play.clear()
        play.decide_again()
        play.await_whole()
        play.lab.assert_exact()
        for each in play.containers:
            assert each.replicas.broken is None
            each.close()
