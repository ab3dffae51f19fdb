"""Recognises input that a feed brings again (rule `whole-batch`).

Spark may call ``foreachBatch`` again for a batch that failed half-way, with the same or a larger range: some of
its tasks have committed their part by then.
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
    """Return the batches from each task's committed offsets on; what is wholly committed is left out.

    A batch covers its range of each input without a gap, so what remains is exactly [committed, end). One that
    begins beyond a committed offset stays as it is: that would lose input, and whoever runs it refuses it.
    """
    return tuple(
        rest for batch in batches if (rest := _rest_of(batch, actives.get(batch.task), inputs)) is not None
    )


def _rest_of(batch: TaskBatch, active: ActiveTask | None, inputs: Sequence[str]) -> TaskBatch | None:
    # Read once: the commit's own thread moves it.
    committed = batch.start if active is None else active.committed
    if batch.start == committed or not committed.reaches(batch.start):
        return batch
    if committed.reaches(batch.end):
        return None
    rows = from_offsets(batch.rows, {batch.task.partition: committed}, inputs)
    return replace(batch, start=committed, end=batch.end.at_least(committed), rows=rows)
