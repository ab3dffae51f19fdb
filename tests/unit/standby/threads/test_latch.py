"""A latch: an event that a signal handler may set wherever it interrupts a thread."""

from __future__ import annotations

import threading

import pytest

from standby.threads.latch import Latch
from tests.interrupted import before_each_line
from tests.patience import PATIENCE_SECONDS


def test_it_stays_set_for_all_who_wait() -> None:
    latch = Latch()
    assert not latch.wait(0)
    assert not latch.is_set()
    woken = [threading.Thread(target=latch.wait, daemon=True) for _ in range(3)]
    for each in woken:
        each.start()
    latch.set()
    for each in woken:
        each.join(PATIENCE_SECONDS)
    assert not any(each.is_alive() for each in woken)
    assert latch.is_set()
    assert latch.wait()


@pytest.mark.parametrize("line", range(12))
def test_it_may_be_set_at_any_moment_of_a_wait(line: int) -> None:
    latch, returned = Latch(), list[bool]()

    def act(number: int) -> None:
        if number == line and not returned:
            latch.set()

    with before_each_line(act):
        returned.append(latch.wait(0 if line else PATIENCE_SECONDS))
    assert returned == [latch.is_set()]
