from __future__ import annotations

import pytest

from standby.adapters.spark.plan import REFUSED, Operator, check_plan
from standby.errors import BadConfiguration
from tests.cases import case

SOURCE = Operator("StreamingRelationV2", is_streaming=True, streaming_inputs=0)
TABLE = Operator("LocalRelation", is_streaming=False, streaming_inputs=0)


def over_stream(name: str, inputs: int = 1) -> Operator:
    return Operator(name, is_streaming=True, streaming_inputs=inputs)


def over_table(name: str) -> Operator:
    return Operator(name, is_streaming=False, streaming_inputs=0)


def test_operators_that_treat_each_row_by_itself_pass() -> None:
    check_plan(
        [over_stream(name) for name in ("Project", "Filter", "Generate", "MapInArrow")] + [SOURCE], "job:f"
    )


def test_a_join_with_a_table_passes_whatever_was_done_to_the_table() -> None:
    check_plan([over_stream("Join"), SOURCE, over_table("Aggregate"), over_table("Sort"), TABLE], "job:f")


def test_an_operator_over_many_rows_of_the_stream_is_refused_with_its_reason() -> None:
    for name, reason in REFUSED.items():
        with case(name), pytest.raises(BadConfiguration) as error:
            check_plan([over_stream("Project"), over_stream(name), SOURCE], "job:f")
        assert str(error.value) == f"task.transform: job:f contains {reason}"


def test_the_stream_may_be_read_once_only() -> None:
    for name, said in (("Join", "joins the stream with itself"), ("Union", "union of the stream")):
        with case(name), pytest.raises(BadConfiguration, match=said):
            check_plan([over_stream(name, inputs=2), SOURCE, SOURCE], "job:f")


def test_a_result_that_is_not_made_of_the_stream_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="does not come from the one it was given"):
        check_plan([over_table("Project"), TABLE], "job:f")
