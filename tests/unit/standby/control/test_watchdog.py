"""The watchdog tells a loop that stands still from one that is only slow, by looks in a row without a rise."""

from __future__ import annotations

import threading
from itertools import chain, repeat

from standby.control.watchdog import Watchdog
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS


def test_a_count_is_reported_after_so_many_looks_in_a_row_without_a_rise() -> None:
    counts = chain([0, 1, 1, 1, 2], repeat(2))
    seen: list[int] = []
    seen_when_told: list[int] = []
    told = threading.Event()

    def count() -> int:
        seen.append(next(counts))
        return seen[-1]

    def on_stuck() -> None:
        seen_when_told.extend(seen)
        told.set()

    Watchdog(count, on_stuck, looks=3, interval_seconds=LOOK_SECONDS).start()
    assert told.wait(PATIENCE_SECONDS)
    assert seen_when_told == [0, 1, 1, 1, 2, 2, 2, 2]
