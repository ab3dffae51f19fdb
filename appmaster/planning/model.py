"""The job model: which tasks exist, and which processor holds which of them. Pure.

A processor is what Samza calls a container model. Each has ``1 + R`` copies (R = the job's standbys);
every copy holds the same tasks and needs a container of its own. Copy numbers are stable, roles are
not: after a promotion copy 1 may be the active one for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from standby.model import ProcessorId, SlotId, TaskId


@dataclass(frozen=True, slots=True)
class JobModel:
    """Every processor of a job with its tasks, and how many copies each has."""

    job: str
    processors: Mapping[ProcessorId, tuple[TaskId, ...]]
    copies: int
    """Active and standbys together: 1 + R."""

    def slots(self) -> tuple[SlotId, ...]:
        """Return every slot, all first copies before any second one."""
        return tuple(SlotId(processor, copy) for copy in range(self.copies) for processor in self.processors)

    def tasks(self) -> tuple[TaskId, ...]:
        """Return every task of the job, by processor."""
        return tuple(task for tasks in self.processors.values() for task in tasks)


def build(job: str, stage: str, tasks: int, containers: int, standbys: int) -> JobModel:
    """Return the model of a job with ``tasks`` input partitions on ``containers`` active containers.

    Tasks go round the processors in turn (Samza's group-by-container-count). There are never more
    processors than tasks. The actives' grouping does not depend on ``standbys``, so switching hot
    standby on moves no active (SEP-23, part 2).
    """
    count = min(containers, tasks)
    groups: dict[ProcessorId, tuple[TaskId, ...]] = {
        ProcessorId(job, stage, number): tuple(
            TaskId(job, stage, each) for each in range(number, tasks, count)
        )
        for number in range(count)
    }
    return JobModel(job, groups, 1 + standbys)
