"""The watchdog tells a loop that stands still from one that is only slow."""

from __future__ import annotations

import itertools
import threading

from standby.control.watchdog import Watchdog
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS


def test_a_count_that_stands_still_is_told() -> None:
    told = threading.Event()
    Watchdog(lambda: 7, told.set, looks=3, interval_seconds=LOOK_SECONDS).start()
    assert told.wait(PATIENCE_SECONDS)


def test_a_count_that_rises_is_left_alone() -> None:
    told = threading.Event()
    looked = threading.Event()
    counts = itertools.chain.from_iterable((each, each, each) for each in range(10))

    def count() -> int:
        try:
            return next(counts)
        except StopIteration:
            looked.set()
            watchdog.stop()
            return -1

    watchdog = Watchdog(count, told.set, looks=3, interval_seconds=LOOK_SECONDS)
    watchdog.start()
    assert looked.wait(PATIENCE_SECONDS)
    assert not told.is_set()
