"""The watchdog tells a loop that stands still from one that is only slow, by looks in a row without a rise."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from itertools import chain, repeat

from standby.control.watchdog import Watchdog
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS


def test_a_count_is_reported_after_so_many_looks_in_a_row_without_a_rise() -> None:
    for counts, expected in (
        (chain([0, 1, 1, 1, 2], repeat(2)), [0, 1, 1, 1, 2, 2, 2, 2]),
        (repeat(5), [5, 5, 5, 5]),
    ):
        told = threading.Event()
        seen: list[int] = []
        seen_when_told: list[int] = []
        threads: set[bool] = set()
        Watchdog(
            partial(count_of, counts, seen, threads),
            partial(tell, seen, seen_when_told, told),
            looks=3,
            interval_seconds=LOOK_SECONDS,
        ).start()
        assert told.wait(PATIENCE_SECONDS)
        assert seen_when_told == expected
        assert threads == {True}, "a daemon"
    assert Watchdog.__init__.__kwdefaults__ == {"looks": 40, "interval_seconds": 0.5}, "twenty seconds"


def count_of(counts: Iterator[int], seen: list[int], threads: set[bool]) -> int:
    threads.add(threading.current_thread().daemon)
    seen.append(next(counts))
    return seen[-1]


def tell(seen: list[int], seen_when_told: list[int], told: threading.Event) -> None:
    seen_when_told.extend(seen)
    told.set()
