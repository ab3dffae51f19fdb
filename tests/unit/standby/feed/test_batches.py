from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standby.adapters.spark.passing import Passing
from standby.errors import BadConfiguration
from standby.feed.batches import ROWS, ROWS_OF_SEVERAL, check_schema, rows_of, split
from standby.replica.failing import FailureOf, code_error
from standby.shared.model import Offsets, TaskId
from tests.cases import case
from tests.fakes.feed_rows import Place, of_two, rows, task

ONE = ("in",)


def span(start: int, end: int) -> tuple[Offsets, Offsets]:
    return Offsets.of(start), Offsets.of(end)


@settings(deadline=None)  # the first call imports compute kernels
@given(
    places=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=40),
    ends=st.tuples(*[st.integers(21, 30)] * 4),
)
def test_each_row_goes_to_its_task_once_and_in_offset_order(
    places: list[tuple[int, int]], ends: tuple[int, int, int, int]
) -> None:
    batches = split(rows(*places), {task(number): span(0, end) for number, end in enumerate(ends)}, ONE)
    assert [batch.task.partition for batch in batches] == [0, 1, 2, 3]
    assert [batch.end.total for batch in batches] == list(ends)
    for batch in batches:
        # sorted() is stable: rows of one offset keep the order in which they came.
        expected = sorted(
            (offset, str(number).encode())
            for number, (partition, offset) in enumerate(places)
            if partition == batch.task.partition
        )
        expected.sort(key=lambda each: (each[0], int(each[1])))
        found = zip(
            batch.rows.column("_offset").to_pylist(), batch.rows.column("value").to_pylist(), strict=True
        )
        assert list(found) == expected


def test_rows_that_belong_to_no_task_of_the_batch_are_refused() -> None:
    below = r"changed '_offset': job/main.0 has rows with offsets from 2 to 2 in the batch \[3, 9\)"
    for places, said in (
        ([(0, 3), (7, 4)], "changed '_task': 1 of 2"),
        ([(0, 3), (None, 4)], "changed '_task': 1 of 2"),
        ([(0, 2)], below),
        ([(0, 9)], "changed '_offset'"),
        ([(0, 3), (0, None)], "changed '_offset'"),
        ([(1, 5)], "changed '_task'"),
    ):
        with case(places), pytest.raises(BadConfiguration, match=said):
            split(rows(*places), {task(0): span(3, 9), task(1): span(5, 5)}, ONE, "job:clean")


TWO = ("b", "a")


def spans(first: int, second: int) -> dict[TaskId, tuple[Offsets, Offsets]]:
    return {task(0): (Offsets.of(0, 0), Offsets.of(first, second))}


def test_a_job_with_one_input_has_no_column_for_the_topic() -> None:
    assert rows_of(("in",)) is ROWS
    assert [*rows_of(TWO).names] == [*ROWS.names, "_topic"]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(TWO), st.integers(0, 9), st.none() | st.integers(0, 50)), max_size=40)
)
def test_the_merged_order_is_that_of_the_rule_whatever_order_rows_come_in(places: list[Place]) -> None:
    """The rule, row by row: of both topics' next rows the one whose topic's time has risen less far, the first named
    of equal ones.

    A late record, or one without a time, is as late as its topic was before, as in Kafka Streams.
    """
    rows = of_two(*places)
    queues: dict[str, list[tuple[float, int, int]]] = {topic: [] for topic in TWO}
    for rank, topic in enumerate(TWO):
        risen = -1.0
        own = sorted(
            (offset, number, time) for number, (of, offset, time) in enumerate(places) if of == topic
        )
        for _, number, time in own:
            risen = max(risen, -1.0 if time is None else time)
            queues[topic].append((risen, rank, number))
    expected = []
    while any(queues.values()):
        least = min((queue for queue in queues.values() if queue), key=lambda queue: queue[0][:2])
        expected.append(str(least.pop(0)[2]).encode())
    # Rows of one offset stay as they came, so only whole offsets are shuffled.
    order = sorted(range(len(places)), key=lambda number: (places[number][1] * 7 % 5, number))
    for given_rows in (rows, rows.take(pa.array(order, pa.int64()))):
        batches = split(given_rows, spans(100, 100), TWO)
        assert [each for batch in batches for each in batch.rows.column("value").to_pylist()] == expected


