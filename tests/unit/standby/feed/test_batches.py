from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standby.errors import BadConfiguration
from standby.feed.batches import ROWS, check_schema, split
from standby.model import TaskId


def task(partition: int) -> TaskId:
    return TaskId("job", "main", partition)


def rows(*places: tuple[int | None, int | None]) -> pa.Table:
    """Rows at (task, offset); the value is the row's place in the list."""
    return pa.Table.from_pylist(
        [
            {
                "key": b"",
                "value": str(number).encode(),
                "timestamp": None,
                "_task": partition,
                "_offset": offset,
            }
            for number, (partition, offset) in enumerate(places)
        ],
        schema=ROWS,
    )


@settings(deadline=None)  # the first call imports compute kernels
@given(
    places=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=40),
    ends=st.tuples(*[st.integers(21, 30)] * 4),
)
def test_each_row_goes_to_its_task_once_and_in_offset_order(
    places: list[tuple[int, int]], ends: tuple[int, int, int, int]
) -> None:
    batches = split(rows(*places), {task(number): (0, end) for number, end in enumerate(ends)})
    assert [batch.task.partition for batch in batches] == [0, 1, 2, 3]
    assert [batch.end for batch in batches] == list(ends)
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


def test_a_task_that_does_not_advance_has_no_batch() -> None:
    batches = split(rows((1, 5)), {task(0): (3, 3), task(1): (5, 6)})
    assert [batch.task for batch in batches] == [task(1)]


def test_a_task_whose_rows_were_all_filtered_has_an_empty_batch() -> None:
    (batch,) = split(rows(), {task(0): (3, 9)})
    assert (batch.start, batch.end, batch.rows.num_rows) == (3, 9, 0)
    assert batch.rows.schema == ROWS


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([(0, 3), (7, 4)], "changed '_task': 1 of 2"),
        ([(0, 3), (None, 4)], "changed '_task': 1 of 2"),
        ([(0, 2)], r"changed '_offset': job/main.0 has rows with offsets from 2 to 2 in the batch \[3, 9\)"),
        ([(0, 9)], "changed '_offset'"),
        ([(0, 3), (0, None)], "changed '_offset'"),
        ([(1, 5)], "changed '_task'"),
    ],
)
def test_rows_that_belong_to_no_task_of_the_batch_are_refused(
    places: list[tuple[int | None, int | None]], said: str
) -> None:
    with pytest.raises(BadConfiguration, match=said):
        split(rows(*places), {task(0): (3, 9), task(1): (5, 5)}, "job:clean")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (ROWS.remove(3), "returns no column '_task'"),
        (pa.schema([]), "the result has no columns"),
        (ROWS.append(pa.field("_task", pa.int32())), "returns 2 columns called '_task'"),
        (ROWS.set(4, pa.field("_offset", pa.int32())), "'_offset' as int32; it must stay int64"),
    ],
)
def test_a_result_without_the_reserved_columns_is_refused(schema: pa.Schema, said: str) -> None:
    with pytest.raises(BadConfiguration, match=said):
        check_schema(schema, "job:clean")
