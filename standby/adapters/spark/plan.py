"""Checks a transform's plan: it must process each row by itself. Pure.

The plan is that over a streaming DataFrame, in which Spark marks what the rows pass through. It runs over one
micro-batch at a time, so an operator's state would end with the batch, and the result of an operator over all rows
would depend on where the batch ends, which differs when records are read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from standby.errors import BadConfiguration

_STATE: Final = "its state would end with each micro-batch; keep it in the step's stores"
_BOUNDARY: Final = (
    "its result depends on where a micro-batch ends, which is not the same when records are read again"
)

#: Name of a logical operator in Spark → why it cannot be applied to the stream.
REFUSED: Final = {
    "Aggregate": f"an aggregation: {_STATE}",
    "Distinct": f"a distinct union: {_STATE}",
    "Deduplicate": f"dropDuplicates() or distinct(): {_STATE}",
    "DeduplicateWithinWatermark": f"dropDuplicatesWithinWatermark(): {_STATE}",
    "FlatMapGroupsWithState": f"a state per group: {_STATE}",
    "FlatMapGroupsInPandasWithState": f"applyInPandasWithState(): {_STATE}",
    "TransformWithState": f"transformWithState(): {_STATE}",
    "TransformWithStateInPandas": f"transformWithStateInPandas(): {_STATE}",
    "TransformWithStateInPySpark": f"transformWithState(): {_STATE}",
    "GlobalLimit": f"limit(): {_STATE}",
    "LocalLimit": f"limit(): {_STATE}",
    "Offset": f"offset(): {_STATE}",
    "Tail": f"tail(): {_STATE}",
    "Intersect": f"intersect(): {_STATE}",
    "Except": f"exceptAll() or subtract(): {_STATE}",
    "FlatMapGroupsInPandas": f"applyInPandas(): {_BOUNDARY}",
    "FlatMapGroupsInArrow": f"applyInArrow(): {_BOUNDARY}",
    "FlatMapCoGroupsInPandas": f"applyInPandas() of two groups: {_BOUNDARY}",
    "FlatMapCoGroupsInArrow": f"applyInArrow() of two groups: {_BOUNDARY}",
    "MapGroups": f"mapGroups(): {_BOUNDARY}",
    "CoGroup": f"cogroup(): {_BOUNDARY}",
    "Window": f"a window function: {_BOUNDARY}",
    "WindowInPandas": f"a window function: {_BOUNDARY}",
    "Sort": f"a sort: {_BOUNDARY}; the step gets its rows in offset order anyway",
    "Pivot": f"pivot(): {_STATE}",
    "Sample": "sample(): it draws other rows when records are read again",
}


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a logical plan."""

    name: str
    is_streaming: bool
    """Whether it is applied to the stream; operators on static tables are unrestricted."""
    streaming_inputs: int
    """Number of its inputs that are streams."""


def check_plan(operators: Iterable[Operator], transform: str) -> None:
    """Raise `BadConfiguration` with the reason unless each of ``operators`` treats rows one by one.

    ``transform`` names the function whose result has them.
    """
    streaming = [each for each in operators if each.is_streaming]
    if not streaming:
        raise BadConfiguration(
            f"task.transform: {transform} returns a DataFrame that does not come from the one it was given"
        )
    for each in streaming:
        if each.name in REFUSED:
            raise BadConfiguration(f"task.transform: {transform} contains {REFUSED[each.name]}")
        if each.name == "Join" and each.streaming_inputs > 1:
            raise BadConfiguration(f"task.transform: {transform} joins the stream with itself: {_STATE}")
        if each.name == "Union" and each.streaming_inputs > 1:
            raise BadConfiguration(
                f"task.transform: {transform} contains a union of the stream with itself: each branch would read "
                "the input again; use explode() to make several rows of one"
            )
