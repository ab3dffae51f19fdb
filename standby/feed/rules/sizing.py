"""How many records one micro-batch may have: as many as are done in about a second, and fit into memory. Pure.

What a batch puts out shows when it is committed. One that takes all that waits takes the longer the more has piled up,
and more piles up meanwhile: a container that is short of processor time, or has just taken over, would put nothing out
for many seconds. Seen at 4,000 records a second on a crowded machine: batches of 3,800, 7,500, 15,000 and 22,000
records in a row, of 1.7 to 8.5 s each; and a first batch of 33,000 records, in a cold JVM, of 32 s.

A part of what a batch takes is the same for every batch: Spark's planning, a transaction for each task. Where that part
is most of it, small batches would cost more than they gain: also seen, batches of 2,500 records that took 5 s, of fewer
records than came meanwhile. So a slow container tries other sizes and stays with the smallest that is not much worse.
"""

from __future__ import annotations

import math
from typing import Final

#: How long a batch may take until smaller ones are tried.
TARGET_SECONDS: Final = 1.0

#: Where the bound begins, and the smallest that is tried for its speed.
LEAST_RECORDS: Final = 2_500

#: Most records of a batch while nobody knows how large they are: each may have the megabyte that Kafka allows.
FIRST_RECORDS: Final = 100

#: A batch that waits for its start may have so many times the records of one that is done in time: it follows somebody
#: who is quick.
_HELD: Final = 4

#: Twice the records are worth a longer batch when they bring so many times the records per second.
_WORTH: Final = 1.35

#: What is far too large is made so many times smaller.
_SHRINK: Final = 8

#: So many slow batches pass before another size is tried again.
_REST_BATCHES: Final = 16


class BatchSize:
    """The bound of the next batch, learned from those before it."""

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        """``most`` is the bound that is never exceeded; when it is below `LEAST_RECORDS` it simply holds.

        ``most_bytes``: of a reader that cannot count bytes itself; None: it can, or need not.
        """
        self._most = most
        self._most_bytes = most_bytes
        #: Bytes that come of a record; None: not known yet.
        self._mean: float | None = None
        self._least = min(most, LEAST_RECORDS)
        self._in_time = self._least
        #: While batches are slow: the bound before the last change, and the records per second that it brought.
        self._tried: tuple[int, float] | None = None
        self._rest = 0

    @property
    def records(self) -> int:
        """Most input records of the next batch, all tasks of a container together."""
        return self._fitting(self._in_time)

    @property
    def held(self) -> int:
        """Most input records of a batch that is not to be done yet: there may be more of them, but no more bytes."""
        return self._fitting(min(self._most, _HELD * self._in_time))

    def note_bytes(self, records: int, size: int) -> None:
        """Take note of a batch's bytes: its ``size`` came of so many records."""
        mean = max(1.0, size / max(1, records))
        # The next records may well be as large as the largest of late.
        self._mean = mean if self._mean is None else max(mean, (self._mean + mean) / 2)

    def note_ahead(self, mean: int) -> None:
        """Take note that records to come have so many bytes; fewer than those before make no difference."""
        if self._mean is not None:
            self._mean = max(self._mean, mean)

    @property
    def reach(self) -> int:
        """Most records of the batch after the one that is under way, whatever comes of it."""
        return min(self._most, 2 * self._in_time)

    def note(self, records: int, seconds: float) -> bool:
        """Take note of what a batch took; return whether the bound has changed."""
        before = self.records
        if records < 0.9 * before or before < self._in_time:
            # It had all there was, or all that its bytes allow: the time has not made it what it was.
            return False
        if seconds <= TARGET_SECONDS:
            self._tried, self._rest = None, 0
            if seconds <= TARGET_SECONDS / 2:
                self._in_time = min(self._most, 2 * before)
        elif self._rest:
            self._rest -= 1
        else:
            self._try(records / seconds, int(records * TARGET_SECONDS / seconds))
        return self.records != before

    def shrink(self) -> None:
        """Take note that a batch was far too large: one of any size is right that goes at all."""
        self._least = self._in_time = max(1, self.records // _SHRINK)
        self._tried, self._rest = None, 0

    def _fitting(self, records: int) -> int:
        """Return ``records``, or as many as there is room for."""
        if self._most_bytes is None:
            return records
        if self._mean is None:
            return min(records, FIRST_RECORDS)
        return max(1, int(min(records, self._most_bytes / self._mean)))

    def _try(self, rate: float, fitting: int) -> None:
        """Go on to the next size, or back to the one before, after a slow batch with ``rate`` records per second.

        ``fitting`` records would be done in time if a batch cost nothing by itself.
        """
        is_rising = self._in_time == self._least
        if self._tried is not None:
            before, its_rate = self._tried
            is_rising = self._in_time > before
            if is_rising:
                is_better = _is_worth(self._in_time, rate, before, its_rate)
            else:
                is_better = not _is_worth(before, its_rate, self._in_time, rate)
            if not is_better:
                self._in_time, self._tried, self._rest = before, None, _REST_BATCHES
                return
        self._tried = (self._in_time, rate)
        self._in_time = min(self._most, 2 * self._in_time) if is_rising else max(self._least, fitting)
        if self._in_time == self._tried[0]:
            self._tried, self._rest = None, _REST_BATCHES


def _is_worth(larger: int, its_rate: float, smaller: int, rate: float) -> bool:
    """Return whether the larger size brings so many more records per second that its longer batches are worth it."""
    worth: float = _WORTH ** math.log2(larger / smaller)
    return its_rate > worth * rate
