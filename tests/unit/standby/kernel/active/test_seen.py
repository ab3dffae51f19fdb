"""What an active's status tells of its input, and how it is found to be stuck."""

from __future__ import annotations

from threading import Semaphore
from typing import Any

import pytest

from standby.kernel.active.stall_detectors import InputLag, PromotionStallDetector
from standby.kernel.active.throughput import Throughput
from standby.kernel.ports import WriterLost
from standby.kernel.replay.ends import EndOffset
from standby.shared.model import GIVEN_UP_SECONDS, RATE_WINDOW_SECONDS, LeftOut, Phase
from tests.fakes import ledger_job
from tests.memory_lab import MakeLab, MemoryContainer, MemoryLab, on_error


@pytest.mark.parametrize(("kind", "how"), [("skip", LeftOut.SKIPPED), ("dead-letter", LeftOut.DEAD_LETTER)])
def test_records_that_are_given_up_are_named_for_a_while_and_counted_for_good(
    make_lab: MakeLab, kind: str, how: LeftOut
) -> None:
    lab = make_lab(1, **on_error(kind, attempts=1))
    lab.clock.hold()
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


def behind(lab: MemoryLab, gate: Semaphore) -> MemoryContainer:
    """Return an active that has been behind by 5 records for a second; the gate lets a batch of it through."""
    lab.clock.hold()

    def step(rows: Any, state: Any, out: Any) -> None:
        gate.acquire()
        ledger_job.step(rows, state, out)

    container = lab.begun(0, step=step)
    container.eventually(lambda: container.status().input_lag_ms == 0)
    lab.produce(5)
    container.eventually(lambda: container.status().input_lag == 5)
    lab.clock.await_looks("conductor")
    lab.clock.advance(1)
    container.eventually(lambda: container.status().input_lag_ms == 1_000)
    return container


def test_an_active_that_does_not_get_on_is_behind_for_longer_and_longer(make_lab: MakeLab) -> None:
    lab, gate = make_lab(1), Semaphore(0)
    container = behind(lab, gate)
    assert (container.status().input_lag, container.status().input_rate) == (5, 0.0)
    gate.release(5)
    container.eventually(lambda: container.status().input_lag_ms == 0)
    container.eventually(lambda: bool(container.status().input_rate))


def test_an_active_is_as_far_behind_after_it_has_claimed_its_task_anew(make_lab: MakeLab) -> None:
    """Which it does whenever a transaction has failed."""
    lab, gate = make_lab(1), Semaphore(0)
    losses = iter([WriterLost("lost by the test")])

    def lose_once() -> None:
        for each in losses:
            raise each

    container = behind(lab, gate)
    (held,) = container.replicas.held()
    lab.kafka.before_commit = lose_once
    gate.release()
    container.eventually(lambda: held._ways == 2 and container.are(Phase.ACTIVE))
    lab.clock.await_looks("conductor")
    assert container.status().input_lag_ms == 1_000
    gate.release(5)
    container.eventually(lambda: container.status().input_lag_ms == 0)


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


def test_a_way_is_stuck_when_it_has_not_got_beyond_one_point_for_too_long() -> None:
    way = PromotionStallDetector()
    assert not way.is_stuck("here", 100.0, 5.0)
    assert not way.is_stuck("here", 105.0, 5.0)
    assert way.is_stuck("here", 105.1, 5.0)
    assert not way.is_stuck("further", 106.0, 5.0)
    assert way.is_stuck("further", 111.1, 5.0)
    way.rest()
    assert not way.is_stuck("further", 112.0, 5.0), "a rest begins it anew"
    assert way.is_stuck("further", 117.1, 5.0)


def test_lag_counts_from_the_last_time_at_the_end_also_while_claimed_anew_or_while_no_end_is_known() -> None:
    """A machine that is too busy brings about both."""
    lag = InputLag()
    for committed, end, now_ms, expected in (
        (10, EndOffset(10, 1_000), 1_000, 0),
        (10, EndOffset(20, 2_000), 2_000, 1_000),
        (None, None, 61_000, 60_000),
        (15, None, 62_000, 61_000),
        # At the last answer's end it may be behind or not: what came meanwhile is not known.
        (20, None, 63_000, None),
        (20, EndOffset(20, 64_000), 64_000, 0),
        (20, EndOffset(30, 66_000), 68_000, 4_000),
    ):
        lag.look(committed, end, now_ms)
        assert lag.ms == expected, now_ms
