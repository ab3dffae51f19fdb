"""A bound on bytes per second, by a clock of the test."""

from __future__ import annotations

import pytest

from standby.kernel.replay.rate_limiter import RateLimiter


def test_it_lets_the_rate_through_and_no_more() -> None:
    now, taken = 0.0, 0
    limiter = RateLimiter(lambda: now)
    while now < 10:
        now += limiter.take(1_000, 50_000)
        taken += 1_000
    assert 490_000 <= taken <= 510_000


def test_a_rest_saves_up_no_more_than_a_moment() -> None:
    now = 100.0
    limiter = RateLimiter(lambda: now)
    assert limiter.take(1_000, 1_000) == pytest.approx(0.9)
    now = 500.0
    assert limiter.take(1_000, 1_000) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("at", "amount", "rate", "seconds"),
    [
        (0.0, 3, 1, 3.0),
        (100.0, 1, 1_000, 0.0),
        (0.0, 1 << 40, 0, 0.0),
    ],
    ids=["one byte a second is a bound", "after a rest little is free", "without a bound nothing waits"],
)
def test_edges(at: float, amount: int, rate: int, seconds: float) -> None:
    assert RateLimiter(lambda: at).take(amount, rate) == seconds
