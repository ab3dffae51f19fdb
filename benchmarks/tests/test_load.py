"""How the generator of input spreads its records over time."""

from __future__ import annotations

import pytest

from benchmarks.load import ticks


def test_every_record_is_due_once() -> None:
    for records, rate in ((1_000, 333.0), (50_000, 50_000.0), (7, 1.0), (5, 0), (25_000, 0)):
        assert sum(amount for _, amount in ticks(records, rate)) == records, rate


def test_at_every_moment_as_many_are_due_as_the_rate_says() -> None:
    due = list(ticks(3_000, 1_000.0))
    begin, done = due[0][0] - 0.01, 0
    for at, amount in due:
        done += amount
        assert done == pytest.approx((at - begin) * 1_000, abs=1)


def test_a_slow_rate_leaves_ticks_out() -> None:
    due = list(ticks(3, 10.0))
    assert [amount for _, amount in due] == [1, 1, 1]
    assert due[2][0] - due[0][0] == pytest.approx(0.2, abs=0.02)
