"""What an active's status tells of its input: what was given up, how fast it goes, how far behind it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from standby.kernel.active.throughput import Throughput
from standby.shared.model import GIVEN_UP_SECONDS, RATE_WINDOW_SECONDS, LeftOut, ReplicaStatus
from tests.fakes import ledger_job
from tests.memory_lab import MakeLab, MemoryContainer, MemoryLab, active_of


@pytest.mark.parametrize(
    ("on_error", "how"), [("skip", LeftOut.SKIPPED), ("dead-letter", LeftOut.DEAD_LETTER)]
)
def test_records_that_are_given_up_are_named_for_a_while_and_counted_for_good(
    make_lab: MakeLab, on_error: str, how: LeftOut
) -> None:
    dead = {"task.dead.letter": "dead"} if on_error == "dead-letter" else {}
    lab = make_lab(1, **{"task.on.error": on_error, "task.on.error.attempts": "1", **dead})
    lab.produce(3)
    offsets = [lab.poison(0)[1] for _ in range(10)]
    container = lab.begun(0)
    container.eventually(lambda: container.status().skipped == 10)
    found = container.status()
    assert [each.offset for each in found.given_up] == offsets[-8:], "the last ones, by name"
    assert {(each.topic, each.how, each.reason, each.offsets) for each in found.given_up} == {
        ("in", how, "ValueError: a poisoned record", 1)
    }
    assert found.dead_lettered == (10 if how is LeftOut.DEAD_LETTER else 0)
    lab.now_ms += GIVEN_UP_SECONDS * 1000
    found = container.status()
    assert (found.given_up, found.skipped) == ((), 10)


@contextmanager
def behind(lab: MemoryLab, gate: threading.Event) -> Iterator[MemoryContainer]:
    """Give an active that has been behind by 5 records for a second; it gets on when the gate is set."""
    lab.clock.hold()

    def step(rows: Any, state: Any, out: Any) -> None:
        gate.wait()
        ledger_job.step(rows, state, out)

    with active_of(lab, step=step) as container:
        container.eventually(lambda: bool(container.statuses()) and container.status().input_lag_ms == 0)
        lab.produce(5)
        container.eventually(lambda: container.status().input_lag == 5)
        lab.clock.await_looks("conductor")
        lab.clock.advance(1)
        container.eventually(lambda: container.status().input_lag_ms == 1_000)
        yield container


def test_an_active_that_does_not_get_on_is_behind_for_longer_and_longer(make_lab: MakeLab) -> None:
    lab, gate = make_lab(1), threading.Event()
    with behind(lab, gate) as container:
        assert (container.status().input_lag, container.status().input_rate) == (5, 0.0)
        gate.set()
        container.eventually(lambda: container.status().input_lag_ms == 0)
        assert (container.status().input_rate or 0.0) > 0


def test_an_active_is_as_far_behind_after_it_has_claimed_its_task_anew(make_lab: MakeLab) -> None:
    """Which it does whenever a transaction has failed."""
    lab, gate = make_lab(1), threading.Event()
    with behind(lab, gate) as container:
        container.activate(0, 2)
        gate.set()
        seen: list[ReplicaStatus] = []

        def has_caught_up() -> bool:
            seen.append(container.status())
            return seen[-1].input_lag_ms == 0

        container.eventually(has_caught_up)
        lags_ms = [each.input_lag_ms or 0 for each in seen if each.epoch == 2 and each.input_lag_ms != 0]
        assert lags_ms
        assert min(lags_ms) >= 1_000


def test_a_rate_is_a_mean_over_a_minute_or_since_the_beginning() -> None:
    throughput = Throughput(100.0)
    assert throughput.per_second(100.2) == 0.0
    throughput.note(30, 100.5)
    throughput.note(30, 100.9)
    throughput.note(60, 103.0)
    assert throughput.per_second(104.0) == 30.0
    assert throughput.per_second(100.0 + RATE_WINDOW_SECONDS - 1) == pytest.approx(120 / 59)
    assert throughput.per_second(100.0 + RATE_WINDOW_SECONDS) == 1.0, (
        "the first second is not counted any more"
    )
    assert throughput.per_second(103.0 + RATE_WINDOW_SECONDS) == 0.0
