"""Filters out input that a feed delivers again (rule `whole-batch`).

Spark may call ``foreachBatch`` again for a batch that failed half-way, with the same or a larger range. Some of its
tasks may have committed their part by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from standby.feed.batches import from_offsets
from standby.kernel.active.active import ActiveTask
from standby.ports import TaskBatch
from standby.shared.model import TaskId


def uncommitted(
    batches: Iterable[TaskBatch], actives: Mapping[TaskId, ActiveTask], inputs: Sequence[str]
) -> tuple[TaskBatch, ...]:
    """Return the batches from each task's committed offsets on, without those that are fully committed.

    A batch covers its range of each input without a gap, so the rest is exactly [committed, end). A batch that
    begins beyond the committed offset is returned unchanged: it would lose input, and `BatchRunner` refuses it.
    """
    return tuple(
        rest for batch in batches if (rest := _rest_of(batch, actives.get(batch.task), inputs)) is not None
    )


def _rest_of(batch: TaskBatch, active: ActiveTask | None, inputs: Sequence[str]) -> TaskBatch | None:
    # Read once: the commit thread changes it.
    committed = batch.start if active is None else active.committed
    if batch.start == committed or not committed.reaches(batch.start):
        return batch
    if committed.reaches(batch.end):
        return None
    rows = from_offsets(batch.rows, {batch.task.partition: committed}, inputs)
    return replace(batch, start=committed, end=batch.end.at_least(committed), rows=rows)
