"""Event time for step functions: watermark, windows, sessions, de-duplication (docs/event-time.md).

Everything is based on the times of the records, row by row, never on a clock or on the end of a batch: the same rows
in the same order, from the same state, give the same results and the same bytes of state, however they are split
into batches. All state is in the task's stores, so a standby has it, too.
"""

from standby.eventtime.aggregates import COUNT, MAX, MIN, SUM, Aggregate
from standby.eventtime.columns import emit_rows, event_times
from standby.eventtime.duplicates import Deduplicated, Deduplication
from standby.eventtime.results import Results, WindowResult
from standby.eventtime.sessions import SessionAggregation
from standby.eventtime.watermark import Watermark
from standby.eventtime.windows import Emit, TimeWindows, WindowAggregation

__all__ = [
    "COUNT",
    "MAX",
    "MIN",
    "SUM",
    "Aggregate",
    "Deduplicated",
    "Deduplication",
    "Emit",
    "Results",
    "SessionAggregation",
    "TimeWindows",
    "Watermark",
    "WindowAggregation",
    "WindowResult",
    "emit_rows",
    "event_times",
]
