"""The job: clean the flights on Spark, then keep running totals and carried delays per aircraft.

README.md describes what happens to each kind of row. model.py computes the same independently, and the
demo compares the two record by record.
"""

from __future__ import annotations

import json
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from standby.api import Output, State

#: A delay is carried only to a flight scheduled within this many minutes: the night ends a chain.
CHAIN_MINUTES = 12 * 60

#: An arrival later than this counts as late (the usual measure of punctuality).
LATE_MINUTES = 15

#: The fields of a raw record that the job reads.
FIELDS = (
    "year",
    "month",
    "day",
    "sched_dep_time",
    "dep_delay",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "air_time",
    "distance",
    "minute",
    "time_hour",
)

#: The fields that identify a flight, in the order of its id.
IDENTITY = ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time")

#: The fields with whole numbers.
NUMBERS = ("dep_delay", "arr_delay", "air_time", "distance", "minute")

UNASSIGNED_TOPIC = "unassigned-flights"


def clean(df: DataFrame) -> DataFrame:
    """Return one typed row per flight; invalid records are dropped (README.md says which).

    Every field of a raw record is a string; an empty one or ``NA`` is a missing value. Nothing here raises for a value:
    in Spark's ANSI mode ``cast`` and ``to_timestamp`` do, and one malformed record would end the job.
    """
    from pyspark.sql import functions as f

    def once(column: Column) -> Column:
        # Spark moves filters below the columns they use, and would parse the JSON again for each of these
        # columns: four times the processor time. It does not move filters below an explode.
        return f.explode(f.array(column))

    def trimmed(name: str) -> Column:
        inner = f.trim(f.col(f"parsed.{name}"))
        return f.when(~inner.isin("", "NA"), inner).alias(name)

    def text(name: str) -> Column:
        return f.col(f"raw.{name}")

    def number(name: str) -> Column:
        return text(name).try_cast("int")

    status = (
        f.when(text("tailnum").isNull(), "unassigned")
        .when(number("dep_delay").isNull(), "cancelled")
        .when(number("arr_delay").isNull(), "diverted")
        .otherwise("flown")
    )
    # Years, months and days are written without leading zeros, so that the id reads like the source.
    identity = f.concat_ws("/", *(text(name) for name in IDENTITY))
    # try_to_timestamp still raises for a year beyond Spark's range.
    dated = f.when(text("time_hour").rlike("^[0-9]{4}-"), text("time_hour"))
    hour = f.try_to_timestamp(dated, f.lit("yyyy-MM-dd'T'HH:mm:ssX"))
    needed = (f.col("key"), hour, number("minute"), *(text(name) for name in IDENTITY))
    is_sound = reduce(
        and_,
        (
            *(each.isNotNull() for each in needed),
            *(text(name).isNull() | number(name).isNotNull() for name in NUMBERS),
            (status != "flown") | number("distance").isNotNull(),
        ),
    )
    schema = ", ".join(f"{name} STRING" for name in FIELDS)
    parsed = f.from_json(f.col("value").cast("string"), schema)
    return (
        df.select("_task", "_offset", "key", once(parsed).alias("parsed"))
        .select("_task", "_offset", "key", once(f.struct(*map(trimmed, FIELDS))).alias("raw"))
        .where(is_sound)
        .select(
            "_task",
            "_offset",
            "key",
            identity.alias("flight"),
            status.alias("status"),
            (f.floor(f.unix_seconds(hour) / 60) + number("minute")).alias("scheduled"),
            number("dep_delay").alias("dep_delay"),
            number("arr_delay").alias("arr_delay"),
            number("air_time").alias("air_time"),
            number("distance").alias("distance"),
        )
    )


def totals(rows: pa.Table, state: State, out: Output) -> None:
    """Emit one record per flight, with its aircraft's totals after it.

    State is read once and written once per batch and aircraft, however many flights it made.
    """
    columns = ("key", "flight", "status", "scheduled", "dep_delay", "arr_delay", "air_time", "distance")
    flights = list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))
    aircraft = _load(state["aircraft"].get_many({row[0] for row in flights if row[2] != "unassigned"}))
    carriers = _load(state["carriers"].get_many({row[0] for row in flights if row[2] == "unassigned"}))
    for key, flight, status, *numbers in flights:
        if status == "unassigned":
            carrier = carriers.setdefault(key, {"unassigned": 0})
            carrier["unassigned"] += 1
            out.emit(key, _dump({"flight": flight, **carrier}), UNASSIGNED_TOPIC)
        else:
            plane = aircraft.setdefault(key, dict(NEW_AIRCRAFT))
            inherited = _fly(plane, status, *numbers)
            out.emit(key, _dump({"flight": flight, "status": status, "inherited": inherited, **plane}))
    for key, plane in aircraft.items():
        state["aircraft"].put(key, _dump(plane))
    for key, carrier in carriers.items():
        state["carriers"].put(key, _dump(carrier))


#: The state of an aircraft before its first flight; minutes and miles.
NEW_AIRCRAFT = {
    "flights": 0,
    "cancelled": 0,
    "diverted": 0,
    "distance": 0,
    "air_time": 0,
    "dep_delay": 0,
    "arr_delay": 0,
    "inherited_total": 0,
    "late_in_a_row": 0,
    "carried": 0,
    "scheduled": 0,
}


def _fly(
    plane: dict[str, int],
    status: str,
    scheduled: int,
    dep_delay: int | None,
    arr_delay: int | None,
    air_time: int | None,
    distance: int,
) -> int:
    """Add a flight to its aircraft; return the minutes of its departure delay that it inherited."""
    if dep_delay is None:
        plane["cancelled"] += 1
        return 0
    in_chain = scheduled - plane["scheduled"] <= CHAIN_MINUTES
    inherited = min(plane["carried"], max(dep_delay, 0)) if in_chain else 0
    plane["flights"] += 1
    plane["dep_delay"] += dep_delay
    plane["inherited_total"] += inherited
    plane["scheduled"] = scheduled
    if status == "diverted" or arr_delay is None:
        plane["diverted"] += 1
        plane["late_in_a_row"] += 1
        plane["carried"] = max(dep_delay, 0)
        return inherited
    plane["distance"] += distance
    plane["air_time"] += air_time or 0
    plane["arr_delay"] += arr_delay
    plane["late_in_a_row"] = plane["late_in_a_row"] + 1 if arr_delay > LATE_MINUTES else 0
    plane["carried"] = max(arr_delay, 0)
    return inherited


def _load(found: dict[bytes, bytes]) -> dict[bytes, dict[str, Any]]:
    return {key: json.loads(value) for key, value in found.items()}


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