def test_a_task_has_a_batch_if_it_advances_in_any_input_even_if_all_its_rows_were_filtered() -> None:
    (batch,) = split(of_two(("a", 3, 0)), {task(0): (Offsets.of(5, 3), Offsets.of(5, 4))}, TWO)
    assert (batch.start, batch.end, batch.rows.num_rows) == (Offsets.of(5, 3), Offsets.of(5, 4), 1)
    (batch,) = split(of_two(), {task(0): (Offsets.of(5, 3), Offsets.of(6, 3))}, TWO)
    assert batch.rows.num_rows == 0
    assert batch.rows.schema == ROWS_OF_SEVERAL
    assert split(of_two(), {task(0): (Offsets.of(5, 3), Offsets.of(5, 3))}, TWO) == ()


def test_rows_of_another_input_or_outside_of_their_own_are_refused() -> None:
    outside = r"changed '_offset': job/main.0 has rows of a with offsets from 7 to 7 in the batch \[0, 2\)"
    none = r"changed '_topic': 1 of 2 rows of job/main.0 belong to none of its inputs \(b, a\)"
    places: dict[Place, str] = {("c", 0, 0): none, (None, 0, 0): "changed '_topic'", ("a", 7, 0): outside}
    for place, said in places.items():
        with case(place), pytest.raises(BadConfiguration, match=said):
            split(of_two(("b", 7, 0), place), spans(9, 2), TWO, "job:clean")


def test_a_result_keeps_the_reserved_columns_and_with_several_inputs_topic_and_time_too() -> None:
    of_ms = pa.field("timestamp", pa.timestamp("ms"))
    check_schema(ROWS_OF_SEVERAL.set(2, of_ms), TWO, "job:clean")
    binary_topic = ROWS_OF_SEVERAL.set(5, pa.field("_topic", pa.binary()))
    for schema, inputs, said in (
        (ROWS.remove(3), ONE, "returns no column '_task'"),
        (pa.schema([]), ONE, "the result has no columns"),
        (ROWS.append(pa.field("_task", pa.int32())), ONE, "returns 2 columns called '_task'"),
        (ROWS.set(4, pa.field("_offset", pa.int32())), ONE, "'_offset' as int32; it must stay int64"),
        (ROWS, TWO, "returns no column '_topic'"),
        (binary_topic, TWO, "'_topic' as binary; it must stay string"),
        (ROWS_OF_SEVERAL.remove(2), TWO, "no column 'timestamp'; rows of several inputs are merged by it"),
        (ROWS_OF_SEVERAL.set(2, pa.field("timestamp", pa.int64())), TWO, "'timestamp' as int64"),
    ):
        with case(said), pytest.raises(BadConfiguration, match=said):
            check_schema(schema, inputs, "job:clean")


#: Half of what an array of values can have, and a little more. Nothing reads it, so it takes no memory.
_HALF: Final = (1 << 30) + 1


def of_much(*offsets: int) -> pa.Table:
    """Return rows with these offsets, two of which have too many bytes for one array."""
    sizes, data = map(pa.py_buffer, (np.array([0, _HALF], np.int32), np.zeros(_HALF, np.int8)))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, sizes, data])
    few = rows(*((0, each) for each in offsets))
    return few.set_column(1, "value", pa.chunked_array([value] * len(offsets)))


def test_values_of_a_batch_that_are_too_many_for_an_array_count_as_a_lack_of_memory() -> None:
    with pytest.raises(pa.ArrowInvalid) as raised:
        split(of_much(5, 4), {task(0): span(0, 9)}, ONE)
    assert code_error(raised.value).of is FailureOf.MEMORY
    # Some of them go around Spark.
    passing = Passing(used=(), made=(("_offset", "_offset"), ("value", "value")))
    with pytest.raises(MemoryError, match="result of a batch is too large: offset overflow"):
        passing.restored(pa.table({"c0": [1, 0]}), of_much(4, 5))
