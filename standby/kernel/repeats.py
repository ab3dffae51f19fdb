"""Recognises input that a feed brings again (design 4.4).

Spark may call ``foreachBatch`` again for a batch that failed half-way, with the same or a larger range: some of
its tasks have committed their part by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from standby.feed.batches import from_offsets
from standby.kernel.active import ActiveTask
from standby.model import TaskId
from standby.ports import TaskBatch


def uncommitted(batches: Iterable[TaskBatch], actives: Mapping[TaskId, ActiveTask]) -> tuple[TaskBatch, ...]:
    """Return the batches from each task's committed offset on; what is wholly committed is left out.

    A batch covers its range without a gap, so what remains is exactly [committed, end). One that begins beyond
    the committed offset stays as it is: that would lose input, and whoever runs it refuses it.
    """
    return tuple(rest for batch in batches if (rest := _rest_of(batch, actives.get(batch.task))) is not None)


def _rest_of(batch: TaskBatch, active: ActiveTask | None) -> TaskBatch | None:
    if active is None or batch.start >= active.committed:
        return batch
    if batch.end <= active.committed:
        return None
    rows = from_offsets(batch.rows, {batch.task.partition: active.committed})
    return replace(batch, start=active.committed, rows=rows)
