"""How far the time of the data has come. Pure."""

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
    """The highest event time seen by a task, less a delay: what lies before it is not expected any more.

    As Spark's `withWatermark(column, delay)`, and Flink's `forBoundedOutOfOrderness`, but it moves with each
    row, like the stream time of Kafka Streams, and not with each batch: where a batch ends is chance. It never
    falls. Each task has one of its own, for its partition; it stands still while the task gets no rows.

    Its one record may lie in any store, also in one that a window aggregation, sessions or a de-duplication uses.
    """

    delay_ms: int
    """How far out of order rows may come. At least 0; more means later results and fewer late rows."""
    name: str = ""
    """Tells several watermarks in one store apart."""

    def __post_init__(self) -> None:
        if self.delay_ms < 0:
            raise ValueError(f"delay_ms must be at least 0, not {self.delay_ms}")

    def advance(self, store: Store, times: Sequence[int]) -> list[int]:
        """Return the watermark at each row, the row itself included, and keep the last one in ``store``.

        ``times`` are the event times of the batch's rows, milliseconds, in order. Rows that are in no window may
        be among them, heartbeats say: they move time all the same.
        """
        if not times:
            return []
        before = self.at(store)
        delay = self.delay_ms
        if before is None:
            highest = accumulate(times, max)
        else:
            # A delay that was made longer between two versions of a job must not make the watermark fall.
            highest = accumulate(times, max, initial=before + delay)
            next(highest)
        marks = [each - delay for each in highest] if delay else list(highest)
        if marks[-1] != before:
            store.put(self._key, INT.dump(marks[-1]))
        return marks

    def at(self, store: Store) -> int | None:
        """Return the watermark, milliseconds; None before the first row."""
        data = store.get(self._key)
        return None if data is None else INT.load(data)

    @property
    def _key(self) -> bytes:
        return _PREFIX + self.name.encode()
