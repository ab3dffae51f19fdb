"""The job: page views in, one record per visit out, when the visit is over.

A visit is a session: views of one visitor with at most half an hour between two. Trackers send a view again
if they are not sure that it arrived, so views are first de-duplicated by their id. README.md has the records and the
rules, docs/event-time.md the helpers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from standby.eventtime import (
    Aggregate,
    Deduplication,
    SessionAggregation,
    Watermark,
    emit_rows,
    event_times,
)
from standby.state import json_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from standby.api import Output, State

MINUTE_MS = 60_000

LATE_TOPIC = "late-views"

#: Views arrive up to one minute out of order.
WATERMARK = Watermark(delay_ms=MINUTE_MS)

#: A tracker sends a view again within ten minutes, or not at all.
ONCE = Deduplication.within_watermark(10 * MINUTE_MS)


def _see(visit: dict[str, Any], page: str) -> dict[str, Any]:
    visit["views"] += 1
    visit["pages"][page] = visit["pages"].get(page, 0) + 1
    return visit


def _join(visit: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    visit["views"] += other["views"]
    for page, views in other["pages"].items():
        visit["pages"][page] = visit["pages"].get(page, 0) + views
    return visit


VISITS = SessionAggregation(
    gap_ms=30 * MINUTE_MS,
    aggregate=Aggregate(
        init=lambda: {"views": 0, "pages": {}},
        add=_see,
        merge=_join,
        serde=json_of(dict[str, Any]),
        result=lambda visit: json.dumps(visit, sort_keys=True).encode(),
    ),
)


def parse(df: DataFrame) -> DataFrame:
    """Return one row per view with ``id``, ``page`` and ``at``; invalid records are dropped."""
    from pyspark.sql import functions as f

    view = f.from_json(f.col("value").cast("string"), "id STRING, page STRING, at STRING")
    # Not as a TIMESTAMP of the JSON: Spark would read "09:00" as today's, and a record must always mean the
    # same. try_to_timestamp still raises for a year beyond Spark's range.
    dated = f.when(f.col("view.at").rlike("^[0-9]{4}-"), f.col("view.at"))
    at = f.try_to_timestamp(dated, f.lit("yyyy-MM-dd'T'HH:mm:ss[.SSS]XXX"))
    return (
        df.withColumn("view", view)
        .withColumn("at", at)
        .where("key IS NOT NULL AND view.id IS NOT NULL AND view.page IS NOT NULL AND at IS NOT NULL")
        .select("_task", "_offset", "key", "value", "view.id", "view.page", "at")
    )


def visits(rows: pa.Table, state: State, out: Output) -> None:
    """Emit the visits that are over, and the views that are too late to be counted."""
    times = event_times(rows["at"])
    marks = WATERMARK.advance(state["visits"], times)
    ids = [each.encode() for each in rows["id"].to_pylist()]
    views = ONCE.apply(state["seen"], ids, times, marks)

    # A view that is not counted still advances the time: its row stays, without a visitor.
    visitors = views.only(rows["key"].to_pylist())
    found = VISITS.add(state["visits"], visitors, times, marks, rows["page"].to_pylist())

    for each in found.results:
        head = b'{"from_ms":%d,"to_ms":%d,"visit":' % (each.start_ms, each.end_ms)
        out.emit(each.key, head + each.value + b"}")
    emit_rows(rows, views.late, out, LATE_TOPIC)
