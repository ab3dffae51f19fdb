"""Determines a task's input offsets, also in recreated topics that an operator accepted (decision 21). Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from standby.errors import BadConfiguration
from standby.replica.claim import CommitRecord, Committed, first_offsets, offsets_of, settled_offsets
from standby.replica.identity import RunTopics
from standby.shared.model import Offsets, TaskRecord

#: Returns the first offset and the end of the task's partition of each input.
Bounds = Callable[[], Sequence[tuple[int, int]]]


def known_generation(committed: Sequence[Committed | None], last: CommitRecord | None) -> int:
    """Return the highest topic generation in commits of the task; their metadata must be checked before."""
    metadata = [json.loads(each.metadata) for each in committed if each is not None and each.metadata]
    return max(
        (last.generation if last is not None else 0, *(int(each.get("topics", 0)) for each in metadata))
    )


def task_offsets(
    committed: Sequence[Committed | None],
    last: CommitRecord | None,
    record: TaskRecord,
    run: RunTopics,
    run_start: str,
    bounds: Bounds,
) -> Offsets:
    """Return the input offsets at which a task continues, its changelog being drained up to the commit ``last``.

    An input that was accepted since the last commit is read from where the operator specified. If the changelog was
    accepted since, the other inputs continue at the committed offsets. Raises `BadConfiguration` like
    `settled_offsets` and `first_offsets`.
    """
    known = known_generation(committed, last)
    starts = [each.start if each.generation > known else "" for each in map(run.of, run.inputs)]
    is_other_changelog = run.of(run.changelog).generation > known
    if not is_other_changelog and not any(starts):
        return settled_offsets(committed, last, record.task) or first_offsets(
            committed, record, run_start, bounds
        )
    # A recreated changelog has no last commit that the offsets could be compared with.
    settled = offsets_of(committed) if is_other_changelog else settled_offsets(committed, last, record.task)
    present = [each.offset if each is not None else None for each in committed]
    if settled is not None:
        present = list(settled.each)
    offsets = []
    for topic, start, at, (first, end) in zip(run.inputs, starts, present, bounds(), strict=True):
        if start:
            offsets.append(first if start == "earliest" else end)
        elif at is not None:
            offsets.append(at)
        elif record.claimed:
            raise BadConfiguration(
                f"{record.task}: its committed offset in {topic} is gone, and cannot be derived: accept the topic, "
                f"too (`standfast topics {run.job} --accept {topic} --from earliest`, or latest), or delete the job"
            )
        else:
            offsets.append(first if run_start == "earliest" else end)
    return Offsets(tuple(offsets))
