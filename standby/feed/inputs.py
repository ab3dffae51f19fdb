"""Converts between positions of tasks and offsets of input partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from standby.shared.model import InputPartition, Offsets, TaskId


def by_partition(positions: Mapping[TaskId, Offsets], inputs: Sequence[str]) -> dict[InputPartition, int]:
    """Return the offset of each partition of the topics ``inputs``: task n has partition n of every topic."""
    return {
        (topic, task.partition): offset
        for task, offsets in positions.items()
        for topic, offset in zip(inputs, offsets.each, strict=True)
    }


def reached_offsets(
    ends: Mapping[InputPartition, int], inputs: Sequence[str], task: TaskId, before: Offsets
) -> Offsets:
    """Return the task's offsets in ``ends``, and those in ``before`` where there are none."""
    partition = task.partition
    if len(inputs) == 1:
        return Offsets((ends.get((inputs[0], partition), before.each[0]),))
    return Offsets(
        tuple(ends.get((topic, partition), offset) for topic, offset in zip(inputs, before.each, strict=True))
    )
