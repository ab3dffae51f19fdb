"""The job model: which tasks exist, which processor holds which of them, in how many copies. Pure.

A processor is what Samza calls a container model: tasks that are placed together. Each has ``1 + R`` copies (R is the
job's number of standbys), and every copy holds the same tasks. Copy numbers are stable, roles are not: after a
promotion, copy 1 may be the active one for good.

A running job's model changes by a difference: tasks and actives stay where they are as far as the new sizes allow
(SEP-23, part 2, and its plans for dynamic work assignment).
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from appmaster.planning.state.grouping import Grouper, balanced, regroup, singletons
from appmaster.planning.state.reasons import FailureReason, Reason
from standby.errors import BadConfiguration
from standby.shared.model import ProcessorId, SlotId, TaskId


@dataclass(frozen=True, slots=True, order=True)
class SharedSlotId:
    """One of the containers that a mixed job asks for; it is not bound to any processor."""

    job: str
    number: int

    def __str__(self) -> str:
        return f"{self.job}:mixed-{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class SpareSlotId:
    """One of a job's spare containers (`job.container.spare.count`), which hold no copy until a slot takes them."""

    job: str
    number: int

    def __str__(self) -> str:
        return f"{self.job}:spare-{self.number}"


#: What a container is requested for: a processor's copy, a container of a mixed job, or a spare container.
Slot = SlotId | SharedSlotId | SpareSlotId


def job_of(slot: Slot) -> str:
    """Return the name of the job that a slot belongs to."""
    return slot.processor.job if isinstance(slot, SlotId) else slot.job


def vacant_spares(job: str, used: Container[Slot | None]) -> Iterator[SpareSlotId]:
    """Yield the slots of a job's spare containers that are not ``used``, in order and without end."""
    slots = (SpareSlotId(job, number) for number in itertools.count())
    return (each for each in slots if each not in used)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a job's configuration asks of its model."""

    stage: str
    tasks: int
    """Number of input partitions."""
    containers: int
    """Processors; in a mixed job, all containers."""
    standbys: int
    is_mixed: bool = False
    grouper: Grouper = balanced


@dataclass(frozen=True, slots=True)
class Processor:
    """One processor of a model."""

    tasks: tuple[TaskId, ...]
    copies: tuple[int, ...]
    """Its copy numbers, ascending."""
    parked: Reason[FailureReason] | None = None
    """Why it is withdrawn until an operator unparks it (`standfast unpark`); None: it is not."""


@dataclass(frozen=True)
class JobModel:
    """Every processor of a job with its tasks and copies; each version is stored in one ZooKeeper node."""

    job: str
    processors: Mapping[ProcessorId, Processor]
    is_mixed: bool = False
    containers: int = 0
    """How many containers a mixed job has; 0 for other jobs."""
    version: int = 1
    """Incremented by each change."""
    znode: int = field(default=-1, compare=False)
    """The node's ZooKeeper version; -1: not written yet."""

    @cached_property
    def slots(self) -> tuple[SlotId, ...]:
        """Every slot that needs a container, all first copies before any second one; parked ones excluded."""
        return tuple(
            SlotId(processor, each.copies[rank])
            for rank in range(self.copies)
            for processor, each in self.processors.items()
            if rank < len(each.copies) and not each.parked
        )

    @cached_property
    def processor_of(self) -> Mapping[TaskId, ProcessorId]:
        """The processor of each task."""
        return {task: processor for processor, each in self.processors.items() for task in each.tasks}

    @cached_property
    def tasks(self) -> tuple[TaskId, ...]:
        """Every task of the job, by processor."""
        return tuple(self.processor_of)

    @cached_property
    def parked(self) -> Mapping[ProcessorId, Reason[FailureReason]]:
        """The processors that are parked, and why."""
        return {processor: each.parked for processor, each in self.processors.items() if each.parked}

    @cached_property
    def copies(self) -> int:
        """How many copies a processor has: 1 + R."""
        return max((len(each.copies) for each in self.processors.values()), default=0)

    def parking(self, processor: ProcessorId, reason: Reason[FailureReason] | None) -> JobModel:
        """Return the next version, in which ``processor`` is parked for ``reason``, or unparked if that is None."""
        parked = replace(self.processors[processor], parked=reason)
        return replace(self, processors={**self.processors, processor: parked}, version=self.version + 1)


def propose(
    job: str, spec: JobSpec, present: JobModel | None = None, actives: Mapping[ProcessorId, int] | None = None
) -> JobModel:
    """Return the model that ``spec`` asks for; ``present`` itself if nothing has to change.

    ``actives`` are the copies that are active now: they are never removed when the number of copies is reduced. There
    are never more processors than tasks. How tasks are grouped does not depend on the number of standbys, so enabling
    hot standby moves no active (SEP-23, part 2).
    """
    groups = _groups(spec, present)
    copies = 1 + spec.standbys
    processors: dict[ProcessorId, Processor] = {}
    for number, partitions in sorted(groups.items()):
        processor = ProcessorId(job, spec.stage, number)
        old = present.processors.get(processor) if present is not None else None
        numbers = _copies(old.copies if old is not None else (), copies, (actives or {}).get(processor))
        tasks = tuple(TaskId(job, spec.stage, each) for each in partitions)
        processors[processor] = Processor(tasks, numbers, old.parked if old is not None else None)
    containers = spec.containers if spec.is_mixed else 0
    if present is None:
        return JobModel(job, processors, spec.is_mixed, containers)
    if present.processors == processors and present.containers == containers:
        return present
    return replace(
        present,
        processors=processors,
        is_mixed=spec.is_mixed,
        containers=containers,
        version=present.version + 1,
    )


def is_right(model: JobModel, spec: JobSpec) -> bool:
    """Return whether ``model`` is what ``spec`` asks for, or cannot become so because the grouper refuses."""
    if spec.tasks < 1:
        return True
    if model.version == 0:
        return False
    try:
        return propose(model.job, spec, model) is model
    except BadConfiguration:
        # The change was refused when it was requested; the running job continues as it is.
        return True


def _groups(spec: JobSpec, present: JobModel | None) -> Mapping[int, tuple[int, ...]]:
    if spec.is_mixed:
        return singletons(spec.tasks)
    held = {
        processor.number: tuple(task.partition for task in each.tasks)
        for processor, each in (present.processors.items() if present is not None else ())
    }
    return regroup(held, spec.tasks, min(spec.containers, spec.tasks), spec.grouper)


def _copies(present: tuple[int, ...], count: int, active: int | None) -> tuple[int, ...]:
    """Return ``count`` copy numbers: the present ones, of which the highest are removed first, never the active one."""
    kept = sorted(present, key=lambda copy: (copy != active, copy))[:count]
    free = (number for number in range(count + len(present)) if number not in kept)
    return tuple(sorted([*kept, *(next(free) for _ in range(count - len(kept)))]))
