"""Chooses the containers that may run a job's transform for another one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from standby.shared.model import TaskId, TaskRecord


def asked_tasks(own: Collection[TaskId], tasks: int, most: int) -> tuple[TaskId, ...]:
    """Return at most ``most`` tasks of a job with ``tasks`` of them whose holders are to be asked.

    They are spread over the job, because those of one processor have the same holders; one of ``own`` is among them.
    """
    first = min(own)
    step = -(-tasks // most)
    return tuple(
        TaskId(first.job, first.stage, (first.partition + number) % tasks) for number in range(0, tasks, step)
    )


def holders(records: Iterable[TaskRecord], container: str) -> tuple[str, ...]:
    """Return the other containers that hold a copy, each once: those of standbys before those of actives only.

    An active needs its transform itself.
    """
    standbys: list[str] = []
    actives: list[str] = []
    for record in records:
        for copy, holder in record.placed.items():
            (actives if copy == record.active else standbys).append(holder)
    return tuple(each for each in dict.fromkeys((*standbys, *actives)) if each != container)
