"""Where a task's input goes on, also in topics that were accepted although they are others (decision 21). Pure."""

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
    """Return the highest generation of topics that commits of the task have known; their metadata is checked before."""
    told = [json.loads(each.metadata) for each in committed if each is not None and each.metadata]
    return max((last.generation if last is not None else 0, *(int(each.get("topics", 0)) for each in told)))


def task_offsets(
    committed: Sequence[Committed | None],
    last: CommitRecord | None,
    record: TaskRecord,
    run: RunTopics,
    run_start: str,
    bounds: Bounds,
) -> Offsets:
    """Return the offsets of the inputs at which a task goes on, its changelog drained up to the commit ``last``.

    An input that was accepted since its last commit is read from where the operator said. Behind a changelog that was
    accepted since, the other inputs go on at the committed offsets. Raises `BadConfiguration` as `settled_offsets` and
    `first_offsets` do.
    """
    known = known_generation(committed, last)
    starts = [each.start if each.generation > known else "" for each in map(run.of, run.inputs)]
    is_other_changelog = run.of(run.changelog).generation > known
    if not is_other_changelog and not any(starts):
        return settled_offsets(committed, last, record.task) or first_offsets(
            committed, record, run_start, bounds
        )
    # What another changelog says is not compared: there is no last commit of this one.
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
                f"{record.task}: its committed offset in {topic} is gone, and nothing else tells it: accept it, "
                f"too (`standfast topics {run.job} --accept {topic} --from earliest`, or latest), or delete the job"
            )
        else:
            offsets.append(first if run_start == "earliest" else end)
    return Offsets(tuple(offsets))
