"""The watermark of a task's event time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from standby.api import Store
from standby.state.serdes import INT

_PREFIX: Final = b"w"


@dataclass(frozen=True)
class Watermark:
    """The highest event time seen by a task, minus a delay: earlier rows are no longer expected.

    Like Spark's `withWatermark(column, delay)` and Flink's `forBoundedOutOfOrderness`, but it advances with each
    row, like the stream time of Kafka Streams, not with each batch, because the end of a batch is arbitrary. It
    never decreases. Each task has its own watermark, for its partition; it does not advance while the task gets no
    rows. Its record may be in any store, including one that is used by a window aggregation, sessions or a
    de-duplication.
    """

    delay_ms: int
    """How far out of order rows may be. At least 0; a larger delay means later results and fewer late rows."""
    name: str = ""
    """Distinguishes several watermarks in one store."""

    def __post_init__(self) -> None:
        if self.delay_ms < 0:
            raise ValueError(f"delay_ms must be at least 0, not {self.delay_ms}")

    def advance(self, store: Store, times: Sequence[int]) -> list[int]:
        """Return the watermark at each row, including the row itself, and store the last one in ``store``.

        ``times`` are the event times of the batch's rows in milliseconds, in order. They may include rows that are
        in no window, such as heartbeats, which also advance time.
        """
        if not times:
            return []
        before = self.at(store)
        delay = self.delay_ms
        if before is None:
            highest = accumulate(times, max)
        else:
            # A longer delay in a new version of a job must not decrease the watermark.
            highest = accumulate(times, max, initial=before + delay)
            next(highest)
        marks = [each - delay for each in highest] if delay else list(highest)
        if marks[-1] != before:
            store.put(self._key, INT.dump(marks[-1]))
        return marks

    def at(self, store: Store) -> int | None:
        """Return the watermark in milliseconds; None before the first row."""
        data = store.get(self._key)
        return None if data is None else INT.load(data)

    @property
    def _key(self) -> bytes:
        return _PREFIX + self.name.encode()
