"""Determines the size of a micro-batch: as many records as take about a second, and fit into memory. Pure.

The output of a batch is visible when it is committed. A batch without a limit takes longer the more input has
accumulated, and more accumulates meanwhile: a container that is short of processor time, or has just taken over,
would produce no output for many seconds. Observed at 4,000 records per second on an overloaded machine: batches of
3,800, 7,500, 15,000 and 22,000 records in a row, of 1.7 to 8.5 s each; and a first batch of 33,000 records, in a
cold JVM, of 32 s.

A part of a batch's duration is constant: Spark's planning, and a transaction per task. If that part dominates, small
batches cost more than they gain: batches of 2,500 records were observed that took 5 s, while more records than that
arrived. So a slow container tries other sizes, and keeps the smallest that is not much worse. One whose batches are in
time but take more than half of the target tries a larger size unless it is known to be too slow.
"""

from __future__ import annotations

import math
from typing import Final

#: Target duration; smaller sizes are tried for slower batches.
TARGET_SECONDS: Final = 1.0

#: The initial limit, and the smallest that is tried for speed.
LEAST_RECORDS: Final = 2_500

#: Doubling the size is worth a longer batch if it increases the records per second by this factor.
_WORTH: Final = 1.35

#: Factor by which a size is increased if it is in time, and nothing is known of a larger one.
_PROBE: Final = 1.5

#: Factor by which a far too large size is reduced.
_SHRINK: Final = 8

#: Number of batches before a size that was not worth it is tried again.
_REST_BATCHES: Final = 16


class BatchSize:
    """The limit of the next batch, learned from earlier ones."""

    def __init__(self, most: int) -> None:
        """``most`` is the upper limit, even when it is below `LEAST_RECORDS`."""
        self._most = most
        self._first = self._least = self._in_time = min(most, LEAST_RECORDS)
        #: While another size is tried: the limit before, and its records per second.
        self._tried: tuple[int, float] | None = None
        self._rest = 0
        #: Whether the next size that a slow container tries is a larger one.
        self._rises = False
        #: Records and seconds of the last full batch of another size.
        self._other: tuple[int, float] | None = None

    @property
    def records(self) -> int:
        """Maximum input records of the next batch, over all tasks of a container."""
        return self._in_time

    def note(self, records: int, seconds: float, *, is_cut: bool = False) -> None:
        """Learn from a batch's duration. ``is_cut``: it ended where it had as many bytes as it may have."""
        before = self.records
        if records < 0.9 * before:
            # The batch was limited by the available input or by bytes, not by the time.
            if not is_cut or records <= self._least or seconds <= TARGET_SECONDS:
                return
            # The limit had no effect. It becomes what the bytes allow, and is reduced from there.
            self._in_time, self._tried, self._rest = records, None, 0
        if seconds <= TARGET_SECONDS:
            self._tried, self._rises = None, False
            # After `shrink`, most of the time may be the constant part, and another size would not be tried.
            if seconds <= TARGET_SECONDS / 2 or before < self._first:
                self._rest = 0
                self._in_time = min(self._most, 2 * before)
            elif self._rest:
                self._wait()
            else:
                self._tried = (before, records / seconds)
                self._in_time = min(self._most, self._larger(records, seconds))
        elif self._rest:
            self._wait()
        else:
            self._try(records / seconds, int(records * TARGET_SECONDS / seconds))
        if self._in_time != before:
            self._other = (records, seconds)

    def shrink(self, records: int | None = None) -> None:
        """Reduce the size after a batch that was far too large: any size that succeeds is right.

        ``records``: what that batch had, if this is known; it may have been less than the limit.
        """
        too_large = self.records if records is None else min(records, self.records)
        self._least = self._in_time = max(1, too_large // _SHRINK)
        self._tried, self._rest = None, 0

    def _wait(self) -> None:
        """Count a batch before another size is tried again."""
        self._rest -= 1
        if not self._rest:
            # Conditions may have changed since.
            self._other = None

    def _larger(self, records: int, seconds: float) -> int:
        """Return the next size after a batch that was in time, but took more than half of the target."""
        if self._other is None or self._other[0] == records:
            # What a record takes shows in a batch of another size.
            return int(_PROBE * self._in_time)
        other, its_seconds = self._other
        each = max(0.0, (seconds - its_seconds) / (records - other))
        expected = seconds + each * records
        is_worth = _is_worth(2 * records, 2 * records / expected, records, records / seconds)
        return 2 * self._in_time if expected <= TARGET_SECONDS or is_worth else self._in_time

    def _try(self, rate: float, fitting: int) -> None:
        """Try the next size, or return to the previous one, after a slow batch with ``rate`` records per second.

        ``fitting`` is the number of records that would finish in time if a batch had no constant cost.
        """
        is_rising = self._rises or self._in_time == self._least
        if self._tried is not None:
            before, its_rate = self._tried
            is_rising = self._in_time > before
            if is_rising:
                is_better = _is_worth(self._in_time, rate, before, its_rate)
            else:
                is_better = not _is_worth(before, its_rate, self._in_time, rate)
            if not is_better:
                self._in_time, self._tried, self._rest = before, None, _REST_BATCHES
                self._rises = not is_rising
                return
        self._tried = (self._in_time, rate)
        self._in_time = min(self._most, 2 * self._in_time) if is_rising else max(self._least, fitting)
        if self._in_time == self._tried[0]:
            self._tried, self._rest = None, _REST_BATCHES
            self._rises = not is_rising


def _is_worth(larger: int, its_rate: float, smaller: int, rate: float) -> bool:
    """Return whether the larger size increases the records per second enough to justify longer batches."""
    worth: float = _WORTH ** math.log2(larger / smaller)
    return its_rate > worth * rate
