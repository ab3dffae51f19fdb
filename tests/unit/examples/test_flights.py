"""The job against the batch model, in memory."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples.flights import flights_plain
from examples.flights.model import Expected, expected
from examples.flights.source import ROWS, Raw, flights
from tests.examples import examples
from tests.unit.examples.fakes import FLIGHT, Job, by_key, table

SAMPLE = 2_000


@cache
def sample() -> tuple[Raw, ...]:
    """The first days of the year: all kinds of rows, and aircraft with several flights."""
    return tuple(flights(SAMPLE))


def assert_same(job: Job, model: Expected) -> None:
    for topic, pairs in model.outputs.items():
        assert by_key(job.outputs[topic]) == by_key(pairs)
    assert job.state() == model.state


def flight(number: int, tail: str = "N1", **fields: str) -> Raw:
    """A flight from Newark, ten hours after the one before, with ``fields`` changed."""
    row = {**FLIGHT, "flight": str(number), "tailnum": tail, **fields}
    return Raw((tail if tail != "NA" else f"?{row['carrier']}").encode(), json.dumps(row).encode())


def outputs(*records: Raw) -> list[dict[str, object]]:
    job = Job()
    job.run(records)
    assert_same(job, expected(records))
    return [value for _, value in job.outputs["flight-delays"]]


@pytest.mark.acceptance
def test_the_source_is_the_whole_year_in_the_order_of_the_timetable() -> None:
    records = list(flights())
    assert len(records) == ROWS
    rows = [json.loads(record.value) for record in records]
    times = [(row["time_hour"], int(row["minute"])) for row in rows]
    assert times == sorted(times)
    assert sum(row["tailnum"] == "NA" for row in rows) == 2_512
    assert sum(row["dep_delay"] == "NA" for row in rows) == 8_255
    assert len({record.key for record in records}) == 4_043 + 7


def test_the_sample_has_every_kind_of_row_and_chains() -> None:
    kinds = Counter(flights_plain.clean_table(table(sample())).column("status").to_pylist())
    assert set(kinds) == {"flown", "diverted", "cancelled", "unassigned"}
    assert sum(kinds.values()) == SAMPLE
    assert sum(each["inherited"] > 0 for _, each in _model().outputs["flight-delays"]) > 100


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.data_too_large])
@given(cuts=st.sets(st.integers(1, SAMPLE - 1), max_size=30))
def test_any_split_into_batches_gives_what_the_model_says(cuts: set[int]) -> None:
    job = Job()
    for start, end in pairwise([0, *sorted(cuts), SAMPLE]):
        job.run(sample()[start:end])
    assert_same(job, _model())


@cache
def _model() -> Expected:
    return expected(sample())


def test_no_more_is_inherited_than_the_departure_was_late_and_nothing_over_night() -> None:
    night = {"dep_delay": "60", "time_hour": "2013-01-01T22:00:00Z"}
    for later, inherited in (
        ({"dep_delay": "25"}, 25),
        ({"dep_delay": "-5"}, 0),
        ({**night, "minute": "0"}, 40),
        ({**night, "minute": "1"}, 0),
    ):
        assert outputs(flight(1, arr_delay="40"), flight(2, **later))[1]["inherited"] == inherited, later


def test_no_input_means_no_output() -> None:
    model = expected([])
    assert model.outputs == {"flight-delays": [], "unassigned-flights": []}
    job = Job()
    job.run([])
    assert job.state() == model.state
