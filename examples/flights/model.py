"""The batch model: the outputs and state that the job must have produced, computed from the whole input at once.

It shares no code with the job: it computes columns with pandas, as running sums, shifts and fills over all
flights of an aircraft, while the job processes one flight after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

_TOTALS = [
    "flights",
    "cancelled",
    "diverted",
    "distance",
    "air_time",
    "dep_delay",
    "arr_delay",
    "inherited_total",
    "late_in_a_row",
    "carried",
    "scheduled",
]


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected result of the job for an input."""

    outputs: Mapping[str, list[tuple[bytes, dict[str, Any]]]]
    """Topic → (key, value) pairs; those of one key in the order in which they must appear."""
    state: Mapping[str, Mapping[bytes, dict[str, Any]]]
    """Store → key → value after the last record."""


def expected(records: Iterable[tuple[bytes, bytes]]) -> Expected:
    """Return the expected result for ``records``, (key, value) pairs as in the input topic.

    Only the order of records with the same key matters, so partitions may be passed one after the other.
    """
    keys, values = [], []
    for key, value in records:
        keys.append(key)
        values.append(json.loads(value))
    if not keys:
        return Expected({"flight-delays": [], "unassigned-flights": []}, {"aircraft": {}, "carriers": {}})
    frame = pd.DataFrame(values)
    frame = frame.mask(frame.isin(["", "NA"]), None)
    frame["key"] = keys
    frame["identity"] = frame["year"].str.cat(
        [frame[name] for name in ("month", "day", "carrier", "flight", "origin", "sched_dep_time")], sep="/"
    )
    for name in ("dep_delay", "arr_delay", "air_time", "distance", "minute"):
        frame[name] = pd.to_numeric(frame[name]).astype("Int64")
    hours = pd.to_datetime(frame["time_hour"], utc=True).astype("datetime64[s, UTC]").astype("int64")
    frame["scheduled"] = hours // 60 + frame["minute"].astype("int64")
    homeless = frame["tailnum"].isna()
    unassigned = _unassigned(frame[homeless])
    aircraft = _aircraft(frame[~homeless].copy())
    return Expected(
        outputs={
            "flight-delays": _pairs(aircraft, ["identity", "status", "inherited", *_TOTALS]),
            "unassigned-flights": _pairs(unassigned, ["identity", "unassigned"]),
        },
        state={
            "aircraft": dict(_pairs(aircraft.drop_duplicates("key", keep="last"), _TOTALS)),
            "carriers": dict(_pairs(unassigned.drop_duplicates("key", keep="last"), ["unassigned"])),
        },
    )


def _unassigned(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(unassigned=frame.groupby("key").cumcount() + 1)


def _aircraft(frame: pd.DataFrame) -> pd.DataFrame:
    cancelled = frame["dep_delay"].isna()
    diverted = ~cancelled & frame["arr_delay"].isna()
    arrived = ~cancelled & ~diverted
    frame["status"] = "flown"
    frame.loc[cancelled, "status"] = "cancelled"
    frame.loc[diverted, "status"] = "diverted"

    # The delay that a departed flight carries to the next departed flight of the same aircraft.
    departed = frame[~cancelled].copy()
    departed["carried"] = departed["arr_delay"].fillna(departed["dep_delay"]).clip(lower=0)
    before = departed.groupby("key")[["carried", "scheduled"]].shift(1)
    in_chain = (departed["scheduled"] - before["scheduled"]).le(720).fillna(value=False)
    possible = departed["dep_delay"].clip(lower=0)
    inherited = before["carried"].where(before["carried"].le(possible), possible)
    departed["inherited"] = inherited.where(in_chain, 0).fillna(0)
    late = departed["arr_delay"].gt(15).fillna(value=True)
    chain = (~late).groupby(departed["key"]).cumsum()
    departed["late_in_a_row"] = late.astype("int64").groupby([departed["key"], chain]).cumsum()

    # A cancelled flight does not change it: it shows the value of the last departed flight.
    for name in ("carried", "late_in_a_row", "inherited"):
        frame[name] = departed[name]
    frame["last_scheduled"] = frame["scheduled"].where(~cancelled)
    latest = ["carried", "late_in_a_row", "last_scheduled"]
    frame[latest] = frame.groupby("key")[latest].ffill()
    frame["inherited"] = frame["inherited"].fillna(0)

    sums = pd.DataFrame(
        {
            "flights": ~cancelled,
            "cancelled": cancelled,
            "diverted": diverted,
            "distance": frame["distance"].where(arrived, 0),
            "air_time": frame["air_time"].where(arrived, 0),
            "dep_delay": frame["dep_delay"],
            "arr_delay": frame["arr_delay"],
            "inherited_total": frame["inherited"],
        }
    ).fillna(0)
    running = sums.astype("int64").groupby(frame["key"]).cumsum()
    frame[list(running.columns)] = running
    frame["scheduled"] = frame["last_scheduled"]
    whole = ["inherited", *_TOTALS]
    frame[whole] = frame[whole].fillna(0).astype("int64")
    return frame


def _pairs(frame: pd.DataFrame, names: list[str]) -> list[tuple[bytes, dict[str, Any]]]:
    labels = ["flight" if name == "identity" else name for name in names]
    columns = (frame[name].tolist() for name in names)
    values = (dict(zip(labels, row, strict=True)) for row in zip(*columns, strict=True))
    return list(zip(frame["key"].tolist(), values, strict=True))
